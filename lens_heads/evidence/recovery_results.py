"""Recovery, the result of `recovery`: every example under every set, and its summary."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float
from torch import Tensor

from lens_heads.evidence.curve_results import MAIN_TASK
from lens_heads.heads.conditions import with_key
from lens_heads.heads.grouping import COLUMNS, Labels, groups_in
from lens_heads.runs.drawn import Drawn
from lens_heads.runs.typed import typed_methods
from lens_heads.stats import crossed_interval, ratio_interval

PATCHED = "patched"
"""The set of the heads that are asked about; in all rows the method, since controls are like these."""
SMALL = 0.5
"""Nats. With a smaller denominator, ablation cost next to nothing and the ratio is meaningless."""


class NothingFlipped(ValueError):  # noqa: N818 - a finding as well as an error
    """No example is answered correctly when clean and incorrectly when ablated, so there is nothing to recover.

    Example:
        >>> try:
        ...     lh.recovery(model, others[:2], planted.of("decoy"), heads, controls=(), max_new_tokens=1, kind="zero")
        ... except lh.evidence.NothingFlipped:
        ...     print("no decoy is needed")
        no decoy is needed
    """


@typed_methods
@dataclass(frozen=True, eq=False)
class Recovery(Drawn):
    """The result of `recovery`.

    `per_trial`: one row per trial and set: method ("patched"), set ("patched" or a control), k (heads patched), draw, task,
    trial, its groups (group, group_2; empty without), fair (the control was itself ablated), lp_clean, lp_ablated, lp_patched
    (nats, summed over the answer's tokens), cost (lp_clean - lp_ablated), and recovery. `examples`: how many trials there are,
    and how many were right when clean, right when ablated, and used.

    `meta`: the settings.

    Example:
        >>> few = lh.Controls("random", draws=1)
        >>> found = lh.recovery(model, others[:2], heads, heads, controls=few, fair=False, max_new_tokens=1, kind="zero")
        >>> found.examples
        {'all': 2, 'used': 2, 'right_clean': 2, 'right_ablated': 0}
    """

    per_trial: pd.DataFrame
    examples: dict[str, int]
    meta: dict[str, Any]

    def __post_init__(self) -> None:
        object.__setattr__(self, "per_trial", with_key(self.per_trial))

    @classmethod
    def from_records(
        cls, records: Sequence[tuple[str, dict[str, Any]]], sets: Sequence[Any], flipped: bool, meta: dict[str, Any]
    ) -> Recovery:
        """Build the result from the stored records, each with its example's groups. NothingFlipped if no example flips."""
        used = [(id, r) for id, r in records if not flipped or (r["right_clean"] and not r["right_ablated"])]
        counts = {"all": len(records), "used": len(used)}
        if flipped:
            counts |= {key: sum(bool(r[key]) for _, r in records) for key in ("right_clean", "right_ablated")}
        if not used:
            raise NothingFlipped(
                f"no example is right when clean and wrong when ablated: {counts['right_clean']} of {len(records)} are right "
                f"when clean, {counts['right_ablated']} when ablated. Ablate more heads, give easier or more examples, or "
                "use all of them with flipped=False."
            )
        rows = [
            {"method": PATCHED, "set": sets[number].name, "k": len(sets[number].patched), "draw": sets[number].draw}
            | {"task": MAIN_TASK, "trial": id}
            | {name: record.get(name, "") for name in COLUMNS}
            | {"fair": sets[number].fair}
            | {"lp_clean": record["clean"], "lp_ablated": before, "lp_patched": after}
            for id, record in used
            for number, before, after in record["sets"]
        ]
        table = pd.DataFrame(rows)
        table["cost"] = table["lp_clean"] - table["lp_ablated"]
        with np.errstate(divide="ignore", invalid="ignore"):
            table["recovery"] = (table["lp_patched"] - table["lp_ablated"]) / table["cost"]
        return cls(table, counts, meta)

    @cached_property
    def frame(self) -> pd.DataFrame:
        """One row per set: recovery as a ratio of sums with its 95 % interval, and diagnostics.

        low, high: over examples (by their groups) and draws, see `stats.ratio_interval`. median: of the examples' ratios.
        undefined: share of denominators under 0.5 nats. cost: mean of lp_clean - lp_ablated. recovery is NaN where ablation
        costs nothing in total; the interval is also NaN below five examples or groups, and where the interval of the cost
        reaches zero.
        """
        rows = []
        for (name, fair), part in self._by_set().items():
            cost, gain, groups = _cost_and_gain(part)
            ratio, low, high = ratio_interval(gain, cost, groups=groups)
            rows.append(
                {"set": name, "fair": fair, "recovery": ratio, "low": low, "high": high}
                | {"median": float(part["recovery"].replace([np.inf, -np.inf], np.nan).median())}
                | {"undefined": float((part["cost"] < SMALL).mean()), "cost": float(part["cost"].mean())}
                | {"draws": len(cost), "examples": cost.shape[1]}
            )
        return pd.DataFrame(rows)

    def differences(self) -> pd.DataFrame:
        """The patched heads against every control, on the same examples, with 95 % intervals.

        `of` "recovery", where the same heads are ablated: the share of the cost that the patched heads recover beyond the
        control. `of` "cost", for fair controls, whose ratios have other denominators: the nats per example that ablating the
        chosen heads costs beyond the control.
        """
        rows = []
        (_, patched), *controls = self._by_set().items()
        cost, gain, groups = _cost_and_gain(patched)
        for (name, fair), part in controls:
            other_cost, other_gain, _ = _cost_and_gain(part)
            beyond = cost - other_cost if fair else gain - other_gain
            found = (
                crossed_interval(beyond, groups=groups) if fair else ratio_interval(beyond, other_cost, groups=groups)
            )
            row = dict(zip(("difference", "low", "high"), found, strict=True))
            rows.append({"set": name, "fair": fair, "of": "cost" if fair else "recovery"} | row)
        return pd.DataFrame(rows, columns=["set", "fair", "of", "difference", "low", "high"])

    def _by_set(self) -> dict[Any, pd.DataFrame]:
        """The rows of every set by its name and whether it is a fair control, "patched" first."""
        return dict(iter(self.per_trial.groupby(["set", "fair"], sort=False)))

    def plot(self, *, title: str | None = None) -> Any:
        """Bars of recovery per set with intervals, next to the controls; fair controls are hatched."""
        from lens_heads import plots

        return plots.recovery_bars(self.frame, title=title)

    def __repr__(self) -> str:
        first = self.frame.iloc[0]
        bounds = "" if np.isnan(first["low"]) else f" [{first['low']:.2f}, {first['high']:.2f}]"
        return f"Recovery({self.examples['used']} of {self.examples['all']} examples; {first['recovery']:.2f}{bounds})"


def _cost_and_gain(
    part: pd.DataFrame,
) -> tuple[Float[Tensor, "draw example"], Float[Tensor, "draw example"], Labels]:
    """What ablation costs and patching returns, in nats, and the examples' groups."""
    wide = part.assign(gain=part["lp_patched"] - part["lp_ablated"]).pivot(index="draw", columns="trial")
    cost, gain = (torch.tensor(wide[name].to_numpy()) for name in ("cost", "gain"))
    return cost, gain, groups_in(part, wide["cost"].columns, "trial")
