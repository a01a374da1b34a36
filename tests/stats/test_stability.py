"""Stability of the top k: by enumeration, against chance, and on scores whose true stability is simulated."""

from __future__ import annotations

import itertools
import math
import re
from typing import Any

import numpy as np
import pytest
from scipy import stats as scipy_stats

from lens_heads.stats import top_k_stability


def jaccard(first: np.ndarray, second: np.ndarray, k: int) -> float:
    a, b = (set(np.argsort(-scores)[:k].tolist()) for scores in (first, second))
    return len(a & b) / len(a | b)


def true_jaccard(heads: np.ndarray, noise: float, k: int, trials: int, seed: int) -> float:
    """Mean Jaccard of the top k of two independent sets of trials, with the true scores known."""
    means = heads + noise / math.sqrt(trials) * np.random.default_rng(seed).normal(size=(2, 300, len(heads)))
    return float(np.mean([jaccard(first, second, k) for first, second in zip(*means, strict=True)]))


def test_it_is_the_mean_over_all_halvings() -> None:
    rng = np.random.default_rng(0)
    values = rng.normal(size=8) + rng.normal(size=(6, 8))
    exact = []
    for half in itertools.combinations(range(6), 3):
        rest = [trial for trial in range(6) if trial not in half]
        exact.append(jaccard(values[list(half)].mean(0), values[rest].mean(0), 3))
    found = top_k_stability(values, k=3, n_splits=4000)
    assert found.jaccard == pytest.approx(np.mean(exact), abs=0.015)
    assert (found.k, found.heads, found.trials, list(found.curve)) == (3, 8, 6, [3])
    assert found.curve[3] == found.jaccard


def test_two_random_sets_are_counted_by_enumeration() -> None:
    sets = [set(each) for each in itertools.combinations(range(7), 3)]
    by_chance = [len(a & b) / len(a | b) for a in sets for b in sets]
    found = top_k_stability(np.random.default_rng(0).normal(size=(4, 7)), k=3)
    assert found.expected == pytest.approx(np.mean(by_chance))
    low, high = found.chance
    assert np.mean([each < low for each in by_chance]) <= 0.025
    assert np.mean([each > high for each in by_chance]) <= 0.025


def test_subsets_of_the_curve_do_not_overlap() -> None:
    """Every trial puts another pair of heads on top: disjoint subsets agree on none, whatever their size."""
    values = np.repeat(np.eye(16), 2, axis=1)
    found = top_k_stability(values, k=2, n_splits=50)
    assert list(found.curve) == [4, 5, 6, 7, 8]
    values[:, :2] = 2.0
    always = top_k_stability(values, k=2, n_splits=50)
    assert set(always.curve.values()) == {1.0}
    assert always.needed == 4, "the smallest subset suffices"
    assert max(found.curve.values()) < 0.15


def test_heads_without_any_score_are_no_more_stable_than_chance() -> None:
    """Ties are not broken by the order of the heads, which would look like perfect agreement."""
    found = top_k_stability(np.zeros((20, 50)), k=5, n_splits=400)
    assert found.jaccard == pytest.approx(found.expected, abs=0.01)
    assert found.chance[0] <= found.jaccard <= found.chance[1]


def test_noise_is_not_extrapolated() -> None:
    found = [
        top_k_stability(np.random.default_rng(seed).normal(size=(40, 144)), k=5, n_splits=50, seed=seed)
        for seed in range(30)
    ]
    assert np.mean([each.jaccard for each in found]) == pytest.approx(found[0].expected, abs=0.01)
    assert np.mean([math.isnan(each.needed) for each in found]) >= 0.9


@pytest.mark.slow
@pytest.mark.parametrize(
    ("family", "heads", "k", "noise", "trials"),
    [
        (scipy_stats.norm(), 144, 5, 2.0, 60),
        (scipy_stats.norm(), 270, 10, 3.0, 100),
        (scipy_stats.t(3), 512, 20, 5.0, 50),
        (scipy_stats.expon(), 144, 10, 3.0, 40),
    ],
    ids=["normal", "far", "heavy tails", "skewed"],
)
def test_the_number_of_trials_needed_gives_the_target(
    family: Any, heads: int, k: int, noise: float, trials: int
) -> None:
    """What the curve promises is simulated: with the number it names, new sets of trials agree as much as it says."""
    reached, needed = [], []
    for seed in range(12):
        rng = np.random.default_rng(seed)
        scores = family.rvs(size=heads, random_state=rng)
        found = top_k_stability(scores + noise * rng.normal(size=(trials, heads)), k=k, n_splits=50, seed=seed)
        needed.append(found.needed)
        reached.append(true_jaccard(scores, noise, k, int(found.needed), seed))
    assert np.median(reached) == pytest.approx(0.8, abs=0.05)
    assert min(reached) > 0.6
    assert np.median(needed) > trials, "beyond what was measured"


def test_more_trials_are_needed_for_more() -> None:
    rng = np.random.default_rng(1)
    values = rng.normal(size=100) + rng.normal(size=(60, 100))
    wanted = [top_k_stability(values, k=5, target=target).needed for target in (0.5, 0.8, 0.9)]
    assert wanted[0] < wanted[1] < wanted[2]


def test_what_has_no_number_has_none() -> None:
    rng = np.random.default_rng(2)
    single = top_k_stability(rng.normal(size=(1, 9)), k=3)
    assert math.isnan(single.jaccard)
    assert math.isnan(single.needed)
    assert single.curve == {}
    pair = top_k_stability(rng.normal(size=(5, 9)), k=3)
    assert list(pair.curve) == [2]
    assert math.isnan(pair.needed), "a curve of one size"
    everyone = top_k_stability(rng.normal(size=(20, 9)), k=9)
    assert (everyone.jaccard, everyone.expected) == (1, pytest.approx(1))
    assert math.isnan(everyone.needed), "chance reaches it"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((np.zeros(5), 2), "per_trial of shape [5]: must be [trial, head]"),
        ((np.zeros((5, 4)), 5), "k=5: must be an integer from 1 to 4"),
        ((np.array([[0.0, np.nan]]), 1), "per_trial is nan at [0, 1]: must be finite"),
        ((np.zeros((5, 4)), 2, {"n_splits": 0}), "n_splits=0: must be a positive integer"),
        ((np.zeros((5, 4)), 2, {"seed": -1}), "seed=-1: must be a non-negative integer"),
        ((np.zeros((5, 4)), 2, {"target": 1}), "target=1: must lie strictly between 0 and 1, e.g. 0.8"),
    ],
)
def test_what_is_no_table_of_scores_is_refused(arguments: tuple, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        top_k_stability(arguments[0], k=arguments[1], **dict(*arguments[2:]))
