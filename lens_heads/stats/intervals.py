"""Intervals of means in nats: over trials, over trials crossed with random draws, over clusters; and of ratios of means.

Each bound is the wider one of two. Student's t with the standard error of the design holds its level for symmetric values and
few draws; the bootstrap-t over trials, or over clusters, holds it for skewed values. tests/stats measure both.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from scipy import stats as scipy_stats
from torch import Tensor

from lens_heads.runs import checks
from lens_heads.stats.clusters import Groups, both, cluster_values, partitions

FEWEST = 5
"""The fewest trials, or clusters, that have an interval."""


class Interval(NamedTuple):
    """An estimate and its bounds, which are NaN where there are too few trials."""

    value: float
    low: float
    high: float

    @property
    def half_width(self) -> float:
        """Half the distance between the bounds."""
        return (self.high - self.low) / 2


NOTHING = Interval(math.nan, math.nan, math.nan)
"""Of what was not measured."""


def mean_interval(
    values: Float[Tensor, "trial *item"],
    groups: Groups = None,
    level: float = 0.95,
    n: int = 2000,
    seed: int = 0,
) -> tuple[Float[Tensor, "*item"], Float[Tensor, "*item"]]:
    """(low, high) of the mean over trials; NaN below five trials or clusters.

    Args:
        groups: labels of the trials, which are resampled by whole clusters, or two lists of labels that cross.
        n: resamples of the bootstrap-t.

    Raises ValueError for no trials.
    """
    low, high = _bounds(_array(values, 1), groups, level, n, seed)
    shape = values.shape[1:]
    return torch.from_numpy(low).float().reshape(shape), torch.from_numpy(high).float().reshape(shape)


def crossed_interval(
    values: Float[Tensor, "draw trial"], groups: Groups = None, level: float = 0.95, n: int = 2000, seed: int = 0
) -> Interval:
    """The mean over a table of random draws by trials, and bounds that cover the luck of both.

    Variance of the mean (MS_draw + MS_trial - MS_interaction) / (draws * trials), at least the larger single part, with
    Satterthwaite's degrees of freedom. With a single draw this is `mean_interval`. ValueError unless [draw, trial].
    """
    if values.ndim != 2 or len(values) == 0:
        raise ValueError(f"values of shape {list(values.shape)}: must be [draw, trial], with at least one draw")
    low, high = _bounds(_array(values, 2), groups, level, n, seed)
    return Interval(float(values.double().mean()), float(low[0]), float(high[0]))


def ratio_interval(
    above: Float[Tensor, "draw trial"],
    below: Float[Tensor, "draw trial"],
    groups: Groups = None,
    level: float = 0.95,
    n: int = 2000,
    seed: int = 0,
) -> Interval:
    """sum(above) / sum(below), with the bounds of its linearization (above - ratio * below) / mean(below).

    All NaN unless sum(below) is positive. The bounds are NaN where they would be unbounded: where the lower bound of the
    mean of `below` is not above zero (Fieller 1954).
    """
    whole = crossed_interval(below, groups, level, n, seed)
    if not whole.value > 0:
        return NOTHING
    ratio = float(above.double().mean()) / whole.value
    if not whole.low > 0:
        return Interval(ratio, math.nan, math.nan)
    _, low, high = crossed_interval((above.double() - ratio * below.double()) / whole.value, groups, level, n, seed)
    return Interval(ratio, ratio + low, ratio + high)


def difference(first: Interval, second: Interval, correlation: float = 0.0) -> Interval:
    """first - second from their own intervals: the method of variance estimates recovery (Zou and Donner 2008).

    It keeps the asymmetry of both. `correlation` of the two estimates; 0 is on the safe side if it is positive.
    """

    def reach(down: float, up: float) -> float:
        return math.sqrt(max(down**2 + up**2 - 2 * correlation * down * up, 0.0))

    value = first.value - second.value
    low = value - reach(first.value - first.low, second.high - second.value)
    return Interval(value, low, value + reach(first.high - first.value, second.value - second.low))


def bootstrap_means(values: Float[Tensor, "trial ..."], n: int = 1000, seed: int = 0) -> Float[Tensor, "sample ..."]:
    """Means of n resamples of the trials (with replacement), as one matrix product with the resampling counts."""
    weights = _weights(_trials(values, n, seed), n, seed)
    return (torch.from_numpy(weights) @ values.reshape(len(values), -1).double()).reshape(n, *values.shape[1:])


def percentile_interval(
    samples: Float[np.ndarray, "sample ..."], level: float = 0.95
) -> tuple[Float[np.ndarray, "..."], Float[np.ndarray, "..."]]:
    """(low, high) that enclose a share `level` of the finite samples; NaN where no sample is finite."""
    tails, finite = _tails(level), np.where(np.isfinite(samples), samples, np.nan)
    empty = np.isnan(finite).all(0)
    low, high = np.nanquantile(np.where(empty, 0.0, finite), tails, axis=0)
    return np.where(empty, np.nan, low), np.where(empty, np.nan, high)


def _bounds(
    values: Float[np.ndarray, "draw trial item"], groups: Groups, level: float, n: int, seed: int
) -> tuple[Float[np.ndarray, " item"], Float[np.ndarray, " item"]]:
    """The wider bound of Student's t and of the bootstrap-t by every clustering."""
    tails, trials = _tails(level), _trials(values[0], n, seed)
    found = partitions(groups, trials)
    mean = values.mean((0, 1))
    if min(int(cluster.max()) + 1 for cluster in found) < FEWEST:
        return mean * np.nan, mean * np.nan
    clustered = [cluster_values(values, cluster) for cluster in found]
    parts = [_variance(each) for each in clustered]
    variance, freedom = parts[0]
    if len(parts) == 2:
        (first, one), (second, other), (shared, _) = *parts, _variance(cluster_values(values, both(*found)))
        variance, freedom = np.maximum(first + second - shared, np.maximum(first, second)), np.minimum(one, other)
    reach = scipy_stats.t.ppf(tails[1], freedom) * np.sqrt(variance)
    resampled = [_bootstrap_t(each.mean(0), tails, n, seed) for each in clustered]
    lows, highs = zip((mean - reach, mean + reach), *resampled, strict=True)
    return np.min(lows, axis=0), np.max(highs, axis=0)


def _variance(
    values: Float[np.ndarray, "draw trial item"],
) -> tuple[Float[np.ndarray, " item"], Float[np.ndarray, " item"]]:
    """Variance of the mean of a crossed table, and its degrees of freedom."""
    draws, trials = values.shape[:2]
    mean, by_trial, by_draw = values.mean((0, 1)), values.mean(0), values.mean(1)
    trial = draws * ((by_trial - mean) ** 2).sum(0) / (trials - 1)
    if draws == 1:
        return trial / trials, np.full_like(trial, trials - 1)
    draw = trials * ((by_draw - mean) ** 2).sum(0) / (draws - 1)
    within = ((values - by_trial - by_draw[:, None] + mean) ** 2).sum((0, 1)) / ((trials - 1) * (draws - 1))
    total, largest = draw + trial - within, np.maximum(draw, trial)
    with np.errstate(divide="ignore", invalid="ignore"):
        freedom = total**2 / (
            draw**2 / (draws - 1) + trial**2 / (trials - 1) + within**2 / ((trials - 1) * (draws - 1))
        )
    single = np.where(draw > trial, draws - 1, trials - 1)
    freedom = np.where(total > largest, np.clip(np.nan_to_num(freedom), 1, None), single)
    return np.maximum(total, largest) / (draws * trials), freedom


def _bootstrap_t(
    values: Float[np.ndarray, "trial item"], tails: list[float], n: int, seed: int
) -> tuple[Float[np.ndarray, " item"], Float[np.ndarray, " item"]]:
    """Bootstrap-t bounds of the mean   (Efron and Tibshirani 1993, chapter 12)."""
    trials, mean = len(values), values.mean(0)
    centred, weights = values - mean, _weights(len(values), n, seed)
    means = weights @ centred
    variance = np.clip(weights @ centred**2 - means**2, 0.0, None) / (trials - 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        # Without spread, one trial was drawn again and again: its distance counts as very large, or as none.
        t = np.nan_to_num(means / np.sqrt(variance), nan=0.0, posinf=1e6, neginf=-1e6)
    low, high = np.quantile(t, tails, axis=0)
    error = np.sqrt((centred**2).sum(0) / (trials * (trials - 1)))
    return mean - high * error, mean - low * error


def _array(values: Tensor, leading: int) -> Float[np.ndarray, "draw trial item"]:
    """[trial, ...] or [draw, trial, ...] as [draw, trial, item] in double precision."""
    array = values.detach().double().cpu().numpy()
    array = array if leading == 2 else array[None]
    return array.reshape(*array.shape[:2], -1 if array.size else 1)


def _tails(level: float) -> list[float]:
    """The quantiles that enclose a share `level`. ValueError unless it lies between 0 and 1."""
    level = checks.share("level", level)
    return [(1 - level) / 2, (1 + level) / 2]


def _trials(values: Tensor | np.ndarray, n: int, seed: int) -> int:
    """The number of trials. ValueError for none, and for a number of resamples or a seed that is none."""
    checks.whole_number("n", n)
    checks.seed(seed)
    if len(values) == 0:
        raise ValueError("cannot give an interval: there are no trials")
    return len(values)


def _weights(trials: int, n: int, seed: int) -> Float[np.ndarray, "sample trial"]:
    """The share of every trial in each of n resamples."""
    return np.random.default_rng(seed).multinomial(trials, [1 / trials] * trials, size=n) / trials
