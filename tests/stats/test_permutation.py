"""Permuting tasks inside strata: against plain loops, by hand, and how often nothing is called something."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Sequence

import numpy as np
import pytest
from scipy import stats as scipy_stats

from lens_heads.stats import Permutation, permutation_test

FORMATS = ["number", "name", "number", "place", "name", "place", "number", "place"]


def tables(seed: int, ks: int = 3, tasks: int = 8) -> tuple[np.ndarray, np.ndarray]:
    """Tasks with a level of their own, a little of it shared, and noise at each k."""
    rng = np.random.default_rng(seed)
    shared = 0.5 * rng.normal(size=tasks)
    a, b = (shared + rng.normal(size=tasks) + 0.3 * rng.normal(size=(ks, tasks)) for _ in range(2))
    return a, b


def fitted_out(values: np.ndarray, strata: Sequence[str], covariates: np.ndarray) -> np.ndarray:
    """Residuals, row by row, of least squares on a dummy per stratum and on the covariates."""
    dummies = [[float(label == each) for label in strata] for each in dict.fromkeys(strata)]
    rows = []
    for k, row in enumerate(values):
        design = np.array([*dummies, *(covariate[k] for covariate in covariates)]).T
        rows.append(row - design @ np.linalg.lstsq(design, row, rcond=None)[0])
    return np.array(rows)


def looped(
    a: np.ndarray, b: np.ndarray, strata: Sequence[str], of_a: np.ndarray, of_b: np.ndarray
) -> tuple[float, float, float]:
    """(r, p, two-sided p) from every order of all tasks that keeps the strata, each fitted anew and correlated by scipy."""
    x, y = fitted_out(a, strata, of_a), fitted_out(b, strata, of_b)
    r = float(scipy_stats.pearsonr(x.ravel(), y.ravel()).statistic)
    found = []
    for order in itertools.permutations(range(len(strata))):
        if [strata[task] for task in order] == list(strata):
            moved = fitted_out(y[:, list(order)], strata, of_b)
            found.append(float(scipy_stats.pearsonr(x.ravel(), moved.ravel()).statistic))
    p = [np.mean([value >= r - 1e-9 for value in found]), np.mean([abs(value) >= abs(r) - 1e-9 for value in found])]
    return r, float(p[0]), float(p[1])


# The numbers


@pytest.mark.parametrize("covariates", [0, 1, 2])
@pytest.mark.parametrize("seed", range(2))
def test_r_and_p_are_a_plain_loop(seed: int, covariates: int) -> None:
    a, b = tables(seed)
    of_a, of_b = np.random.default_rng(seed + 50).normal(size=(2, covariates, 3, 8))
    found = permutation_test(a, b, strata=FORMATS, covariates=(of_a, of_b) if covariates else None)
    assert (found.r, found.p, found.p_two_sided) == pytest.approx(looped(a, b, FORMATS, of_a, of_b))
    assert (found.arrangements, found.exact, found.smallest_p) == (72, True, 1 / 72)
    assert found.r2 == found.r**2


def test_without_strata_one_row_is_scipys_permutation_test() -> None:
    a, b = (table[0, :6] for table in tables(3))

    def r(moved: np.ndarray) -> float:
        return np.corrcoef(a, moved)[0, 1]

    found = permutation_test(a, b)
    theirs = scipy_stats.permutation_test(
        (b,), r, permutation_type="pairings", alternative="greater", n_resamples=np.inf
    )
    assert (found.r, found.p) == pytest.approx((theirs.statistic, theirs.pvalue))
    assert found.p_two_sided == np.mean(np.abs(theirs.null_distribution) >= abs(found.r) - 1e-9)


def test_r_is_signed() -> None:
    a, _ = tables(4)
    same, opposite = permutation_test(a, a, strata=FORMATS), permutation_test(a, -a, strata=FORMATS)
    assert (same.r, same.p, same.p_two_sided) == pytest.approx((1, 1 / 72, 1 / 72))
    assert (opposite.r, opposite.p, opposite.p_two_sided) == pytest.approx((-1, 1, 1 / 72))


@pytest.mark.slow
def test_a_covariate_is_taken_out_at_every_k_on_its_own() -> None:
    """What both share is answer length, whose weight grows with k. One slope for all k would leave most of it."""
    rng, length, weight = np.random.default_rng(5), np.arange(12.0), np.array([[1.0], [3.0], [9.0]])
    found, without = [], []
    for _ in range(100):
        a, b = weight * length + rng.normal(size=(2, 3, 12))
        without.append(permutation_test(a, b, n=200).p)
        found.append(permutation_test(a, b, covariates=(length[None], length[None]), n=200))
    assert max(without) <= 0.05
    assert np.mean([each.p <= 0.05 for each in found]) <= 0.1
    assert abs(np.mean([each.r for each in found])) < 0.06


def test_many_arrangements_are_sampled() -> None:
    a, b = tables(6, tasks=9)
    found = permutation_test(a, b)
    assert (found.arrangements, found.exact, found.smallest_p) == (10_000, False, 1 / 10_001)
    strata = list("aaaaabbbb")
    exact, sampled = permutation_test(a, b, strata=strata, n=2880), permutation_test(a, b, strata=strata, n=2000)
    assert (exact.arrangements, exact.exact) == (2880, True)
    assert (sampled.arrangements, sampled.exact, sampled.smallest_p) == (2000, False, 1 / 2001)
    assert sampled.r == exact.r
    assert sampled.p == pytest.approx(exact.p, abs=0.03)
    assert sampled.p_two_sided == pytest.approx(exact.p_two_sided, abs=0.03)
    assert permutation_test(a, a, n=99).p == pytest.approx(1 / 100), "never zero"
    assert permutation_test(a, b, n=50, seed=1) != permutation_test(a, b, n=50, seed=2)


# What cannot be told


def test_too_few_arrangements_cannot_tell_even_a_perfect_agreement() -> None:
    a, _ = tables(7, tasks=6)
    pairs = permutation_test(a, a, strata=list("aabbcc"))
    assert (pairs.r, pairs.p, pairs.smallest_p) == pytest.approx((1, 1 / 8, 1 / 8))
    assert not pairs.can_tell()
    assert pairs.verdict() == "cannot be told"
    assert pairs.verdict(alpha=0.2) == "correlated"
    assert permutation_test(a, a, strata=list("aaabbb")).verdict() == "correlated"
    assert Permutation(0.9, 0.06, 0.06, 0.01, 100, True).verdict() == "cannot be told"


def test_nothing_left_has_no_r() -> None:
    a, b = tables(8)
    for found in (
        permutation_test(a, b, strata=range(8)),
        permutation_test(np.broadcast_to(np.arange(3.0)[:, None], (3, 8)), b),
        permutation_test(a, b, covariates=(a[None], b[None])),
    ):
        assert math.isnan(found.r)
        assert math.isnan(found.p)
        assert found.verdict(alpha=0.9) == "cannot be told"


def test_covariates_that_leave_one_degree_of_freedom_are_not_judged() -> None:
    """8 tasks in 3 strata: three covariates leave 2, four leave 1, with which every r is 1 or -1."""
    a, b = tables(9)
    many = np.random.default_rng(9).normal(size=(4, 8))
    assert math.isfinite(permutation_test(a, b, strata=FORMATS, covariates=(many[:3], many[:3])).r)
    assert math.isnan(permutation_test(a, b, strata=FORMATS, covariates=(many, many[:1])).r)
    assert math.isnan(permutation_test(a, b, strata=FORMATS, covariates=(many[:1], many)).p)


# Something and nothing


def called(strata: Sequence[int], studies: int, covariates: int = 0, alike: float = 1.0) -> tuple[float, float]:
    """How often p <= .05 with and without strata and covariates, for two models that share nothing else.

    Formats differ by 3 standard deviations, alike in both models; so do covariates, whose values correlate by `alike`.
    """
    rng, tasks, found = np.random.default_rng(len(strata) + covariates), len(strata), []
    for seed in range(studies):
        level = 3 * rng.normal(size=max(strata) + 1)[list(strata)]
        first, own = rng.normal(size=(2, covariates, tasks))
        second = alike * first + math.sqrt(1 - alike**2) * own
        sides = [
            level + 2 * each.sum(0) + rng.normal(size=tasks) + 0.3 * rng.normal(size=(2, tasks))
            for each in (first, second)
        ]
        taken = (first, second) if covariates else None
        p = permutation_test(*sides, strata=strata, covariates=taken, n=300, seed=seed).p
        found.append((p, permutation_test(*sides, n=200, seed=seed).p))
    with_strata, without = (np.array(found) <= 0.05).mean(0)
    return float(with_strata), float(without)


@pytest.mark.slow
@pytest.mark.parametrize("strata", [(0, 0, 0, 1, 1, 1, 2, 2), (0, 0, 0, 1, 1, 1, 2, 2, 2)])
def test_answer_format_alone_is_not_called_agreement(strata: tuple[int, ...]) -> None:
    with_strata, without = called(strata, 2000)
    assert 0.02 <= with_strata <= 0.06
    assert without > 0.3, "which it is without strata"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("strata", "covariates", "alike"), [((0,) * 12, 2, 1.0), ((0,) * 12, 1, 0.8), ((0, 0, 0, 1, 1, 1, 2, 2, 2), 2, 1.0)]
)
def test_covariates_alone_are_not_called_agreement(strata: tuple[int, ...], covariates: int, alike: float) -> None:
    with_covariates, without = called(strata, 600, covariates, alike)
    assert with_covariates <= 0.07
    assert without > 0.3


def test_an_agreement_within_formats_is_found() -> None:
    rng, strata = np.random.default_rng(11), [0, 0, 0, 0, 1, 1, 1, 1, 2, 2]
    found = []
    for _ in range(100):
        own = rng.normal(size=10) + 3 * rng.normal(size=3)[strata]
        a, b = (own + 0.3 * rng.normal(size=(2, 10)) for _ in range(2))
        found.append(permutation_test(a, b, strata=strata).verdict() == "correlated")
    assert np.mean(found) > 0.9


# What is refused


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((np.zeros((2, 5)), np.zeros((3, 5))), "a of shape [2, 5], b of shape [3, 5]: must be the same"),
        ((np.zeros(1), np.zeros(1)), "with two tasks or more"),
        ((np.zeros((2, 2, 5)), np.zeros(5)), "a of shape [2, 2, 5]: must be [task] or [k, task]"),
        ((np.array([0.0, np.nan, 1.0]), np.zeros(3)), "a is nan at [1]: must be finite"),
        ((np.zeros(3), np.zeros(3), {"strata": "ab"}), "strata has 2 labels for 3 tasks: must have one per task"),
        (
            (np.zeros(3), np.zeros(3), {"covariates": (np.zeros((1, 3)), np.zeros((1, 4)))}),
            "covariates of b have shape [1, 4]: must be [covariate, 3] or [covariate, 1, 3]",
        ),
        ((np.zeros(3), np.zeros(3), {"n": 0}), "n=0: must be a positive integer, or None"),
        ((np.zeros(3), np.zeros(3), {"seed": -1}), "seed=-1: must be a non-negative integer"),
    ],
)
def test_what_cannot_be_permuted_is_refused(arguments: tuple, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        permutation_test(*arguments[:2], **dict(*arguments[2:]))
