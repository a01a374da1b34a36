"""The cells of a transfer study: what was measured in each, their means as arrays, and every statistic of them.

acc[t, 0] is the mean metric on target task t without ablation, acc[s, t, k] with the top k heads of source task s ablated:
    drop[s, t, k] = acc[t, 0] - acc[s, t, k]
    fragility   T[t, k] = mean drop over the sources            disruptivity E[s, k] = mean drop over the other targets
    specificity S[s, k] = drop[s, s, k] - E[s, k]               random       R[t, k] = mean drop over random sets of k heads
`relative` divides every drop by acc[t, 0]; NaN where that is 0. Arrays may have leading axes, one entry per resample.

A target has the metric of each item (`Items`) or, in published tables, only counts (`Counts`). Both give means, bootstrap
resamples and random halves, with conditions in the order of the `Layout`.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Float, Int

from lens_heads.heads.grouping import Labels, groups_in
from lens_heads.stats import bootstrap_means
from lens_heads.stats.clusters import whole_clusters

Means: TypeAlias = Float[np.ndarray, "sample condition"]

NONE, RANDOM = "none", "random"
CELL = ["method", "draw", "k"]
"""The columns that identify a cell of a target: method "none" with k = 0 is no ablation, "random" random heads."""
STATISTICS: dict[str, tuple[str, tuple[str, ...]]] = {
    "fragility": ("targets", ("diagonal", "relative")),
    "disruptivity": ("sources", ("diagonal", "relative")),
    "specificity": ("sources", ("relative",)),
    "random": ("targets", ("relative",)),
    "beyond_random": ("targets", ("diagonal", "relative")),
}
"""For each statistic, the tasks in its columns and the options it takes."""


@dataclass(frozen=True, eq=False)
class Cells:
    """Mean metric without ablation, with a source's heads ablated, with random heads; `own` marks each source's own target."""

    base: Float[np.ndarray, "*sample target"]
    ablated: Float[np.ndarray, "*sample source target k"]
    drawn: Float[np.ndarray, "*sample draw target k"]
    own: Bool[np.ndarray, "source target"]

    def drop(self, relative: bool = False, drawn: bool = False) -> Float[np.ndarray, "*sample set target k"]:
        """What is lost without a source's heads, or without random ones (`drawn`)."""
        base, now = self.base[..., None, :, None], self.drawn if drawn else self.ablated
        if not relative:
            return base - now
        if (self.base < 0).any():
            raise ValueError("relative=True requires a non-negative metric. Choose another metric, or relative=False.")
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(base > 0, (base - now) / base, np.nan)

    def fragility(self, diagonal: bool = True, relative: bool = False) -> Float[np.ndarray, "*sample k target"]:
        return _mean(self.drop(relative), ~self.own | diagonal, -3)

    def disruptivity(self, diagonal: bool = False, relative: bool = False) -> Float[np.ndarray, "*sample k source"]:
        return _mean(self.drop(relative), ~self.own | diagonal, -2)

    def specificity(self, relative: bool = False) -> Float[np.ndarray, "*sample k source"]:
        return _mean(self.drop(relative), self.own, -2) - self.disruptivity(relative=relative)

    def random(self, relative: bool = False) -> Float[np.ndarray, "*sample k target"]:
        return self.drop(relative, drawn=True).mean(-3).swapaxes(-1, -2)

    def beyond_random(self, diagonal: bool = True, relative: bool = False) -> Float[np.ndarray, "*sample k target"]:
        return self.fragility(diagonal, relative) - self.random(relative)


def _mean(
    drop: Float[np.ndarray, "*sample source target k"], keep: Bool[np.ndarray, "source target"], axis: int
) -> Float[np.ndarray, "*sample k task"]:
    """Mean over the kept sources (axis -3) or targets (axis -2); NaN if there are none."""
    total = np.where(keep[..., None], drop, 0.0).sum(axis)
    with np.errstate(invalid="ignore"):
        return (total / keep.sum(axis + 1)[:, None]).swapaxes(-1, -2)


@dataclass(frozen=True)
class Layout:
    """The cells of a complete study: no ablation, every source at every k, every random draw at every k."""

    sources: tuple[str, ...]
    targets: tuple[str, ...]
    ks: tuple[int, ...]
    draws: int

    @classmethod
    def of(cls, frame: pd.DataFrame) -> Layout:
        """The layout of a table with the columns method (source), task (target), k and draw. ValueError if it has none."""
        targets = tuple(str(task) for task in frame["task"].unique())
        sources = tuple(str(task) for task in frame["method"].unique() if task not in (NONE, RANDOM))
        for task in sources:
            if task not in targets:
                raise ValueError(f"source {task!r} is not among the targets {', '.join(targets)}. Add its own task.")
        if not sources:
            raise ValueError(f"the table has no source but {NONE!r} and {RANDOM!r}. Add cells with heads ablated.")
        odd = frame[(frame["method"] == NONE) != (frame["k"] == 0)]
        if not odd.empty:
            source, k = odd.iloc[0][["method", "k"]]
            raise ValueError(f"method={source!r}, k={k}: k must be 0 for method={NONE!r}, and only for it")
        drawn = frame.loc[frame["method"] == RANDOM, "draw"]
        ks = sorted({int(k) for k in frame["k"]} - {0})
        return cls(sources, targets, tuple(ks), int(drawn.max()) + 1 if len(drawn) else 0)

    @property
    def conditions(self) -> list[tuple[str, int, int]]:
        """(source, draw, k) of every cell of a target."""
        taken = [(source, 0, k) for source in self.sources for k in self.ks]
        return [(NONE, 0, 0), *taken, *((RANDOM, draw, k) for draw in range(self.draws) for k in self.ks)]

    def ordered(self, table: pd.DataFrame, target: str) -> pd.DataFrame:
        """The rows of a target's table in the order of `conditions`. ValueError names a missing cell."""
        missing = [cell for cell in self.conditions if cell not in table.index]
        if missing:
            source, draw, k = missing[0]
            which = f"source {source!r}, draw {draw}, target {target!r}, k={k}"
            raise ValueError(f"the matrix has no cell for {which}. Run it, or drop that task or k everywhere.")
        return table.loc[self.conditions]

    def cells(self, means: Float[np.ndarray, "*sample condition target"]) -> Cells:
        """The means of all conditions and targets, arranged as cells."""
        by_k = means[..., 1:, :].reshape(*means.shape[:-2], -1, len(self.ks), len(self.targets)).swapaxes(-1, -2)
        ablated, drawn = np.split(by_k, [len(self.sources)], axis=-3)
        own = np.array([[source == target for target in self.targets] for source in self.sources])
        return Cells(means[..., 0, :], ablated, drawn, own)


@dataclass(frozen=True, eq=False)
class Items:
    """The metric of every item. An item is resampled with all its cells, so they stay paired.

    Items of one group are resampled and halved whole; of two kinds that cross, by the one with fewer groups.
    """

    values: Float[np.ndarray, "condition item"]
    ids: tuple[str, ...]
    groups: Labels = ()

    @property
    def n(self) -> int:
        return self.values.shape[1]

    @property
    def units(self) -> int:
        """How many items, or groups of items, are resampled."""
        return self._whole.shape[1]

    @property
    def means(self) -> Float[np.ndarray, " condition"]:
        return self.values.mean(1)

    def resampled(self, n: int, seed: int) -> Means:
        return bootstrap_means(torch.from_numpy(self._whole.T.copy()), n=n, seed=seed).numpy()

    def halves(self, n: int, seed: int) -> tuple[Means, Means]:
        whole, count = self._whole, self._whole.shape[1]
        first = np.random.default_rng(seed).random((n, count)).argsort(1) < count // 2
        return first @ whole.T / (count // 2), ~first @ whole.T / (count - count // 2)

    @cached_property
    def _whole(self) -> Float[np.ndarray, "condition cluster"]:
        """One value per group of items, with the same mean; the values themselves without groups."""
        return whole_clusters(self.values.T, self.groups).T


@dataclass(frozen=True, eq=False)
class Counts:
    """Matches among `n` attempts. Resampling is binomial and halving hypergeometric, independently for each cell."""

    n: int
    matches: Int[np.ndarray, " condition"]

    @property
    def units(self) -> int:
        return self.n

    @property
    def means(self) -> Float[np.ndarray, " condition"]:
        return self.matches / self.n

    def resampled(self, n: int, seed: int) -> Means:
        return np.random.default_rng(seed).binomial(self.n, self.means, size=(n, len(self.matches))) / self.n

    def halves(self, n: int, seed: int) -> tuple[Means, Means]:
        half, size = self.n // 2, (n, len(self.matches))
        first = np.random.default_rng(seed).hypergeometric(self.matches, self.n - self.matches, half, size=size)
        return first / half, (self.matches - first) / (self.n - half)


def items_of(rows: pd.DataFrame, layout: Layout, target: str, metric: str) -> Items:
    """One target's rows of a table with a row per cell and item. ValueError if cells have different items."""
    wide = layout.ordered(rows.pivot(index=CELL, columns="trial", values=metric), target)
    values = wide.to_numpy(dtype=float)
    if np.isnan(values).any():
        cell, item = np.argwhere(np.isnan(values))[0]
        where = dict(zip(CELL, layout.conditions[cell], strict=True))
        missing = f"target {target!r}: item {wide.columns[item]!r} is missing from {where}"
        raise ValueError(f"{missing}. Run it there, or drop it everywhere.")
    return Items(values, tuple(map(str, wide.columns)), groups_in(rows, wide.columns, "trial"))


def counts_of(rows: pd.DataFrame, layout: Layout, target: str) -> Counts:
    """One target's rows of a table with a row per cell. ValueError for impossible counts."""
    table = layout.ordered(rows.set_index(CELL)[["attempts", "matches"]], target)
    attempts, matches = table["attempts"].to_numpy(), table["matches"].to_numpy()
    for cell, tried, right in zip(layout.conditions, attempts, matches, strict=True):
        where = f"target {target!r}, {dict(zip(CELL, cell, strict=True))}"
        if tried != attempts[0]:
            raise ValueError(f"{where}: {tried} attempts, but {attempts[0]} without ablation. Use the same items.")
        if tried < 1 or not 0 <= right <= tried or right != int(right):
            where += f": {right} matches of {tried} attempts"
            raise ValueError(f"{where}. Matches must be an integer from 0 to attempts.")
    return Counts(int(attempts[0]), matches.astype(int))


def seed_of(task: str, seed: int) -> int:
    """A seed per task name, which does not depend on the order of the tasks or on the matrix."""
    return zlib.crc32(f"{seed} {task}".encode())
