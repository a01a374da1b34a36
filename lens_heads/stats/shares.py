"""Intervals of right answers: Wilson's for a share, Newcombe's for a paired difference. Neither collapses at 0 or 1."""

from __future__ import annotations

import math

import numpy as np
import torch
from jaxtyping import Float
from scipy import stats as scipy_stats

from lens_heads.runs import checks
from lens_heads.runs.typed import typed
from lens_heads.stats.clusters import Groups, effective_n, fewest_clusters
from lens_heads.stats.intervals import FEWEST, Interval, difference, ratio_interval

Hits = Float[np.ndarray, " trial"]
"""1 for a right answer, 0 for a wrong one."""


@typed
def are_shares(*values: Float[np.ndarray, "..."]) -> bool:
    """Whether all values are 0 or 1, so that score intervals apply."""
    return all(bool(np.isin(each, (0.0, 1.0)).all()) for each in values)


@typed
def share_interval(hits: Hits, *, groups: Groups = None, level: float = 0.95) -> Interval[float]:
    """The share of right answers with Wilson's score interval; NaN bounds below five trials or clusters.

    With clusters, the number of trials is the effective one, less what few clusters take: times the squared ratio of Student's
    t for the trials to that for the clusters   (Korn and Graubard, "Confidence intervals for proportions with small expected
    number of positive counts estimated from survey data", 1998). ValueError for values other than 0 and 1, or none.

    `hits`: 1 for a right answer, 0 for a wrong one. `groups`, `level`: as in `mean_interval`.

    Example:
        >>> right = lh.stats.share_interval(np.array([1.0] * 8 + [0.0] * 2))
        >>> [round(bound, 2) for bound in right]
        [0.8, 0.49, 0.94]
    """
    level = checks.level(level)
    hits = np.asarray(hits, dtype=float)
    if len(hits) == 0 or not are_shares(hits):
        raise ValueError("right answers must be 0 or 1, and at least one: use mean_interval for other values")
    share = float(hits.mean())
    if fewest_clusters(groups, len(hits)) < FEWEST:
        return Interval(share, math.nan, math.nan, level)
    return wilson(share, effective_n(hits, groups) * _few_clusters(groups, len(hits), level), level=level)


@typed
def paired_share_interval(first: Hits, second: Hits, *, groups: Groups = None, level: float = 0.95) -> Interval[float]:
    """The difference first - second of two shares on the same trials.   (Newcombe 1998, method 10)

    Wilson's intervals of both, combined with the correlation phi of the pairs, continuity-corrected where positive (method 8
    has it uncorrected). With clusters, the number of trials is the effective one of the differences, as in `share_interval`.
    NaN bounds below five trials or clusters.

    `groups`, `level`: as in `mean_interval`.

    Example:
        >>> before, after = np.array([1.0] * 9 + [0.0]), np.array([1.0] * 2 + [0.0] * 8)
        >>> lost = lh.stats.paired_share_interval(before, after)
        >>> round(lost.value, 2), lost.low > 0
        (0.7, True)
    """
    level = checks.level(level)
    first, second = _paired(first, second)
    n, gap = len(first), first - second
    one, other = share_interval(first, groups=None, level=level), share_interval(second, groups=None, level=level)
    if fewest_clusters(groups, n) < FEWEST:
        return Interval(one.value - other.value, math.nan, math.nan, level)
    if groups is not None and gap.var() > 0:
        n = max(1.0, effective_n(gap, groups) * _few_clusters(groups, n, level))
        one, other = (wilson(each.value, n, level=level) for each in (one, other))
    spread = float(first.std() * second.std())
    together = float(((first - one.value) * (second - other.value)).mean())
    together = max(together - 1 / (2 * len(first)), 0.0) if together > 0 else together
    return difference(one, other, correlation=together / spread if spread > 0 else 0.0)


def _paired(first: Hits, second: Hits) -> tuple[Hits, Hits]:
    """Both as arrays. ValueError unless they are of the same trials."""
    if len(first) != len(second):
        raise ValueError(f"{len(first)} and {len(second)} right answers: pass those of the same trials, in one order")
    return np.asarray(first, dtype=float), np.asarray(second, dtype=float)


def _few_clusters(groups: Groups, trials: int, level: float) -> float:
    """The factor by which few clusters reduce the effective number of trials; 1 if every trial stands alone."""
    t = [scipy_stats.t.ppf((1 + level) / 2, n - 1) for n in (trials, fewest_clusters(groups, trials))]
    return float(t[0] / t[1]) ** 2


@typed
def relative_loss_interval(before: Hits, after: Hits, *, groups: Groups = None, level: float = 0.95) -> Interval[float]:
    """The share of right answers that is lost, (before - after) / before, on the same trials; NaN if none was right.

    The linearized ratio, and never narrower than Wilson's interval of the loss on as many trials as were right before.

    `groups`, `level`: as in `mean_interval`.

    Example:
        >>> lost = lh.stats.relative_loss_interval(np.ones(10), np.array([1.0] * 4 + [0.0] * 6))
        >>> round(lost.value, 2), lost.low > 0
        (0.6, True)
    """
    before, after = _paired(before, after)
    above, below = (torch.tensor(values)[None] for values in (before - after, before))
    ratio = ratio_interval(above, below, groups=groups, level=level)
    if (
        math.isnan(ratio.value)
        or (ratio.value < 0 and math.isnan(ratio.low))
        or fewest_clusters(groups, len(before)) < FEWEST
    ):
        return Interval(ratio.value, math.nan, math.nan, level)
    _, low, high = wilson(min(max(ratio.value, 0.0), 1.0), before.sum(), level=level)
    return Interval(ratio.value, min(low, ratio.low), max(high, ratio.high), level)


@typed
def wilson(share: float, n: float, *, level: float = 0.95) -> Interval[float]:
    """A share with Wilson's score bounds; n need not be a whole number, unlike in scipy's `proportion_ci`.

    `share`: of n trials. `level`: of the interval.

    Example:
        >>> [round(bound, 3) for bound in lh.stats.wilson(0.5, 10)]
        [0.5, 0.237, 0.763]
    """
    checks.finite("share", share, 0, 1)
    if checks.finite("n", n) <= 0:
        raise ValueError(f"n={n}: must be positive, the number of trials")
    z2 = float(scipy_stats.norm.ppf((1 + checks.level(level)) / 2)) ** 2
    centre, reach = share + z2 / (2 * n), math.sqrt(z2 * (share * (1 - share) + z2 / (4 * n)) / n)
    low, high = max(0.0, (centre - reach) / (1 + z2 / n)), min(1.0, (centre + reach) / (1 + z2 / n))
    return Interval(share, low, high, level)
