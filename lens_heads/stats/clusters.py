"""Trials that belong together (one needle, name, company or template): clusters, their correlation, and effective numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
from jaxtyping import Float, Int

from lens_heads.runs import checks
from lens_heads.runs.typed import typed

Labels: TypeAlias = Sequence[str] | Sequence[int] | np.ndarray
"""One label per trial; trials with the same label belong together."""
Groups: TypeAlias = Labels | Sequence[Labels] | None
"""None (every trial stands alone), labels, or two lists of labels where two kinds of clusters cross."""


def partitions(groups: Groups, trials: int) -> list[Int[np.ndarray, " trial"]]:
    """The clusterings: one list of cluster numbers per kind of cluster, a single one without groups.

    An empty label stands for a trial of its own. ValueError unless there is a label for every trial.
    """
    if groups is None or len(groups) == 0:
        return [np.arange(trials)]
    groups = (
        np.asarray(groups) if hasattr(groups, "index") and hasattr(groups, "iloc") else groups
    )  # Of pandas, by place.
    crossed = not isinstance(groups[0], str | int | float | np.generic)
    found = [_numbers(labels, trials) for labels in (groups if crossed else [groups])]
    if len(found) > 2:
        raise ValueError(f"groups: {len(found)} kinds of clusters: use at most two that cross")
    return found


@typed
def fewest_clusters(groups: Groups, trials: int) -> int:
    """The number of clusters, of the kind with fewer; the number of trials without groups."""
    return min(len(np.unique(cluster)) for cluster in partitions(groups, trials))


def _numbers(labels: Any, trials: int) -> Int[np.ndarray, " trial"]:
    if len(labels) != trials:
        raise ValueError(f"groups: {len(labels)} labels for {trials} trials: give one label per trial")
    own = [label if label != "" else f"\0{i}" for i, label in enumerate(labels)]
    return np.unique(np.array(own, dtype=object).astype(str), return_inverse=True)[1]


def both(first: Int[np.ndarray, " trial"], second: Int[np.ndarray, " trial"]) -> Int[np.ndarray, " trial"]:
    """The clusters in which two clusterings intersect."""
    return np.unique(np.stack([first, second]), axis=1, return_inverse=True)[1].ravel()


def cluster_values(
    values: Float[np.ndarray, "draw trial item"], cluster: Int[np.ndarray, " trial"]
) -> Float[np.ndarray, "draw cluster item"]:
    """One value per cluster, with the same mean: m + (clusters / trials) * the sum of the cluster's deviations from m.

    Their variance over the number of clusters is the linearized (sandwich) variance of the mean of all trials.
    """
    counts = np.bincount(cluster)
    if len(counts) == values.shape[1]:
        return values
    mean = values.mean((0, 1))
    member = (cluster == np.arange(len(counts))[:, None]).astype(float)
    return mean + np.einsum("ct,dti->dci", member, values - mean) * (len(counts) / values.shape[1])


@typed
def whole_clusters(values: Float[np.ndarray, "trial *item"], groups: Groups) -> Float[np.ndarray, "cluster *item"]:
    """`cluster_values` of the clusters to resample: of two kinds that cross, those of which there are fewer."""
    cluster = min(partitions(groups, len(values)), key=lambda numbers: numbers.max())
    return cluster_values(values.reshape(1, len(values), -1), cluster)[0].reshape(-1, *values.shape[1:])


@typed
def icc(values: Float[np.ndarray, " trial"], labels: Labels) -> float:
    """Intraclass correlation ICC(1) of trials within clusters, from a one-way analysis of variance; NaN without replicates.

    (Donner 1986, with the average cluster size for unequal sizes.) Can be negative.

    `values`: a number per trial. `labels`: the cluster of each.

    Example:
        >>> lh.stats.icc(np.array([1.0, 1.0, 5.0, 5.0]), ["a", "a", "b", "b"])
        1.0
    """
    values, (cluster,) = np.asarray(values, dtype=float), partitions(labels, len(values))
    counts = np.bincount(cluster)
    if len(counts) < 2 or len(counts) == len(values):
        return math.nan
    means = np.bincount(cluster, values) / counts
    between = (counts * (means - values.mean()) ** 2).sum() / (len(counts) - 1)
    within = ((values - means[cluster]) ** 2).sum() / (len(values) - len(counts))
    size = (len(values) - (counts**2).sum() / len(values)) / (len(counts) - 1)
    total = between + (size - 1) * within
    return float((between - within) / total) if total > 0 else math.nan


@typed
def effective_n(values: Float[np.ndarray, " trial"], groups: Groups) -> float:
    """The number of independent trials that would give the mean the same standard error: s^2 / Var(mean), at most the trials.

    Two crossing clusterings count together, as in `mean_interval`. The number of trials where all values agree.

    `groups`: as in `mean_interval`.

    Example:
        >>> lh.stats.effective_n(np.array([1.0, 1.0, 1.0, 5.0, 5.0, 5.0]), list("aaabbb")) < 3
        True
    """
    values = checks.finite_values("values", values)
    spread = values.var(ddof=1) if len(values) > 1 else 0.0
    variance = cluster_variance(values, groups)
    return float(min(len(values), spread / variance)) if variance > 0 and spread > 0 else float(len(values))


def cluster_variance(values: Float[np.ndarray, " trial"], groups: Groups) -> float:
    """The variance of the mean, with clusters sampled whole; two that cross by Cameron, Gelbach and Miller (2011)."""
    found = partitions(groups, len(values))
    single = [_variance(values, cluster) for cluster in found]
    return max(sum(single) - _variance(values, both(*found)), *single) if len(found) == 2 else single[0]


def _variance(values: Float[np.ndarray, " trial"], cluster: Int[np.ndarray, " trial"]) -> float:
    by_cluster = cluster_values(values[None, :, None], cluster)[0, :, 0]
    return float(by_cluster.var(ddof=1) / len(by_cluster)) if len(by_cluster) > 1 else 0.0
