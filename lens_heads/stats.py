"""Statistics over trials: bootstrap, sign-flip permutation, false discovery rate, reliability, paired differences.

Everything takes per-trial values with the trial axis first. What scipy has is called.
"""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Bool, Float
from scipy import stats as scipy_stats
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


def paired_difference(
    a: Float[Tensor, " trial"], b: Float[Tensor, " trial"], level: float = 0.95, n: int = 1000, seed: int = 0
) -> tuple[float, float, float]:
    """Mean of a - b over the same trials with its bootstrap interval: (difference, low, high)."""
    if a.shape != b.shape:
        raise ValueError(f"a paired difference needs the same trials on both sides: {len(a)} against {len(b)}")
    low, high = bootstrap_interval(a - b, level, n, seed)
    return float((a - b).mean()), float(low), float(high)


def sign_flip_p(values: Float[Tensor, "trial ..."], n: int = 10_000, seed: int = 0) -> Float[Tensor, "..."]:
    """One-sided p of mean > 0 under random sign flips of whole trials; (hits + 1) / (n + 1), never zero."""
    trials = len(values)
    flat = values.reshape(trials, -1).double()
    observed = flat.mean(0)
    generator = torch.Generator().manual_seed(seed)
    hits, slack = torch.zeros_like(observed), 1e-6 * flat.abs().mean(0)
    for start in range(0, n, 1000):
        rows = min(1000, n - start)
        signs = torch.randint(0, 2, (rows, trials), generator=generator).double() * 2 - 1
        # A tie counts as a hit; the tolerance is that of float32 values, which rarely tie to the last bit.
        hits += (signs @ flat / trials >= observed - slack).sum(0)
    return ((hits + 1) / (n + 1)).reshape(values.shape[1:]).float()


def benjamini_hochberg(p: Float[Tensor, "..."], alpha: float = 0.05) -> Bool[Tensor, "..."]:
    """Which hypotheses are rejected at false discovery rate alpha."""
    adjusted = scipy_stats.false_discovery_control(p.double().numpy().ravel())
    return torch.from_numpy(adjusted <= alpha).reshape(p.shape)


def split_half_reliability(values: Float[Tensor, "trial item"], n: int = 100, seed: int = 0) -> float:
    """Spearman between item means of two random halves of the trials, Spearman-Brown corrected, mean over n halvings.

    Halvings in which a half does not tell items apart say nothing and are left out. NaN with fewer than two trials, or
    when no halving is left.
    """
    trials = len(values)
    generator = np.random.default_rng(seed)
    corrected = []
    for _ in range(n if trials > 1 else 0):
        order = torch.from_numpy(generator.permutation(trials))
        first, second = values[order[: trials // 2]].mean(0), values[order[trials // 2 :]].mean(0)
        if first.unique().numel() > 1 and second.unique().numel() > 1:
            rho = float(scipy_stats.spearmanr(first.numpy(), second.numpy()).statistic)
            corrected.append(2 * rho / (1 + rho) if rho > 0 else rho)  # The correction means nothing below zero.
    return float(np.mean(corrected)) if corrected else float("nan")
