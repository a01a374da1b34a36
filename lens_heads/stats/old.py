"""Percentile bootstrap intervals of means, of random controls, and of ratios."""

from __future__ import annotations

import math

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from lens_heads.runs import checks


def bootstrap_means(values: Float[Tensor, "trial ..."], n: int = 1000, seed: int = 0) -> Float[Tensor, "sample ..."]:
    """Means of n resamples of the trials (with replacement), as one matrix product with the resampling counts."""
    trials = _trials(values, n, seed)
    counts = np.random.default_rng(seed).multinomial(trials, [1 / trials] * trials, size=n)
    weights = torch.from_numpy(counts).to(torch.float64) / trials
    return (weights @ values.reshape(trials, -1).double()).reshape(n, *values.shape[1:])


def bootstrap_interval(
    values: Float[Tensor, "trial ..."], level: float = 0.95, n: int = 1000, seed: int = 0
) -> tuple[Float[Tensor, "..."], Float[Tensor, "..."]]:
    """Bootstrap interval (low, high) of the mean over trials."""
    low, high = np.quantile(bootstrap_means(values, n, seed).numpy(), _tails(level), axis=0)
    return torch.as_tensor(low, dtype=torch.float32), torch.as_tensor(high, dtype=torch.float32)


def percentile_interval(
    samples: Float[np.ndarray, "sample ..."], level: float = 0.95
) -> tuple[Float[np.ndarray, "..."], Float[np.ndarray, "..."]]:
    """(low, high) that enclose a share `level` of the finite samples; NaN where no sample is finite."""
    tails, finite = _tails(level), np.where(np.isfinite(samples), samples, np.nan)
    empty = np.isnan(finite).all(0)
    low, high = np.nanquantile(np.where(empty, 0.0, finite), tails, axis=0)
    return np.where(empty, np.nan, low), np.where(empty, np.nan, high)


def bootstrap_over_draws(
    values: Float[Tensor, "draw trial"], level: float = 0.95, n: int = 1000, seed: int = 0
) -> tuple[float, float, float]:
    """(mean, low, high) of a random control. Resamples both trials and draws, so the interval covers the luck of a draw.

    With a single draw this is `bootstrap_interval`.
    """
    draws, trials = _draws(values, n, seed)
    by_draw, by_trial = _counts(draws, trials, n, seed)
    means = np.einsum("nd,dt,nt->n", by_draw / draws, values.double().numpy(), by_trial / trials)
    low, high = np.quantile(means, _tails(level))
    return float(values.double().mean()), float(low), float(high)


def bootstrap_ratio(
    above: Float[Tensor, "draw trial"],
    below: Float[Tensor, "draw trial"],
    level: float = 0.95,
    n: int = 1000,
    seed: int = 0,
) -> tuple[float, float, float]:
    """(ratio, low, high) of sum(above) / sum(below), with trials and draws resampled together.

    All three are NaN unless sum(below) is positive. The interval is also NaN for a single trial, and where it would be
    unbounded: resampled sums of `below` reach 0 more often than the level allows.
    """
    tails, whole = _tails(level), float(below.double().sum())
    draws, trials = _draws(above, n, seed)
    if whole <= 0:
        return math.nan, math.nan, math.nan
    by_draw, by_trial = _counts(draws, trials, n, seed)
    top, bottom = (np.einsum("nd,dt,nt->n", by_draw, part.double().numpy(), by_trial) for part in (above, below))
    ratio, positive = float(above.double().sum()) / whole, bottom > 0
    if trials == 1 or (~positive).mean() > tails[0]:
        return ratio, math.nan, math.nan
    low, high = np.quantile(top[positive] / bottom[positive], tails)
    return ratio, float(low), float(high)


def _tails(level: float) -> list[float]:
    """The quantiles that enclose a share `level`. ValueError unless it lies between 0 and 1."""
    level = checks.share("level", level)
    return [(1 - level) / 2, (1 + level) / 2]


def _trials(values: Tensor, n: int, seed: int) -> int:
    """The number of trials. ValueError for none, and for a number of resamples or a seed that is none."""
    checks.whole_number("n", n)
    checks.seed(seed)
    if len(values) == 0:
        raise ValueError("cannot bootstrap: there are no trials")
    return len(values)


def _draws(values: Tensor, n: int, seed: int) -> tuple[int, int]:
    """The numbers of draws and trials of a [draw, trial] tensor. ValueError as in `_trials`."""
    if values.ndim != 2 or len(values) == 0:
        raise ValueError(f"values of shape {list(values.shape)}: must be [draw, trial], with at least one draw")
    return len(values), _trials(values[0], n, seed)


def _counts(draws: int, trials: int, n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """How often each of n resamples holds every draw and every trial: [sample, draw] and [sample, trial]."""
    generator = np.random.default_rng(seed)
    by_trial = generator.multinomial(trials, [1 / trials] * trials, size=n)
    return generator.multinomial(draws, [1 / draws] * draws, size=n), by_trial
