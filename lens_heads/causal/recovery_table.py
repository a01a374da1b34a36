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

from lens_heads.stats import bootstrap_ratio

SMALL = 0.5
"""Nats: under this a denominator says that ablation cost nothing, and a ratio with it says nothing."""


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
        """From what `recovery` stored per example. ValueError when no example is right clean and wrong ablated."""
        right = [record for _, record in records if record["right_clean"]]
        used = [(id, r) for id, r in records if not flipped or (r["right_clean"] and not r["right_ablated"])]
        counts = {"all": len(records), "used": len(used)}
        if flipped:
            counts |= {"right_clean": len(right), "right_ablated": sum(bool(r["right_ablated"]) for _, r in records)}
        if not used:
            raise ValueError(
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
        for (name, fair), part in self.per_example.groupby(["set", "fair"], sort=False):
            cost = part.pivot(index="draw", columns="example", values="cost").to_numpy()
            gain = (
                cost
                - part.assign(left=part["lp_clean"] - part["lp_patched"])
                .pivot(index="draw", columns="example", values="left")
                .to_numpy()
            )
            ratio, low, high = bootstrap_ratio(torch.tensor(gain), torch.tensor(cost))
            rows.append(
                {"set": name, "fair": fair, "recovery": ratio, "low": low, "high": high}
                | {"median": float(part["recovery"].replace([np.inf, -np.inf], np.nan).median())}
                | {"undefined": float((part["cost"] < SMALL).mean()), "cost": float(part["cost"].mean())}
                | {"draws": len(cost), "examples": cost.shape[1]}
            )
        return pd.DataFrame(rows)

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
