"""Planted heads among 1,024, with the noise of 100 questions: what masks find, and what as many single ablations find.

A smaller version of `benchmarks/recovery.py`, whose functions these are; the whole table is in its results.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from benchmarks.recovery import RESPONSES, by_masks, measured, one_by_one, planted, share_found

SEEDS = range(1000, 1010)  # None of the benchmark's.


def mean_share(n_masks: int, sparsity: float, response: str, **options: Any) -> float:
    return float(np.mean([by_masks(seed, n_masks, sparsity, response, **options) for seed in SEEDS]))


def one_shot(n: int, response: str) -> float:
    return float(np.mean([one_by_one(seed, n, response) for seed in SEEDS]))


@pytest.mark.slow
@pytest.mark.parametrize("response", RESPONSES)
def test_four_hundred_masks_of_two_percent_find_nearly_all(response: str) -> None:
    found = mean_share(400, 0.02, response)
    assert found >= 0.9
    assert found >= one_shot(400, response) + 0.4


@pytest.mark.slow
@pytest.mark.parametrize("response", RESPONSES)
def test_a_hundred_masks_of_one_percent_are_too_few(response: str) -> None:
    assert mean_share(100, 0.01, response) <= 0.5


@pytest.mark.slow
def test_a_hundred_masks_of_five_percent_beat_ablating_every_head() -> None:
    found = mean_share(100, 0.05, "saturating")
    assert found >= 0.85
    assert found >= one_shot(1024, "saturating") + 0.1


@pytest.mark.slow
def test_layer_balanced_masks_do_as_well() -> None:
    assert mean_share(200, 0.05, "saturating", design="layer_balanced") >= 0.9


@pytest.mark.slow
@pytest.mark.parametrize("method", ["lasso", "script"])
def test_a_flipped_response_finds_none(method: str) -> None:
    """The largest coefficients, which the authors' script prints as the most important, are not the task's heads."""
    assert mean_share(200, 0.05, "linear", method=method) >= 0.9
    assert mean_share(200, 0.05, "linear", method=method, sign=-1) == 0


def test_the_bench_itself() -> None:
    """The planted damage, its noise and the count are what they are said to be."""
    costs = planted(7)
    assert ((costs[costs > 0] >= 0.1) & (costs[costs > 0] <= 0.3)).all()
    assert (len(costs), (costs > 0).sum()) == (1024, 5)
    nothing, everything = np.zeros((500, 1024), dtype=bool), np.ones((500, 1024), dtype=bool)
    assert measured(nothing, costs, "linear", 0).mean() == pytest.approx(0.8, abs=0.01)
    assert measured(nothing, costs, "linear", 0).std() == pytest.approx(0.04, rel=0.1)
    total = costs.sum()
    assert measured(everything, costs, "linear", 0).mean() == pytest.approx(max(0.8 - total, 0), abs=0.01)
    assert measured(everything, costs, "saturating", 0).mean() == pytest.approx(0.8 * np.exp(-total / 0.8), abs=0.01)
    assert share_found(-costs, costs) == 1
    assert share_found(costs, costs) == 0
    assert share_found(np.where(costs == costs.max(), -costs, 0), costs) == pytest.approx(0.2)
    assert share_found(np.zeros(1024), costs) == 0, "heads that are level with all others are not found"
