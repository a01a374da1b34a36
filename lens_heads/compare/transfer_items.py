"""What was measured on one target task in every cell: the metric of each item or, for published tables, only counts.

Both kinds provide means, bootstrap resamples and random halves, with conditions (cells) in the order of the layout.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float, Int

from lens_heads.compare.cells import CELL, Layout
from lens_heads.stats import bootstrap_means

Means: TypeAlias = Float[np.ndarray, "sample condition"]


@dataclass(frozen=True, eq=False)
class Items:
    """The metric of every item. An item is resampled with all its cells, so they stay paired."""

    values: Float[np.ndarray, "condition item"]
    ids: tuple[str, ...]

    @property
    def n(self) -> int:
        return self.values.shape[1]

    @property
    def means(self) -> Float[np.ndarray, " condition"]:
        return self.values.mean(1)

    def resampled(self, n: int, seed: int) -> Means:
        return bootstrap_means(torch.from_numpy(self.values.T.copy()), n, seed).numpy()

    def halves(self, n: int, seed: int) -> tuple[Means, Means]:
        half = self.n // 2
        first = np.random.default_rng(seed).random((n, self.n)).argsort(1) < half
        return first @ self.values.T / half, ~first @ self.values.T / (self.n - half)


@dataclass(frozen=True, eq=False)
class Counts:
    """Matches among `n` attempts. Resampling is binomial and halving hypergeometric, independently for each cell."""

    n: int
    matches: Int[np.ndarray, " condition"]

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
    wide = layout.ordered(rows.pivot(index=CELL, columns="item", values=metric), target)
    values = wide.to_numpy(dtype=float)
    if np.isnan(values).any():
        cell, item = np.argwhere(np.isnan(values))[0]
        where = dict(zip(CELL, layout.conditions[cell], strict=True))
        missing = f"target {target!r}: item {wide.columns[item]!r} is missing from {where}"
        raise ValueError(f"{missing}. Run it there, or drop it everywhere.")
    return Items(values, tuple(map(str, wide.columns)))


def counts_of(rows: pd.DataFrame, layout: Layout, target: str) -> Counts:
    """One target's rows of a table with a row per cell. ValueError for impossible counts."""
    table = layout.ordered(rows.set_index(CELL)[["attempts", "matches"]], target)
    attempts, matches = table["attempts"].to_numpy(), table["matches"].to_numpy()
    for cell, tried, right in zip(layout.conditions, attempts, matches, strict=True):
        where = f"target {target!r}, {dict(zip(CELL, cell, strict=True))}"
        if tried != attempts[0]:
            raise ValueError(f"{where}: {tried} attempts, but {attempts[0]} without ablation. Use the same items.")
        if tried < 1 or not 0 <= right <= tried or right != int(right):
            raise ValueError(
                f"{where}: {right} matches of {tried} attempts. Matches must be an integer from 0 to attempts."
            )
    return Counts(int(attempts[0]), matches.astype(int))


def seed_of(target: str, seed: int) -> int:
    """A seed per target name, so that equal names and seeds give equal resamples in any matrix."""
    return zlib.crc32(f"{seed} {target}".encode())
