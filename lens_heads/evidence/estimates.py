"""Estimates from trials under sets of heads: right answers get score intervals, nats the others of `stats`."""

from __future__ import annotations

import math
from typing import TypeAlias

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float
from torch import Tensor

from lens_heads.stats import (
    Interval,
    crossed_interval,
    difference,
    effective_n,
    paired_share_interval,
    ratio_interval,
    relative_loss_interval,
    share_interval,
    wilson,
)
from lens_heads.stats.clusters import Groups
from lens_heads.stats.intervals import NOTHING
from lens_heads.stats.shares import are_shares

Draws: TypeAlias = pd.DataFrame
"""A metric under one condition: a row per trial, a column per draw of heads (a single one unless the heads are random)."""


def mean(draws: Draws, groups: Groups, level: float = 0.95) -> Interval[float]:
    """The mean over trials and draws. Draws of right answers are never told better than a single draw of as many trials."""
    values = draws.to_numpy(float)
    if not len(values):
        return NOTHING
    shares, single = are_shares(values), values.shape[1] == 1
    if shares and single:
        return share_interval(values[:, 0], groups=groups, level=level)
    found = crossed_interval(_tensor(values.T), groups=groups, level=level)
    if not shares or math.isnan(found.low):
        return found
    _, low, high = wilson(found.value, effective_n(values.mean(1), groups), level=level)
    return Interval(found.value, min(low, found.low), max(high, found.high), level)


def paired(one: Draws, other: Draws, groups: Groups, level: float = 0.95) -> Interval[float]:
    """one - other on the same trials; two random conditions are paired draw by draw."""
    a, b = one.to_numpy(float), other.to_numpy(float)
    if not len(a):
        return NOTHING
    if are_shares(a, b):
        if a.shape[1] == b.shape[1] == 1:
            return paired_share_interval(a[:, 0], b[:, 0], groups=groups, level=level)
        return difference(mean(one, groups, level), mean(other, groups, level))
    return crossed_interval(_tensor(gaps(one, other)), groups=groups, level=level)


def gaps(one: Draws, other: Draws) -> Float[np.ndarray, "draw trial"]:
    """one - other: a row per draw, or per pair of draws if both are random."""
    a, b = one.to_numpy(float).T, other.to_numpy(float).T
    draws = max(len(a), len(b)) if 1 in (len(a), len(b)) else min(len(a), len(b))
    return (a if len(a) == 1 else a[:draws]) - (b if len(b) == 1 else b[:draws])


def share_lost(
    before: Draws,
    after: Draws,
    nothing: Draws | None = None,
    after_nothing: Draws | None = None,
    *,
    groups: Groups,
    level: float = 0.95,
) -> Interval[float]:
    """((before - after) - (nothing - after_nothing)) / (before - nothing) in sums over the same trials.

    Without `nothing`, the worst value is 0; without `after_nothing`, nothing is lost there.
    """
    a, b = before.to_numpy(float), after.to_numpy(float)
    if not len(a):
        return NOTHING
    if nothing is None and a.shape[1] == b.shape[1] == 1 and are_shares(a, b):
        return relative_loss_interval(a[:, 0], b[:, 0], groups=groups, level=level)
    above = _tensor(gaps(before, after))
    if nothing is not None and after_nothing is not None:
        above = above - _tensor(gaps(nothing, after_nothing))
    below = _tensor(a.T if nothing is None else gaps(before, nothing)).expand_as(above)
    return ratio_interval(above, below, groups=groups, level=level)


def _tensor(values: Float[np.ndarray, "draw trial"]) -> Float[Tensor, "draw trial"]:
    return torch.from_numpy(np.array(values, dtype=float))
