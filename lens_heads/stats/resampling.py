"""Resampling of trials: the bootstrap of means, and the bootstrap-t of the intervals beside."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from lens_heads.runs import checks
from lens_heads.runs.typed import typed


@typed
def bootstrap_means(values: Float[Tensor, "trial ..."], *, n: int = 1000, seed: int = 0) -> Float[Tensor, "sample ..."]:
    """Means of n resamples of the trials (with replacement), as one matrix product with the resampling counts.

    `values`: the trials in the first dimension. `seed`: of the resampling.

    Example:
        >>> means = lh.stats.bootstrap_means(torch.arange(10.0), n=100)
        >>> len(means), bool((means > 1).all() and (means < 8).all())
        (100, True)
    """
    trials = trials_of(values, n, seed)
    weights = weights_of(trials, n, seed)
    means = weights @ values.detach().double().cpu().reshape(len(values), -1).numpy()
    return torch.from_numpy(means).reshape(n, *values.shape[1:])


def bootstrap_t(
    tables: Sequence[Float[np.ndarray, "trial item"]], tails: list[float], n: int, seed: int
) -> tuple[Float[np.ndarray, " item"], Float[np.ndarray, " item"]]:
    """Bootstrap-t bounds of the sum of the means   (Efron and Tibshirani 1993, chapter 12)

    They are the estimate itself, so that Student's t is the wider, where too many resamples have no spread: a few right
    answers among wrong ones have no bound of this kind.
    """
    mean = np.sum([table.mean(0) for table in tables], axis=0)
    error, means, variance, squares = (np.zeros_like(mean) for _ in range(4))
    for number, table in enumerate(tables):
        trials, centred = len(table), table - table.mean(0)
        weights = weights_of(trials, n, seed, number)
        drawn, drawn_squares = weights @ centred, weights @ centred**2
        means, squares = means + drawn, squares + drawn_squares
        variance = variance + (drawn_squares - drawn**2) / (trials - 1)
        error = error + (centred**2).sum(0) / (trials * (trials - 1))
    flat = variance <= 1e-9 * squares
    t = np.divide(means, np.sqrt(np.where(flat, 1.0, variance)), out=np.zeros_like(means), where=~flat)
    # Without spread, one trial was drawn again and again: its distance counts as very large, or as none.
    t = np.where(flat & (means != 0), np.copysign(1e6, means), t)
    low, high = np.where((flat & (means != 0)).mean(0) > tails[0], 0.0, np.quantile(t, tails, axis=0))
    return mean - high * np.sqrt(error), mean - low * np.sqrt(error)


def tails_of(level: float) -> list[float]:
    """The quantiles that enclose a share `level`. ValueError unless it lies between 0 and 1."""
    level = checks.level(level)
    return [(1 - level) / 2, (1 + level) / 2]


def trials_of(values: Tensor | np.ndarray, n: int, seed: int) -> int:
    """The number of trials. ValueError for none, and for a number of resamples or a seed that is none."""
    checks.count("n", n)
    checks.seed(seed)
    if len(values) == 0:
        raise ValueError("cannot give an interval: there are no trials")
    return len(values)


@lru_cache(maxsize=16)
def weights_of(trials: int, n: int, seed: int, number: int = 0) -> Float[np.ndarray, "sample trial"]:
    """The share of every trial in each of n resamples, not to be written to. Drawing them takes longer than all else."""
    generator = np.random.default_rng([seed, number] if number else seed)
    found = generator.multinomial(trials, [1 / trials] * trials, size=n) / trials
    found.flags.writeable = False
    return found
