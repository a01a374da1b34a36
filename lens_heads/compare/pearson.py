"""Pearson and Spearman correlation over the last axis, for whole batches of resamples at once."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from jaxtyping import Float
from scipy.stats import rankdata

Values: TypeAlias = Float[np.ndarray, "*sample value"]


def pearson(x: Values, y: Values) -> Float[np.ndarray, "*sample"]:
    """Pearson correlation over the last axis; NaN where either side is constant."""
    vary = (np.ptp(x, -1) > 0) & (np.ptp(y, -1) > 0)
    x, y = (values - values.mean(-1, keepdims=True) for values in (x, y))
    spread = np.sqrt((x**2).sum(-1) * (y**2).sum(-1))
    return np.divide((x * y).sum(-1), spread, out=np.full_like(spread, np.nan), where=vary)


def spearman(x: Values, y: Values) -> Float[np.ndarray, "*sample"]:
    """Spearman correlation over the last axis, with mean ranks for ties; NaN where either side is constant."""
    return pearson(rankdata(x, axis=-1), rankdata(y, axis=-1))
