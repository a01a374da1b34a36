"""Intervals of a matrix's statistics over items and draws of random heads.

Every statistic is linear in the cells, so it is a sum of means over the items of the targets: an item contributes what the
formula gives for its own cells alone. `stats.sum_interval` has the interval of such a sum. Relative drops, which are ratios, are
linearized around the measured ones:   drop / base + ((1 - drop / base) * base_i - now_i) / base   for item i.

Right answers get two more items, one that every set of heads loses and one that it gains, so that an interval does not
collapse where nothing was seen to change   (Bonett and Price, "Adjusted Wald confidence interval for a difference of binomial
proportions based on paired data", 2012).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
import torch
from jaxtyping import Bool, Float

from lens_heads.evidence.transfer_cells import RANDOM, Items, Layout
from lens_heads.stats import Interval, mean_interval, percentile_interval, sum_interval
from lens_heads.stats.clusters import Groups, fewest_clusters
from lens_heads.stats.intervals import FEWEST, NOTHING
from lens_heads.stats.shares import are_shares

Tables: TypeAlias = Float[np.ndarray, "draw item k task"]


@dataclass(frozen=True, eq=False)
class Contribution:
    """What every item of one target adds to a statistic; `draw` is 1 unless the statistic depends on random heads.

    `concerns`: whether the target enters the statistic at all. `bounded`: whether it has enough items and, for relative drops, a
    base whose own interval lies above zero.
    """

    tables: Tables
    groups: Groups
    concerns: Bool[np.ndarray, "k task"]
    bounded: bool


def contributions(
    layout: Layout, items: Mapping[str, Items], name: str, options: Mapping[str, bool]
) -> list[Contribution]:
    """One per target, in the order of the layout. Without a base, relative drops and what depends on them are NaN."""
    absolute = {option: value for option, value in options.items() if option != "relative"}
    relative = options.get("relative", False)
    found = []
    for place, target in enumerate(layout.targets):
        own = items[target]
        values, groups, bounded = own.values, own.groups, fewest_clusters(own.groups, own.n) >= FEWEST
        lost = _lost(layout, name)
        if relative and bounded:
            bounded = bool(mean_interval(torch.from_numpy(values[0].copy()), groups=groups).low > 0)
        if are_shares(values):
            values = np.concatenate([values, lost, 1 - lost], axis=1)
            groups = [(*labels, "", "") for labels in groups]
        if relative:
            values = _linearized(values) if own.means[0] > 0 else values * math.nan
        concerned = _of_items(layout, lost, place, name, absolute)[0, 0] != 0
        found.append(Contribution(_of_items(layout, values, place, name, absolute), groups, concerned, bounded))
    return found


def of_items(
    found: list[Contribution], k: int, tasks: Bool[np.ndarray, " task"], level: float, draw: tuple[int, int]
) -> Interval[float]:
    """The statistic's mean over some tasks, at the place k; `draw`: resamples and seed."""
    used = [one for one in found if one.concerns[k, tasks].any()]
    if not used or not all(one.bounded for one in used):
        return NOTHING
    tables = [torch.from_numpy(one.tables[:, :, k][..., tasks].mean(-1)) for one in used]
    return sum_interval(tables, [one.groups for one in used], level=level, n=draw[0], seed=draw[1])


def of_samples(
    samples: Float[np.ndarray, "sample k task"], averaged: Bool[np.ndarray, "k column task"], level: float
) -> Float[np.ndarray, "k column 2"]:
    """Percentiles of the resampled statistic's mean over the tasks of each column; samples without a value are omitted."""
    with np.errstate(invalid="ignore"):
        means = np.where(averaged, samples[:, :, None], 0.0).sum(-1) / averaged.sum(-1)
    return np.stack(percentile_interval(means, level=level)[1:], -1)


def _of_items(
    layout: Layout, values: Float[np.ndarray, "condition item"], place: int, name: str, options: Mapping[str, bool]
) -> Tables:
    """The statistic of each item's cells of one target, with 0 in the cells of all others."""
    means = np.zeros((values.shape[1], len(values), len(layout.targets)))
    means[..., place] = values.T
    cells = layout.cells(means)
    if RANDOM not in name:
        return getattr(cells, name)(**options)[None]
    by_draw = [replace(cells, drawn=cells.drawn[:, [draw]]) for draw in range(layout.draws)]
    return np.stack([getattr(each, name)(**options) for each in by_draw])


def _lost(layout: Layout, name: str) -> Float[np.ndarray, "condition 1"]:
    """An item that is right without ablation alone; beside random heads, also under them."""
    kept = [source != RANDOM if name == RANDOM else source == RANDOM for source, _, _ in layout.conditions[1:]]
    return np.array([1.0, *(float(right and name != RANDOM) for right in kept)])[:, None]


def _linearized(values: Float[np.ndarray, "condition item"]) -> Float[np.ndarray, "condition item"]:
    """Values whose absolute drops have the means of the relative ones, and to first order their spread."""
    base = values[0].mean()
    kept = values.mean(1, keepdims=True) / base
    return (values - kept * values[0]) / base - (1 - kept)
