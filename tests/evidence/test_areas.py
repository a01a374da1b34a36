"""Rankings over all k: the trapezoid rule trial by trial, the paired lead, heads to half, and what cannot be compared."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from lens_heads.evidence import AblationCurve, areas
from lens_heads.heads.conditions import Condition
from lens_heads.stats import mean_interval

KS, TRIALS = (1, 2, 8), 12
COSTS = {"lead": (1.0, 2.0, 4.0), "other": (0.2, 0.4, 3.0)}


def curve(ks: dict[str, tuple[int, ...]] | None = None, metric: str = "logprob", bare: bool = True) -> AblationCurve:
    rng = np.random.default_rng(0)
    base = (-1.0 if metric == "logprob" else 5.0) - rng.random(TRIALS)
    rows: list[dict[str, Any]] = []

    def add(condition: Condition, draw: int, values: Any) -> None:
        about = {
            "method": condition.method,
            "set": condition.set,
            "k": condition.k,
            "draw": draw,
            "heads": "",
            "task": "main",
        }
        rows.extend({**about, "trial": f"t{at}", metric: value} for at, value in enumerate(values))

    add(Condition.none(), 0, base)
    if bare:
        add(Condition.no_needle(), 0, base - 5)
    for name, costs in COSTS.items():
        for k, cost in zip((ks or {}).get(name, KS), costs, strict=False):
            add(Condition.top(name, k), 0, base - cost - 0.1 * rng.random(TRIALS))
    for k in KS:
        for draw in range(6):
            add(Condition.random(k), draw, base - 0.05 * k - 0.1 * rng.random(TRIALS))
    return AblationCurve(pd.DataFrame(rows), {})


def by_hand(found: AblationCurve, name: str) -> np.ndarray:
    """The integral of the cost over log k by a plain loop, over the range."""
    none, total = found.values(Condition.none(), "logprob").to_numpy(), np.zeros(TRIALS)
    costs = [none - found.values(Condition.top(name, k), "logprob").to_numpy() for k in KS]
    for (k, left), (after, right) in zip(
        zip(KS, costs, strict=True), zip(KS[1:], costs[1:], strict=True), strict=False
    ):
        total += math.log(after / k) * (left + right) / 2
    return total / math.log(KS[-1] / KS[0])


def test_areas_are_integrals_over_log_k_and_leads_are_paired() -> None:
    found = curve()
    table = areas(found).set_index("method")
    assert list(table.index) == ["lead", "other", "random"]
    own = {name: by_hand(found, name) for name in COSTS}
    for name, values in own.items():
        assert table.loc[name, "area"] == pytest.approx(values.mean())
    gap = own["lead"] - own["other"]
    value, low, high = mean_interval(torch.from_numpy(gap))
    got = table.loc["other", ["ahead", "ahead_low", "ahead_high"]].to_numpy(float)
    assert got == pytest.approx([float(value), float(low), float(high)], rel=1e-5)
    assert table.loc["lead", "ahead"] == 0
    assert table.loc["random", "area"] < 0.4 < table.loc["other", "area"]


def test_the_heads_that_take_half_lie_between_two_k() -> None:
    table = areas(curve()).set_index("method")
    # Half of five nats is reached between 2 heads, which cost 2.05 on average, and 8, which cost 4.05.
    assert table.loc["lead", "heads"] == pytest.approx(2 * 4 ** ((2.5 - 2.05) / 2.0), rel=0.05)
    assert areas(curve(), share=0.99)["heads"].tolist()[:2] == [math.inf, math.inf]
    assert areas(curve(), share=0.1).set_index("method").loc["lead", "heads"] == 1
    margins = areas(curve(metric="choice_margin", bare=False), metric="choice_margin").set_index("method")
    assert 2 < margins.loc["lead", "heads"] < 8


def test_what_cannot_be_compared() -> None:
    with pytest.raises(ValueError, match=r"other ran at k = \[1, 2, 9\], but lead at \[1, 2, 8\]"):
        areas(curve({"other": (1, 2, 9)}))
    with pytest.raises(ValueError, match="lead='third' was not ablated: use lead, other"):
        areas(curve(), lead="third")
    with pytest.raises(ValueError, match="metric 'contains' was not measured"):
        areas(curve(), metric="contains")
