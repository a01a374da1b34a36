"""Intervals of right answers: scipy's Wilson, Newcombe's published differences, and coverage."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats as scipy_stats

from lens_heads import stats
from lens_heads.stats.shares import are_shares


def pairs(*counts: int) -> tuple[np.ndarray, np.ndarray]:
    """Right under both, the first alone, the second alone, neither."""
    return np.repeat([1.0, 1.0, 0.0, 0.0], counts), np.repeat([1.0, 0.0, 1.0, 0.0], counts)


@pytest.mark.parametrize("level", [0.8, 0.95])
@pytest.mark.parametrize(("right", "n"), [(0, 5), (5, 5), (1, 12), (7, 20), (93, 100)])
def test_a_share_has_wilsons_interval(right: int, n: int, level: float) -> None:
    expected = scipy_stats.binomtest(right, n).proportion_ci(level, "wilson")
    found = stats.share_interval(np.repeat([1, 0], [right, n - right]), level=level)
    assert found == pytest.approx((right / n, expected.low, expected.high), abs=1e-12)
    assert stats.wilson(right / n, n, level=level) == pytest.approx(found)


def test_clusters_reduce_the_number_of_trials() -> None:
    hits, names = np.repeat([1.0, 0, 1, 1, 0, 1, 0, 1], 5), np.repeat(np.arange(8), 5)
    t = scipy_stats.t.ppf(0.975, [39, 7])
    n = stats.effective_n(hits, names) * (t[0] / t[1]) ** 2
    assert 4 < n < 8
    assert stats.share_interval(hits, groups=names) == pytest.approx(stats.wilson(hits.mean(), n))
    wide, narrow = stats.share_interval(hits, groups=names), stats.share_interval(hits)
    assert wide.half_width > 1.8 * narrow.half_width


def test_clusters_of_one_trial_change_nothing() -> None:
    hits = np.repeat([1.0, 0], 8)
    assert stats.share_interval(hits, groups=np.arange(16)) == pytest.approx(stats.share_interval(hits))


@pytest.mark.slow
def test_clustered_shares_are_covered() -> None:
    rng, names, held = np.random.default_rng(0), np.repeat(np.arange(14), 7), 0
    for _ in range(1000):
        chance = rng.beta(0.7 * 7 / 3, 0.3 * 7 / 3, size=14)  # Intraclass correlation .3.
        found = stats.share_interval((rng.random(98) < chance[names]).astype(float), groups=names)
        held += found.low <= 0.7 <= found.high
    assert held / 1000 >= 0.92


@pytest.mark.parametrize(
    ("counts", "low", "high"),
    [
        ((36, 12, 2, 0), 0.0569, 0.3404),  # Newcombe 1998, Table II.
        ((36, 14, 0, 0), 0.1528, 0.4167),
        ((14, 5, 0, 22), 0.011, 0.226),  # Altman and others, "Statistics with Confidence", 2000, Table 6.2.
        ((1, 1, 7, 12), -0.507, -0.026),  # Fagerland, Lydersen and Laake 2014: airway hyper-responsiveness.
    ],
)
def test_published_paired_differences(counts: tuple[int, ...], low: float, high: float) -> None:
    """Method 10: phi with a continuity correction where it is positive."""
    found = stats.paired_share_interval(*pairs(*counts))
    digits = 4 if counts[0] == 36 else 3
    assert (round(found.low, digits), round(found.high, digits)) == (low, high) or found[1:] == pytest.approx(
        (low, high), abs=6e-4
    )


@pytest.mark.parametrize("counts", [(14, 5, 0, 22), (36, 12, 2, 0), (0, 6, 3, 0), (9, 0, 0, 3), (12, 0, 0, 0)])
def test_paired_differences_are_the_formula(counts: tuple[int, ...]) -> None:
    a, b, c, d = counts
    n = sum(counts)
    p, q = (a + b) / n, (a + c) / n
    (l1, u1), (l2, u2) = (scipy_stats.binomtest(x, n).proportion_ci(method="wilson") for x in (a + b, a + c))
    product = (a + b) * (c + d) * (a + c) * (b + d)
    top = a * d - b * c
    top = max(top - n / 2, 0) if top > 0 else top
    phi = top / math.sqrt(product) if product else 0.0
    below = math.sqrt((p - l1) ** 2 - 2 * phi * (p - l1) * (u2 - q) + (u2 - q) ** 2)
    above = math.sqrt((u1 - p) ** 2 - 2 * phi * (u1 - p) * (q - l2) + (q - l2) ** 2)
    assert stats.paired_share_interval(*pairs(*counts)) == pytest.approx((p - q, p - q - below, p - q + above))


@pytest.mark.slow
@pytest.mark.parametrize("cells", [(0.5, 0.2, 0.1, 0.2), (0.85, 0.1, 0.02, 0.03), (0.1, 0.3, 0.3, 0.3)])
@pytest.mark.parametrize("n", [12, 30])
def test_paired_differences_are_covered(cells: tuple[float, ...], n: int) -> None:
    counts, times = np.unique(np.random.default_rng(n).multinomial(n, cells, size=1500), axis=0, return_counts=True)
    found = [stats.paired_share_interval(*pairs(*row)) for row in counts]
    held = [one.low <= cells[1] - cells[2] <= one.high for one in found]
    assert np.average(held, weights=times) >= 0.93


@pytest.mark.slow
def test_paired_differences_of_clusters_are_wider_and_covered() -> None:
    rng, names, held, alone = np.random.default_rng(3), np.repeat(np.arange(14), 7), 0, 0
    for _ in range(600):
        lost = rng.beta(0.5, 1.5, size=14)[names]  # The chance that a name's right answers are lost; mean 1/4.
        first = np.ones(98)
        second = (rng.random(98) >= lost).astype(float)
        found, narrow = (
            stats.paired_share_interval(first, second, groups=names),
            stats.paired_share_interval(first, second),
        )
        held += found.low <= 0.25 <= found.high
        alone += narrow.low <= 0.25 <= narrow.high
    assert held / 600 >= 0.92
    assert alone / 600 < 0.85


def test_nothing_lost_is_not_certain() -> None:
    found = stats.paired_share_interval(np.ones(12), np.ones(12))
    low = stats.wilson(1.0, 12).low
    assert found == pytest.approx((0, -(1 - low), 1 - low))


def test_a_relative_loss_is_a_ratio_and_never_narrower_than_the_loss() -> None:
    before, after = pairs(6, 4, 0, 10)
    found = stats.relative_loss_interval(before, after)
    assert found.value == pytest.approx(0.4)
    _, low, high = stats.wilson(0.4, 10)
    assert found.low <= low
    assert found.high >= high
    none = stats.relative_loss_interval(np.ones(12), np.ones(12))
    assert none == pytest.approx((0, 0, stats.wilson(0.0, 12).high))
    assert math.isnan(stats.relative_loss_interval(np.zeros(12), np.zeros(12)).value)


@pytest.mark.slow
def test_a_relative_loss_is_covered() -> None:
    rng, held = np.random.default_rng(5), []
    for _ in range(500):
        before = (rng.random(30) < 0.8).astype(float)
        after = before * (rng.random(30) < 0.6)
        found = stats.relative_loss_interval(before, after)
        held.append(found.low <= 0.4 <= found.high)
    assert np.mean(held) >= 0.93


def test_there_is_no_interval_below_five_trials_or_clusters() -> None:
    four, twenty, names = np.array([1.0, 0, 1, 1]), np.tile([1.0, 0.0], 10), np.arange(20) % 4
    found = [
        stats.share_interval(four),
        stats.share_interval(twenty, groups=names),
        stats.paired_share_interval(four, four[::-1]),
        stats.paired_share_interval(twenty, twenty[::-1], groups=names),
        stats.relative_loss_interval(four, four),
        stats.relative_loss_interval(twenty, twenty, groups=names),
    ]
    for interval in found:
        assert not math.isnan(interval.value)
        assert math.isnan(interval.low)
        assert math.isnan(interval.high)


def test_what_is_a_share() -> None:
    assert are_shares(np.array([0.0, 1.0]), np.ones((2, 2)))
    assert not are_shares(np.array([0.0, 1.0]), np.array([0.5]))
    for hits in (np.array([0.5, 1, 1, 1, 1]), np.array([])):
        with pytest.raises(ValueError, match="right answers must be 0 or 1, and at least one"):
            stats.share_interval(hits)
    with pytest.raises(ValueError, match="level=2"):
        stats.share_interval(np.ones(6), level=2)
