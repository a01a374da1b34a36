"""Intervals of means in nats: over trials, over trials crossed with random draws, over clusters; and of ratios of means.

Each bound is the widest one. Student's t with the standard error of the design holds its level for symmetric values and few
draws; the bootstrap-t over trials, over clusters and over draws holds it for skewed values. tests/stats measure them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

import numpy as np
import torch
from jaxtyping import Float, Int
from scipy import stats as scipy_stats
from torch import Tensor

from lens_heads.runs import checks
from lens_heads.runs.typed import typed
from lens_heads.stats.clusters import Groups, both, cluster_values, fewest_clusters, partitions
from lens_heads.stats.resampling import bootstrap_t, tails_of, trials_of

FEWEST = 5
"""The fewest trials, clusters or random draws that have an interval: t of fewer values reaches further than it tells."""

RESAMPLED, LARGE = 10, 3
"""Fewer clusters than these, of so many trials each, and fewer draws have Student's bounds alone: resamples of six are too often
the same few, so that bounds of the bootstrap-t reach to the end of the range; and means of whole clusters are hardly skewed."""

T = TypeVar("T")


class _Estimate(NamedTuple, Generic[T]):
    value: T
    low: T
    high: T


class Interval(_Estimate[T]):
    """An estimate and its bounds at a `level`; bounds are NaN where there are too few trials. Unpacks as value, low, high.

    `value`, `low` and `high` are in the unit of what was measured: numbers, or tensors and tables of one shape.

    Example:
        >>> costs = lh.stats.Interval(1.5, 1.0, 2.0)
        >>> costs.low > 0
        True
    """

    level: float = 0.95

    def __new__(cls, value: T, low: T, high: T, level: float = 0.95) -> Interval[T]:
        found = super().__new__(cls, value, low, high)
        found.level = level
        return found

    def _replace(self, **changed: Any) -> Interval[T]:
        return Interval(**{**self._asdict(), "level": self.level, **changed})

    def __reduce__(self) -> tuple[Any, ...]:
        return Interval, (*self, self.level)

    @property
    def half_width(self) -> T:
        """Half the distance between the bounds."""
        return (self.high - self.low) / 2  # type: ignore[operator]  # numbers, tensors and tables subtract

    def said(self: Interval[float], *, digits: int = 2) -> str:
        """In words: "0.57 [0.49, 0.65]", or that there is no interval.

        `digits`: behind the point.
        """
        bounds = "no interval" if math.isnan(self.low) else f"{self.low:.{digits}f}, {self.high:.{digits}f}"
        return f"{self.value:.{digits}f} [{bounds}]"

    def within(self: Interval[float], lowest: float, highest: float) -> Interval[float]:
        """The part of the interval that the estimated mean can lie in; NaN bounds stay.

        The true mean lies in its range, so cutting what is outside excludes no true value: coverage stays as it was.
        """
        low, high = np.clip([self.low, self.high], lowest, highest)
        return Interval(self.value, float(low), float(high), self.level)


Table: TypeAlias = Float[np.ndarray, "draw trial item"]
Estimates: TypeAlias = Float[np.ndarray, " item"]
Part: TypeAlias = tuple[Float[np.ndarray, " item"], int]
"""A part of a variance, and its degrees of freedom."""

NOTHING: Interval[float] = Interval(math.nan, math.nan, math.nan)
"""Of what was not measured."""


@typed
def mean_interval(
    values: Float[Tensor, "trial *item"], *, groups: Groups = None, level: float = 0.95, n: int = 2000, seed: int = 0
) -> Interval[Tensor]:
    """The mean over trials, each value [*item]; bounds are NaN below five trials or clusters.

    Args:
        groups: labels of the trials, which are resampled by whole clusters, or two lists of labels that cross.
        n: resamples of the bootstrap-t.

    Raises ValueError for no trials.

    `level`: of the interval. `seed`: of the bootstrap. `values`: the trials in the first dimension.

    Example:
        >>> mean, low, high = lh.stats.mean_interval(torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0, 6.0]))
        >>> low.item() < mean.item() < high.item()
        True
    """
    bounds = _bounds([_array(values, 1)], [groups], level, n, seed)
    low, high = (torch.from_numpy(bound).float().reshape(values.shape[1:]) for bound in bounds)
    return Interval(values.double().mean(0).float(), low, high, level)


@typed
def gap_interval(
    first: Float[Tensor, "trial_a *item"],
    second: Float[Tensor, "trial_b *item"],
    *,
    groups: Sequence[Groups] = (None, None),
    level: float = 0.95,
    n: int = 2000,
    seed: int = 0,
) -> Interval[Tensor]:
    """mean(first) - mean(second) over trials that are not paired; as `mean_interval`, with Welch's t.

    `groups`: labels for each of the two. `level`, and `n` and `seed` of the bootstrap: as there.

    Example:
        >>> gap, low, high = lh.stats.gap_interval(torch.tensor([4.0, 5, 6, 5, 4, 6]), torch.tensor([0.0, 1, 2, 1, 0, 2]))
        >>> low.item() < gap.item() < high.item()
        True
    """
    bounds = _bounds([_array(first, 1), -_array(second, 1)], groups, level, n, seed)
    low, high = (torch.from_numpy(bound).float().reshape(first.shape[1:]) for bound in bounds)
    return Interval((first.double().mean(0) - second.double().mean(0)).float(), low, high, level)


@typed
def crossed_interval(
    values: Float[Tensor, "draw trial"], *, groups: Groups = None, level: float = 0.95, n: int = 2000, seed: int = 0
) -> Interval[float]:
    """The mean over a table of random draws by trials, and bounds that cover the luck of both.

    Variance of the mean (MS_draw + MS_trial - MS_interaction) / (draws * trials), at least the larger single part, with
    Satterthwaite's degrees of freedom. With a single draw this is `mean_interval`. ValueError unless [draw, trial].

    `groups`, `level` and, for a single draw, `n` and `seed` of the bootstrap: as in `mean_interval`.
    `values` [draw, trial]: the table.

    Example:
        >>> found = lh.stats.crossed_interval(torch.arange(6.0)[:, None] + torch.arange(6.0))
        >>> found.value, found.low < 5 < found.high
        (5.0, True)
    """
    if values.ndim != 2 or len(values) == 0:
        raise ValueError(f"values of shape {list(values.shape)}: must be [draw, trial], with at least one draw")
    return sum_interval([values], [groups], level=level, n=n, seed=seed)


@typed
def sum_interval(
    tables: Sequence[Float[Tensor, "draw trial"]],
    groups: Sequence[Groups],
    *,
    level: float = 0.95,
    n: int = 2000,
    seed: int = 0,
) -> Interval[float]:
    """The sum of the means of several tables, each as in `crossed_interval` with groups of its own.

    The trials of different tables are independent; their draws are the same, in the same order. A table with one row
    does not depend on the draw. ValueError for no tables, and for other numbers of draws.

    `level`, `n`, `seed`: as there.

    Example:
        >>> tables = [torch.tensor([[1.0, 2, 3, 1, 2, 3]]), torch.tensor([[10.0, 10, 12, 8, 10, 10]])]
        >>> found = lh.stats.sum_interval(tables, [None, None])
        >>> found.value, found.low < 12 < found.high
        (12.0, True)
    """
    if not tables or any(table.ndim != 2 or len(table) == 0 for table in tables):
        shapes = ", ".join(str(list(table.shape)) for table in tables) or "none"
        raise ValueError(f"values of shape {shapes}: must be [draw, trial], with at least one draw")
    if len({len(table) for table in tables} - {1}) > 1:
        raise ValueError(f"tables of {', '.join(str(len(table)) for table in tables)} draws: must have the same draws")
    low, high = _bounds([_array(table, 2) for table in tables], groups, level, n, seed)
    return Interval(sum(float(table.double().mean()) for table in tables), float(low[0]), float(high[0]), level)


@typed
def ratio_interval(
    above: Float[Tensor, "draw trial"],
    below: Float[Tensor, "draw trial"],
    *,
    groups: Groups = None,
    level: float = 0.95,
    n: int = 2000,
    seed: int = 0,
) -> Interval[float]:
    """sum(above) / sum(below), with the bounds of its linearization (above - ratio * below) / mean(below).

    All NaN unless sum(below) is positive. The bounds are NaN where they would be unbounded: where the lower bound of the
    mean of `below` is not above zero (Fieller 1954).

    `groups`, `level`, `n`, `seed`: as in `crossed_interval`.

    Example:
        >>> removed, full = torch.tensor([[1.0, 2, 1, 2, 1, 2]]), torch.tensor([[2.0, 4, 2, 4, 2, 4]])
        >>> lh.stats.ratio_interval(removed, full).value
        0.5
    """
    whole = crossed_interval(below, groups=groups, level=level, n=n, seed=seed)
    if not whole.value > 0:
        return NOTHING
    ratio = float(above.double().mean()) / whole.value
    if not whole.low > 0:
        return Interval(ratio, math.nan, math.nan, level)
    _, low, high = crossed_interval(
        (above.double() - ratio * below.double()) / whole.value, groups=groups, level=level, n=n, seed=seed
    )
    return Interval(ratio, ratio + low, ratio + high, level)


@typed
def difference(first: Interval[float], second: Interval[float], *, correlation: float = 0.0) -> Interval[float]:
    """first - second from their own intervals: the method of variance estimates recovery (Zou and Donner 2008).

    It keeps the asymmetry of both. `correlation` of the two estimates; 0 is on the safe side if it is positive. ValueError for
    one outside -1 to 1, and for intervals of two levels.

    Example:
        >>> wide = lh.stats.difference(lh.stats.Interval(5.0, 2.0, 8.0), lh.stats.Interval(1.0, -3.0, 5.0))
        >>> wide
        Interval(value=4.0, low=-1.0, high=9.0)
    """

    checks.finite("correlation", correlation, -1, 1)
    if first.level != second.level:
        raise ValueError(f"intervals of levels {first.level:g} and {second.level:g}: make both at one level")

    def reach(down: float, up: float) -> float:
        return math.sqrt(max(down**2 + up**2 - 2 * correlation * down * up, 0.0))

    value = first.value - second.value
    low = value - reach(first.value - first.low, second.high - second.value)
    return Interval(value, low, value + reach(first.high - first.value, second.value - second.low), first.level)


def _bounds(
    tables: Sequence[Table], groups: Sequence[Groups], level: float, n: int, seed: int
) -> tuple[Float[np.ndarray, " item"], Float[np.ndarray, " item"]]:
    """The wider bound of Student's t and of the bootstrap-t by every clustering, for the sum of the tables' means."""
    tails = tails_of(level)
    found = [partitions(own, trials_of(table[0], n, seed)) for own, table in zip(groups, tables, strict=True)]
    mean = np.sum([table.mean((0, 1)) for table in tables], axis=0)
    clusters_of = [fewest_clusters(own, table.shape[1]) for own, table in zip(groups, tables, strict=True)]
    # A single row is not random: it has no draws to be told from.
    if min([*clusters_of, *(len(table) for table in tables if len(table) > 1)]) < FEWEST:
        return mean * np.nan, mean * np.nan
    crossing = any(len(clusters) == 2 for clusters in found)
    clustered = [_clustered(tables, [clusters[way] for clusters in found]) for way in ((0, -1) if crossing else (0,))]
    variance, freedom = _variance(clustered[0])
    if crossing:
        (first, one), (second, other) = (variance, freedom), _variance(clustered[1])
        shared, _ = _variance(_clustered(tables, [both(clusters[0], clusters[-1]) for clusters in found]))
        variance, freedom = np.maximum(first + second - shared, np.maximum(first, second)), np.minimum(one, other)
    reach = scipy_stats.t.ppf(tails[1], freedom) * np.sqrt(variance)
    told = [each for each in clustered if not _few_and_large(each, tables)]
    resampled = [bootstrap_t([table.mean(0) for table in each], tails, n, seed) for each in told]
    if max(map(len, tables)) >= RESAMPLED:
        resampled.append(_over_draws(tables, mean, variance, tails, n, seed))
    lows, highs = zip((mean - reach, mean + reach), *resampled, strict=True)
    return np.min(lows, axis=0), np.max(highs, axis=0)


def _over_draws(
    tables: Sequence[Table], mean: Estimates, variance: Estimates, tails: list[float], n: int, seed: int
) -> tuple[Estimates, Estimates]:
    """The bootstrap-t over draws, at the standard error of the whole design: a rare draw that breaks a task skews the mean."""
    by_draw = np.sum([table.mean(1) for table in tables], axis=0)
    alone = by_draw.var(0, ddof=1) / len(by_draw)
    wider = np.sqrt(np.divide(variance, alone, out=np.zeros_like(alone), where=alone > 0))
    low, high = bootstrap_t([by_draw], tails, n, seed)
    return mean + (low - mean) * wider, mean + (high - mean) * wider


def _few_and_large(clustered: Sequence[Table], tables: Sequence[Table]) -> bool:
    """Whether these are fewer than `RESAMPLED` clusters of at least `LARGE` trials each."""
    pairs = zip(clustered, tables, strict=True)
    return any(each.shape[1] < RESAMPLED and LARGE * each.shape[1] <= table.shape[1] for each, table in pairs)


def _clustered(tables: Sequence[Table], clusters: Sequence[Int[np.ndarray, " trial"]]) -> list[Table]:
    return [cluster_values(table, cluster) for table, cluster in zip(tables, clusters, strict=True)]


def _variance(tables: Sequence[Table]) -> tuple[Float[np.ndarray, " item"], Float[np.ndarray, " item"]]:
    """Variance of the sum of the means of crossed tables with the same draws, and its degrees of freedom."""
    draws = max(map(len, tables))
    trial, trial_squared = _parts([_over_trials(table) for table in tables])
    if draws == 1:
        return trial, _freedom(trial, trial_squared)
    by_draw = np.sum([table.mean(1) for table in tables], axis=0)
    draw = by_draw.var(0, ddof=1) / draws
    within, within_squared = _parts([_interaction(table) for table in tables])
    total, largest = draw + trial - within, np.maximum(draw, trial)
    freedom = _freedom(total, draw**2 / (draws - 1) + trial_squared + within_squared)
    single = np.where(draw > trial, draws - 1, _freedom(trial, trial_squared))
    return np.maximum(total, largest), np.where(total > largest, freedom, single)


@typed
def percentile_interval(
    samples: Float[np.ndarray, "sample ..."], *, level: float = 0.95
) -> Interval[Float[np.ndarray, "..."]]:
    """The median of the finite samples, and bounds that enclose a share `level` of them; NaN where no sample is finite.

    Example:
        >>> value, low, high = lh.stats.percentile_interval(np.arange(101.0), level=0.9)
        >>> round(float(value)), round(float(low)), round(float(high))
        (50, 5, 95)
    """
    tails, finite = tails_of(level), np.where(np.isfinite(samples), samples, np.nan)
    empty = np.isnan(finite).all(0)
    low, high, value = np.nanquantile(np.where(empty, 0.0, finite), [*tails, 0.5], axis=0)
    return Interval(*(np.where(empty, np.nan, one) for one in (value, low, high)), level=level)


def _over_trials(table: Table) -> Part:
    """The variance of the mean over trials."""
    trials = table.shape[1]
    return table.mean(0).var(0, ddof=1) / trials, trials - 1


def _interaction(table: Table) -> Part:
    """The part of the interaction of draws and trials in the variance of the mean; 0 for a single draw."""
    draws, trials = table.shape[:2]
    left = table - table.mean(0) - table.mean(1)[:, None] + table.mean((0, 1))
    freedom = max((draws - 1) * (trials - 1), 1)
    return (left**2).sum((0, 1)) / (freedom * draws * trials), freedom


def _parts(parts: Sequence[Part]) -> tuple[Float[np.ndarray, " item"], Float[np.ndarray, " item"]]:
    """The sum of the parts, and that of their squares by degrees of freedom, as Satterthwaite's formula needs them."""
    whole = np.sum([part for part, _ in parts], axis=0)
    return whole, np.sum([part**2 / freedom for part, freedom in parts], axis=0)


def _freedom(total: Float[np.ndarray, " item"], squared: Float[np.ndarray, " item"]) -> Float[np.ndarray, " item"]:
    """Satterthwaite's degrees of freedom, at least 1."""
    return np.clip(np.divide(total**2, squared, out=np.ones_like(total), where=squared > 0), 1, None)


def _array(values: Tensor, leading: int) -> Float[np.ndarray, "draw trial item"]:
    """[trial, ...] or [draw, trial, ...] as [draw, trial, item] in double precision."""
    array = values.detach().double().cpu().numpy()
    array = array if leading == 2 else array[None]
    return array.reshape(*array.shape[:2], -1 if array.size else 1)
