"""Recovery, the result: every example under every set, and its summary."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from html import escape
from typing import Any

import numpy as np
import pandas as pd
import torch

from lens_heads.stats import bootstrap_over_draws, bootstrap_ratio

SMALL = 0.5
"""Nats: under this a denominator says that ablation cost nothing, and a ratio with it says nothing."""


class NothingFlipped(ValueError):  # noqa: N818 - a finding, too
    """No example is right when clean and wrong when ablated, so nothing can be recovered."""


@dataclass(frozen=True, eq=False)
class Recovery:
    """The result of `recovery`.

    `per_example`: one row per example and set: set ("patched" or a control), draw, fair (the control was itself ablated),
    lp_clean, lp_ablated, lp_patched (nats, summed over the answer's tokens), recovery. `examples` counts: all, right when
    clean, right when ablated, used.
    """

    per_example: pd.DataFrame
    examples: dict[str, int]
    meta: dict[str, Any]

    @classmethod
    def from_records(
        cls, records: Sequence[tuple[str, dict[str, Any]]], sets: Sequence[Any], flipped: bool, meta: dict[str, Any]
    ) -> Recovery:
        """From what `recovery` stored per example. NothingFlipped when no example is right clean and wrong ablated."""
        right = [record for _, record in records if record["right_clean"]]
        used = [(id, r) for id, r in records if not flipped or (r["right_clean"] and not r["right_ablated"])]
        counts = {"all": len(records), "used": len(used)}
        if flipped:
            counts |= {"right_clean": len(right), "right_ablated": sum(bool(r["right_ablated"]) for _, r in records)}
        if not used:
            raise NothingFlipped(
                f"no example is right when clean and wrong when ablated: {counts['right_clean']} of {len(records)} are right "
                f"when clean, {counts['right_ablated']} when ablated; ablate more heads, give easier or more examples, or "
                "flipped=False to use them all"
            )
        rows = [
            {
                "example": id,
                "set": sets[number].name,
                "draw": sets[number].draw,
                "fair": sets[number].fair,
                "lp_clean": record["clean"],
                "lp_ablated": before,
                "lp_patched": after,
            }
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
        """One row per set: recovery as the ratio of sums with its 95 % interval, and what warns of it.

        low, high: bootstrap over examples and draws; median: of the examples' ratios; undefined: share of denominators
        under 0.5 nats; cost: mean of lp_clean - lp_ablated. NaN where ablation cost nothing in sum (a share of nothing), and
        no interval with one example or where resampled costs reach zero.
        """
        rows = []
        for name, fair in self._sets():
            part = self.per_example[(self.per_example["set"] == name) & (self.per_example["fair"] == fair)]
            cost, gain = self._table(name, fair).values()
            ratio, low, high = bootstrap_ratio(torch.tensor(gain), torch.tensor(cost))
            rows.append(
                {"set": name, "fair": fair, "recovery": ratio, "low": low, "high": high}
                | {"median": float(part["recovery"].replace([np.inf, -np.inf], np.nan).median())}
                | {"undefined": float((part["cost"] < SMALL).mean()), "cost": float(part["cost"].mean())}
                | {"draws": len(cost), "examples": cost.shape[1]}
            )
        return pd.DataFrame(rows)

    def differences(self) -> pd.DataFrame:
        """Every control against the patched heads, on the same examples, with 95 % intervals.

        `of` "recovery", where the same heads stay ablated: share of the cost that the patched heads return beyond the
        control. `of` "cost", for fair controls, whose ratios have other denominators: nats per example that ablating the
        chosen heads costs beyond the control.
        """
        rows = []
        mine = self._table("patched", False)
        for name, fair in self._sets()[1:]:
            control = self._table(name, fair)
            cost, gain = (mine[part] - control[part] for part in ("cost", "gain"))
            if fair:
                found = bootstrap_over_draws(torch.tensor(cost))
            else:
                found = bootstrap_ratio(torch.tensor(gain), torch.tensor(control["cost"]))
            row = dict(zip(("difference", "low", "high"), found, strict=True))
            rows.append({"set": name, "fair": fair, "of": "cost" if fair else "recovery"} | row)
        return pd.DataFrame(rows, columns=["set", "fair", "of", "difference", "low", "high"])

    def _sets(self) -> list[tuple[str, bool]]:
        """Every set and whether it was itself ablated, "patched" first."""
        return list(dict.fromkeys(zip(self.per_example["set"], self.per_example["fair"], strict=True)))

    def _table(self, name: str, fair: bool) -> dict[str, np.ndarray]:
        """Cost and gain (nats) of a set: one row per draw, one column per example."""
        part = self.per_example[(self.per_example["set"] == name) & (self.per_example["fair"] == fair)]
        part = part.assign(gain=part["lp_patched"] - part["lp_ablated"])
        return {what: part.pivot(index="draw", columns="example", values=what).to_numpy() for what in ("cost", "gain")}

    def plot(self, title: str | None = None) -> Any:
        """Recovery per set with intervals; controls beside it, fair ones hatched."""
        from lens_heads import plots

        return plots.recovery_bars(self.frame, title)

    def __repr__(self) -> str:
        first = self.frame.iloc[0]
        return (
            f"Recovery({self.examples['used']} of {self.examples['all']} examples; "
            f"{first['recovery']:.2f} [{first['low']:.2f}, {first['high']:.2f}])"
        )

    def _repr_html_(self) -> str:
        return f"{escape(repr(self))}{self.frame.to_html(index=False, float_format=lambda x: f'{x:.3f}')}"
