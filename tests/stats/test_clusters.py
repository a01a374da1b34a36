"""Clusters of trials: intraclass correlation and effective numbers against published examples, loops and simulations."""

from __future__ import annotations

import math

import numpy as np
import pytest

from lens_heads import stats
from lens_heads.stats.clusters import (
    both,
    cluster_values,
    cluster_variance,
    fewest_clusters,
    partitions,
    whole_clusters,
)

SHROUT_FLEISS = np.array([[9, 2, 5, 8], [6, 1, 3, 2], [8, 4, 6, 8], [7, 1, 2, 6], [10, 5, 6, 9], [6, 2, 4, 7]], float)
"""Six targets by four judges (Shrout and Fleiss 1979, Table 2)."""


def test_published_intraclass_correlations() -> None:
    assert stats.icc(SHROUT_FLEISS.ravel(), np.repeat(range(6), 4)) == pytest.approx(0.17, abs=0.005)
    values = np.array([2, 4, 4, 6, 4, 5, 8, 8, 5, 8, 9, 9.0])  # R's superb, ShroutFleissICC1.
    assert stats.icc(values, np.repeat([1, 2, 3], 4)) == pytest.approx(0.434343434)


def test_the_intraclass_correlation_is_an_analysis_of_variance() -> None:
    rng, labels = np.random.default_rng(0), [*"aaaabbbccddddde"]
    values = rng.normal(size=15) + np.array([ord(label) % 3 for label in labels])
    groups = [np.array([v for v, own in zip(values, labels, strict=True) if own == name]) for name in "abcde"]
    between = sum(len(g) * (g.mean() - values.mean()) ** 2 for g in groups) / 4
    within = sum(((g - g.mean()) ** 2).sum() for g in groups) / 10
    size = (15 - sum(len(g) ** 2 for g in groups) / 15) / 4
    assert stats.icc(values, labels) == pytest.approx((between - within) / (between + (size - 1) * within))


def test_the_intraclass_correlation_finds_what_was_planted() -> None:
    rng, labels = np.random.default_rng(1), np.repeat(np.arange(2000), 3)
    values = math.sqrt(0.3) * rng.normal(size=2000)[labels] + math.sqrt(0.7) * rng.normal(size=6000)
    assert stats.icc(values, labels) == pytest.approx(0.3, abs=0.03)
    assert stats.icc(rng.normal(size=6000), labels) == pytest.approx(0, abs=0.03)


def test_what_has_no_intraclass_correlation() -> None:
    values = np.array([1.0, 2, 3, 4])
    for labels in ("abcd", "aaaa"):
        assert math.isnan(stats.icc(values, [*labels]))
    assert math.isnan(stats.icc(np.ones(4), [*"aabb"]))
    assert stats.icc(values, [*"abab"]) < 0


@pytest.mark.slow
def test_effective_trials() -> None:
    rng = np.random.default_rng(2)
    values, names = rng.normal(size=10), np.arange(40) // 4
    assert stats.effective_n(values, None) == 10
    assert stats.effective_n(np.ones(10), names[:10]) == 10
    same = values[names]
    assert stats.effective_n(same, names) == pytest.approx(10 * 9 / 10 * 40 / 39)
    assert stats.effective_n(np.tile([-1.0, 1.0], 20), names) == 40, (
        "clusters that balance do not tell more than trials"
    )
    labels = np.repeat(np.arange(3000), 4)
    planted = math.sqrt(0.3) * rng.normal(size=3000)[labels] + math.sqrt(0.7) * rng.normal(size=12000)
    assert stats.effective_n(planted, labels) == pytest.approx(12000 / (1 + 3 * 0.3), rel=0.05)


def test_the_variance_of_clusters_that_cross_is_cameron_gelbach_and_millers() -> None:
    rng, names, frames = np.random.default_rng(3), np.arange(60) % 10, np.arange(60) // 6
    values = rng.normal(size=10)[names] + 2 * rng.normal(size=10)[frames] + 0.3 * rng.normal(size=60)

    def sandwich(labels: np.ndarray) -> float:
        sums = np.array([(values - values.mean())[labels == label].sum() for label in np.unique(labels)])
        return float(len(sums) / (len(sums) - 1) * (sums**2).sum() / 60**2)

    each = names * 10 + frames
    expected = sandwich(names) + sandwich(frames) - sandwich(each)
    assert expected > max(sandwich(names), sandwich(frames))
    assert cluster_variance(values, [names, frames]) == pytest.approx(expected)
    assert cluster_variance(values, names) == pytest.approx(sandwich(names))
    assert cluster_variance(values, None) == pytest.approx(values.var(ddof=1) / 60)


def test_cluster_values_keep_the_mean() -> None:
    values = np.random.default_rng(4).normal(size=(2, 7, 3))
    cluster = np.array([0, 0, 0, 1, 2, 2, 3])
    found = cluster_values(values, cluster)
    assert found.shape == (2, 4, 3)
    np.testing.assert_allclose(found.mean((0, 1)), values.mean((0, 1)))
    np.testing.assert_allclose(cluster_values(values, np.arange(7)), values)
    equal = cluster_values(values[:, :6], np.array([0, 0, 1, 1, 2, 2]))
    np.testing.assert_allclose(equal, values[:, :6].reshape(2, 3, 2, 3).mean(2))
    fewer = whole_clusters(values[0], [cluster, np.array([0, 0, 0, 0, 1, 1, 1])])
    np.testing.assert_allclose(fewer, cluster_values(values[:1], np.array([0, 0, 0, 0, 1, 1, 1]))[0])


def test_labels_are_numbered() -> None:
    assert partitions(None, 3)[0].tolist() == partitions((), 3)[0].tolist() == [0, 1, 2]
    assert partitions(["b", "a", "b"], 3)[0].tolist() == [1, 0, 1]
    alone = partitions(["", "x", "", "x"], 4)[0]
    assert len(set(alone)) == 3
    assert alone[1] == alone[3]
    assert [found.tolist() for found in partitions([["u", "v"], [7, 7]], 2)] == [[0, 1], [0, 0]]
    assert both(np.array([0, 0, 1, 1]), np.array([0, 1, 0, 0])).tolist() == [0, 1, 2, 2]
    assert [fewest_clusters(groups, 4) for groups in (None, [*"aabb"], [[*"aabb"], [*"abcd"]], ["", "a", "", "a"])] == [
        4,
        2,
        2,
        3,
    ]
    with pytest.raises(ValueError, match="2 labels for 3 trials"):
        partitions(["a", "b"], 3)
