"""Correlations over the last axis, for whole batches of resamples at once; what strata and covariates explain; reliability."""

from __future__ import annotations

import math
import warnings
from typing import TypeAlias

import numpy as np
import torch
from jaxtyping import Float, Int
from scipy.stats import pearsonr, rankdata
from torch import Tensor

from lens_heads.runs import checks
from lens_heads.runs.typed import typed

Values: TypeAlias = Float[np.ndarray, "*sample value"]
ROUNDING = 1e-9
"""Relative size below which a number is a rounding error."""


@typed
def pearson(x: Values, y: Values) -> Float[np.ndarray, "*sample"]:
    """Pearson correlation over the last axis; NaN where either side is constant."""
    if np.shape(x)[-1] < 2:
        return np.full(np.broadcast(x, y).shape[:-1], np.nan)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Of sides that are constant, or nearly.
        return np.asarray(pearsonr(x, y, axis=-1).statistic)


@typed
def spearman(x: Values, y: Values) -> Float[np.ndarray, "*sample"]:
    """Spearman correlation over the last axis, with mean ranks for ties; NaN where either side is constant."""
    return pearson(rankdata(x, axis=-1), rankdata(y, axis=-1))


def within_strata(
    values: Float[np.ndarray, "*sample task"], strata: Int[np.ndarray, " task"]
) -> Float[np.ndarray, "*sample task"]:
    """Values minus the mean of their stratum over the last axis; `strata` numbers the strata from 0."""
    members = np.eye(strata.max() + 1)[strata]
    return values - values @ (members / members.sum(0)) @ members.T


def covariate_basis(
    covariates: Float[np.ndarray, "covariate k task"], strata: Int[np.ndarray, " task"]
) -> Float[np.ndarray, "k task direction"]:
    """Orthonormal directions of the covariates within strata, for each k; zeros where a covariate adds no direction.

    `values - basis @ (basis.T @ values)` are the residuals of a least-squares fit, if `values` are within strata.
    """
    inside, size = within_strata(covariates, strata), np.linalg.norm(covariates, axis=-1, keepdims=True)
    length = np.linalg.norm(inside, axis=-1, keepdims=True)
    unit = np.divide(inside, length, out=np.zeros_like(inside), where=length > ROUNDING * size)
    directions, strength, _ = np.linalg.svd(np.moveaxis(unit, 0, -1), full_matrices=False)
    return directions * (strength > ROUNDING)[:, None]


@typed
def spearman_brown(r: Float[np.ndarray, " split"]) -> float:
    """Mean reliability from correlations between halves, Spearman-Brown corrected if positive; skips NaN, NaN if none is left."""
    r = r[np.isfinite(r)]
    return float(np.where(r > 0, 2 * r / (1 + np.abs(r)), r).mean()) if len(r) else math.nan


@typed
def split_half_reliability(values: Float[Tensor, "trial item"], *, n: int = 100, seed: int = 0) -> float:
    """Spearman between item means of two random halves of the trials, Spearman-Brown corrected, mean over n splits.

    Would other trials of the same kind rank the items alike? Skips splits in which all items of a half tie. NaN with fewer
    than two trials, or when every split is skipped.

    `seed`: of the splits. `values` [trial, item]: the scores.

    Example:
        >>> round(lh.stats.split_half_reliability(torch.arange(4.0).repeat(10, 1)), 6)
        1.0
    """
    checks.count("n", n)
    checks.seed(seed)
    trials = len(values)
    if trials < 2:
        return math.nan
    generator = np.random.default_rng(seed)
    splits = [torch.from_numpy(generator.permutation(trials)).tensor_split([trials // 2]) for _ in range(n)]
    first, second = (np.stack([values[rows].mean(0).numpy() for rows in half]) for half in zip(*splits, strict=True))
    return spearman_brown(spearman(first, second))
