"""Bootstrap intervals of means, of random controls, and of ratios.

Everything takes per-trial values with the trial axis first.
"""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor


def bootstrap_means(values: Float[Tensor, "trial ..."], n: int = 1000, seed: int = 0) -> Float[Tensor, "sample ..."]:
    """Means of n resamples of the trials (with replacement), as one matrix product with the resampling counts."""
    trials = len(values)
    if trials == 0:
        raise ValueError("cannot bootstrap: there are no trials")
    counts = np.random.default_rng(seed).multinomial(trials, [1 / trials] * trials, size=n)
    weights = torch.from_numpy(counts).to(torch.float64) / trials
    return (weights @ values.reshape(trials, -1).double()).reshape(n, *values.shape[1:])


def bootstrap_interval(
    values: Float[Tensor, "trial ..."], level: float = 0.95, n: int = 1000, seed: int = 0
) -> tuple[Float[Tensor, "..."], Float[Tensor, "..."]]:
    """Percentile bootstrap interval (low, high) of the mean over trials."""
    if not 0 < level < 1:
        raise ValueError(f"level={level}: a confidence level lies between 0 and 1, e.g. 0.95")
    means = bootstrap_means(values, n, seed).numpy()
    low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2], axis=0)
    return torch.as_tensor(low, dtype=torch.float32), torch.as_tensor(high, dtype=torch.float32)


def percentile_interval(
    samples: Float[np.ndarray, "sample ..."], level: float = 0.95
) -> tuple[Float[np.ndarray, "..."], Float[np.ndarray, "..."]]:
    """(low, high) between which `level` of the samples lie: those that are finite; NaN where none is."""
    if not 0 < level < 1:
        raise ValueError(f"level={level}: a confidence level lies between 0 and 1, e.g. 0.95")
    finite = np.where(np.isfinite(samples), samples, np.nan)
    empty = np.isnan(finite).all(0)
    low, high = np.nanquantile(np.where(empty, 0.0, finite), [(1 - level) / 2, (1 + level) / 2], axis=0)
    return np.where(empty, np.nan, low), np.where(empty, np.nan, high)


def bootstrap_over_draws(
    values: Float[Tensor, "draw trial"], level: float = 0.95, n: int = 1000, seed: int = 0
) -> tuple[float, float, float]:
    """(mean, low, high) of a random control: trials and draws are both resampled, so that the luck of a draw counts.

    With a single draw this is `bootstrap_interval`.
    """
    draws, trials = values.shape
    generator = np.random.default_rng(seed)
    by_trial = generator.multinomial(trials, [1 / trials] * trials, size=n) / trials
    by_draw = generator.multinomial(draws, [1 / draws] * draws, size=n) / draws
    means = np.einsum("nd,dt,nt->n", by_draw, values.double().numpy(), by_trial)
    low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2])
    return float(values.double().mean()), float(low), float(high)


def bootstrap_ratio(
    above: Float[Tensor, "draw trial"],
    below: Float[Tensor, "draw trial"],
    level: float = 0.95,
    n: int = 1000,
    seed: int = 0,
) -> tuple[float, float, float]:
    """(ratio, low, high) of sum(above) / sum(below), trials and draws resampled together.

    All NaN where the sum below is not above 0: of a cost that is none, no share comes back. The interval is NaN with one
    trial, and where resampled sums below reach 0 more often than the level allows: it would have no end.
    """
    draws, trials = above.shape
    whole = float(below.double().sum())
    if whole <= 0:
        return float("nan"), float("nan"), float("nan")
    generator = np.random.default_rng(seed)
    by_trial = generator.multinomial(trials, [1 / trials] * trials, size=n)
    by_draw = generator.multinomial(draws, [1 / draws] * draws, size=n)
    top, bottom = (np.einsum("nd,dt,nt->n", by_draw, part.double().numpy(), by_trial) for part in (above, below))
    ratio = float(above.double().sum()) / whole
    if trials == 1 or (bottom <= 0).mean() > (1 - level) / 2:
        return ratio, float("nan"), float("nan")
    low, high = np.quantile(top[bottom > 0] / bottom[bottom > 0], [(1 - level) / 2, (1 + level) / 2])
    return ratio, float(low), float(high)
