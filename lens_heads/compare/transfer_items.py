"""What was measured on one target task, in every cell: the metric of each item, or, of published tables, counts alone.

Both give means, bootstrap resamples and random halves, conditions (cells) in the order of the layout.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float, Int

from lens_heads.compare.cells import CELL, Layout
from lens_heads.stats import bootstrap_means

Means = Float[np.ndarray, "sample condition"]


class Measured(Protocol):
    """The items of a target under every condition."""

    @property
    def n(self) -> int: ...

    @property
    def means(self) -> Float[np.ndarray, " condition"]: ...

    def resampled(self, n: int, seed: int) -> Means: ...

    def halves(self, n: int, seed: int) -> tuple[Means, Means]: ...


@dataclass(frozen=True, eq=False)
class Items:
    """The metric of every item: an item is resampled with all its cells, so that these stay paired."""

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
    """Matches among `n` attempts: resampling is binomial and halving hypergeometric, each cell on its own."""

    n: int
    matches: Int[np.ndarray, " condition"]

    @property
    def means(self) -> Float[np.ndarray, " condition"]:
        return self.matches / self.n

    def resampled(self, n: int, seed: int) -> Means:
        return np.random.default_rng(seed).binomial(self.n, self.means, size=(n, len(self.matches))) / self.n

    def halves(self, n: int, seed: int) -> tuple[Means, Means]:
        half = self.n // 2
        first = np.random.default_rng(seed).hypergeometric(
            self.matches, self.n - self.matches, half, size=(n, len(self.matches))
        )
        return first / half, (self.matches - first) / (self.n - half)


def items_of(rows: pd.DataFrame, layout: Layout, target: str, metric: str) -> Items:
    """One target's rows of a table with a row per cell and item. ValueError where cells have different items."""
    wide = layout.ordered(_unique(rows, [*CELL, "item"]).pivot(index=CELL, columns="item", values=metric), target)
    values = wide.to_numpy(dtype=float)
    if np.isnan(values).any():
        cell, item = np.argwhere(np.isnan(values))[0]
        where = dict(zip(CELL, layout.conditions[cell], strict=True))
        raise ValueError(
            f"target {target!r}: item {wide.columns[item]!r} is in other cells but not in {where}: drops are paired, so run "
            "it there, or leave it out everywhere"
        )
    return Items(values, tuple(map(str, wide.columns)))


def counts_of(rows: pd.DataFrame, layout: Layout, target: str) -> Counts:
    """One target's rows of a table with a row per cell. ValueError for counts that cannot be."""
    table = layout.ordered(_unique(rows, CELL).set_index(CELL)[["attempts", "matches"]], target)
    attempts, matches = table["attempts"].to_numpy(), table["matches"].to_numpy()
    for cell, tried, right in zip(layout.conditions, attempts, matches, strict=True):
        where = f"target {target!r}, {dict(zip(CELL, cell, strict=True))}"
        if tried != attempts[0]:
            raise ValueError(
                f"{where}: {tried} attempts, but {attempts[0]} without ablation: cells need the same items"
            )
        if tried < 1 or not 0 <= right <= tried or right != int(right):
            raise ValueError(f"{where}: {right} matches of {tried} attempts cannot be: whole numbers, 0 to attempts")
    return Counts(int(attempts[0]), matches.astype(int))


def seed_of(target: str, seed: int) -> int:
    """Targets are resampled on their own; equal names and seeds give equal resamples, in whichever matrix."""
    return zlib.crc32(f"{seed} {target}".encode())


def _unique(rows: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    twice = rows[rows.duplicated(keys)]
    if not twice.empty:
        first = {"target": rows["target"].iloc[0], **twice.iloc[0][keys]}
        raise ValueError(f"the table has {first} more than once: keep one")
    return rows
