"""Is the mean above zero? A test of many items at once that a left skew does not mislead.

A sample from a distribution with a long tail below often misses that tail: its mean is then too high and its spread too
small, so Student's t is large without any effect, and sign flips and the bootstrap, which see the same sample, agree with
it. How skewed the items are can still be told from all of them together.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import torch
from jaxtyping import Float
from scipy import stats as scipy_stats
from torch import Tensor

from lens_heads.runs import checks
from lens_heads.runs.typed import typed

FEWEST_TRIALS = 10
"""Below this, the skewness of the samples says too little about that of the items."""

_SIGMAS = (0.0, 0.25, 0.5, 0.75, 1.0, 1.25)
"""Shapes of a mirrored lognormal, from normal to a skewness of -11."""
_QUANTILES = (0.01, 0.02, 0.05, 0.1)
_FEW_ITEMS = 20
_DRAWS, _SHAPE_DRAWS, _BLOCK = 200_000, 20_000, 10_000


@typed
def positive_mean_p(values: Float[Tensor, "trial *item"]) -> Float[Tensor, "*item"]:
    """One-sided p of mean > 0 per item: the larger of Student's, and of t's under a left-skewed null; float64.

    The null is a mirrored lognormal, exp(sigma² / 2) - exp(sigma z) with z normal. Its sigma is the smallest of .25, .5, ...,
    1.25 at which samples of this size are at least as left-skewed as those of the items: the 1, 2, 5 and 10 % quantiles of
    the sample skewness are compared, and the largest sigma counts. With fewer than 20 items, too few to tell a shape, it
    is 1.25. p comes from 200,000 simulated samples with a fixed seed, so the smallest is 5e-6. An item
    that is zero in all trials has p = 1.

    Benjamini-Hochberg at .05 on these p keeps the false discovery rate in tests/stats/test_positive_mean.py; that of
    Student's t, of sign flips, of Johnson's modified t and of the bootstrap-t reaches .2 to .7 there under a left skew.

    Raises ValueError for fewer than ten trials, and values that are not finite.

    `values`: at least ten trials, and no item or several.

    Example:
        >>> lh.stats.positive_mean_p(torch.linspace(1.0, 2.0, 20)).item() < 0.001
        True
    """
    trials = len(values)
    if trials < FEWEST_TRIALS:
        raise ValueError(f"{trials} trials: a test of mean > 0 needs at least {FEWEST_TRIALS}")
    checks.finite_values("values", values)
    flat = values.detach().cpu().double().reshape(trials, -1).numpy()
    t = _t(flat)
    null = _null(trials, _sigma(flat))
    skewed = (1 + len(null) - np.searchsorted(null, t)) / (len(null) + 1)
    p = np.maximum(skewed, scipy_stats.t.sf(t, trials - 1))
    return torch.from_numpy(p).reshape(values.shape[1:])


def _t(samples: Float[np.ndarray, "trial item"]) -> Float[np.ndarray, " item"]:
    """Student's t; 0 for an item of zeros, infinite for another that never varies."""
    mean, spread = samples.mean(0), samples.std(0, ddof=1) / np.sqrt(len(samples))
    flat = np.where(mean == 0, 0.0, np.copysign(np.inf, mean))
    return np.divide(mean, spread, out=flat, where=np.ptp(samples, 0) > 0)


def _sigma(samples: Float[np.ndarray, "trial item"]) -> float:
    """The shape of the null for these items."""
    varied = samples[:, np.ptp(samples, 0) > 0]
    if varied.shape[1] < _FEW_ITEMS:
        return _SIGMAS[-1]
    found = np.quantile(scipy_stats.skew(varied, axis=0), _QUANTILES)
    # The quantiles fall as sigma grows: as many steps as there are shapes less skewed than the items.
    steps = int((_skewness(len(samples)) > found).sum(0).max())
    return _SIGMAS[min(max(steps, 1), len(_SIGMAS) - 1)]


@lru_cache(maxsize=64)
def _skewness(trials: int) -> Float[np.ndarray, "sigma quantile"]:
    """Quantiles of the sample skewness of every shape."""
    generator = np.random.default_rng(0)
    samples = (_draw(generator, trials, _SHAPE_DRAWS, sigma) for sigma in _SIGMAS)
    return np.stack([np.quantile(scipy_stats.skew(each, axis=0), _QUANTILES) for each in samples])


@lru_cache(maxsize=64)
def _null(trials: int, sigma: float) -> Float[np.ndarray, " draw"]:
    """Simulated t of samples without an effect, in ascending order."""
    generator = np.random.default_rng(0)
    blocks = [_t(_draw(generator, trials, _BLOCK, sigma)) for _ in range(_DRAWS // _BLOCK)]
    return np.sort(np.concatenate(blocks))


def _draw(generator: np.random.Generator, trials: int, n: int, sigma: float) -> Float[np.ndarray, "trial n"]:
    z = generator.standard_normal((trials, n))
    return z if sigma == 0 else np.exp(sigma**2 / 2) - np.exp(sigma * z)
