"""TransferMatrix: the effect of every task's heads on every other task, item by item, and its statistics.

`transfer_cells.py` has the formulas, `transfer.py` runs the ablations, and `transfer_files.py` reads published tables.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float

from lens_heads.evidence.transfer_cells import (
    CELL,
    NONE,
    RANDOM,
    STATISTICS,
    Cells,
    Counts,
    Items,
    Layout,
    counts_of,
    items_of,
    seed_of,
)
from lens_heads.evidence.transfer_intervals import contributions, of_items, of_samples
from lens_heads.heads.conditions import KEY, with_key
from lens_heads.runs import checks
from lens_heads.runs.drawn import Drawn
from lens_heads.runs.tables import read_tables, write_tables
from lens_heads.runs.typed import typed_methods
from lens_heads.stats import Interval
from lens_heads.stats.intervals import FEWEST

if TYPE_CHECKING:
    import plotly.graph_objects as go

ABOUT, KINDS = "transfer.json", ("per_trial", "counts", "per_item")
"""The files; the last is what older folders have in place of the first."""


@typed_methods
@dataclass(frozen=True, eq=False)
class TransferMatrix(Drawn):
    """Every target task without ablation, with every source task's top k heads ablated, and with random heads ablated.

    Holds one of two long tables, both with method (the source: "none" at k = 0, a task, or "random"), k, draw (0 unless random)
    and task (the target). `per_trial`: also set, trial and one column per metric; every cell of a target has the same trials.
    `counts`: also attempts and matches, for published tables. Resampling is then binomial, independently for each cell: the
    pairing of cells by trial is lost, and a cell with no matches or only matches has no spread.

    `metric` is the column that the statistics use; `dataclasses.replace(matrix, metric="contains")` selects another. Tables
    of statistics have k as rows and tasks as columns; `transfer_cells.py` has the formulas. To exclude a task, remove its rows.

    Raises ValueError for a missing cell, items that differ between the cells of a target, NaN, and impossible counts.

    `meta`: the settings.

    Example:
        >>> tasks = {"first": others[:2], "second": planted.trials(2, seed=2)}
        >>> found = lh.evidence.transfer_matrix(
        ...     model, tasks, {"first": scores}, ks=[2], kind="zero", metric="greedy_match", generate=False, controls=()
        ... )
        >>> found.statistic("fragility")
        target  first  second
        k
        2         1.0     1.0
    """

    per_trial: pd.DataFrame | None = None
    counts: pd.DataFrame | None = None
    metric: str = "correct"
    meta: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if (self.per_trial is None) == (self.counts is None):
            raise ValueError("a TransferMatrix requires exactly one of per_trial and counts")
        name, measured = (
            ("per_trial", ["trial", self.metric]) if self.counts is None else ("counts", ["attempts", "matches"])
        )
        object.__setattr__(self, name, with_key(self._table))
        columns, table = ["task", *CELL, *measured], self._table
        missing = [column for column in columns if column not in table.columns]
        if missing:
            raise ValueError(f"the table has no column {', '.join(missing)}. It has {list(table.columns)}.")
        bad = table[table[columns].isna().any(axis=1)]
        if not bad.empty:
            first = bad[columns].to_dict("records")[0]
            raise ValueError(f"{len(bad)} rows contain NaN, first {first}. Drop those trials.")
        twice = table[table.duplicated([column for column in columns if column in ("task", *CELL, "trial")])]
        if not twice.empty:
            first = twice[columns].to_dict("records")[0]
            raise ValueError(f"the table repeats the cell or trial {first}. Keep one row.")
        _ = self._measured  # Refuse an incomplete table now.

    @property
    def _table(self) -> pd.DataFrame:
        return next(table for table in (self.per_trial, self.counts) if table is not None)

    @cached_property
    def _layout(self) -> Layout:
        return Layout.of(self._table)

    @cached_property
    def _measured(self) -> dict[str, Items | Counts]:
        by_target = {target: self._table[self._table["task"] == target] for target in self.targets}
        if self.per_trial is None:
            return {target: counts_of(rows, self._layout, target) for target, rows in by_target.items()}
        return {target: items_of(rows, self._layout, target, self.metric) for target, rows in by_target.items()}

    @property
    def sources(self) -> tuple[str, ...]:
        return self._layout.sources

    @property
    def targets(self) -> tuple[str, ...]:
        return self._layout.targets

    @property
    def ks(self) -> tuple[int, ...]:
        """Numbers of ablated heads, without 0."""
        return self._layout.ks

    @property
    def draws(self) -> int:
        """Random sets of heads at every k."""
        return self._layout.draws

    def items(self, target: str) -> tuple[str, ...] | None:
        """Ids of a target's items, in the same order for all matrices; None if only counts are known."""
        found = self._measured[target]
        return found.ids if isinstance(found, Items) else None

    @cached_property
    def cells(self) -> Cells:
        """Mean metric per cell, as arrays in the order of `sources`, `targets` and `ks`."""
        return self._layout.cells(np.stack([target.means for target in self._measured.values()], -1))

    @property
    def frame(self) -> pd.DataFrame:
        """One row per cell: method, set, k, draw, task, metric, value (its mean), trials."""
        cells, measured = pd.DataFrame(self._layout.conditions, columns=CELL), self._measured.items()
        cells = cells.assign(set=cells["method"].where(cells["method"].isin([NONE, RANDOM]), "top"), metric=self.metric)
        tables = [cells.assign(task=target, value=found.means, trials=found.n) for target, found in measured]
        return pd.concat(tables, ignore_index=True)[[*KEY[:5], "metric", "value", "trials"]]

    def drop(self, *, relative: bool = False) -> pd.DataFrame:
        """acc[t, 0] - acc[s, t, k]: rows (k, source), columns targets; `.loc[k]` is the matrix at one k."""
        rows = pd.MultiIndex.from_product([self.ks, self.sources], names=["k", "source"])
        by_k = np.moveaxis(self.cells.drop(relative), -1, 0)
        return pd.DataFrame(by_k.reshape(-1, len(self.targets)), rows, pd.Index(self.targets, name="target"))

    def fragility(self, *, diagonal: bool = True, relative: bool = False) -> pd.DataFrame:
        """T[t, k]: mean drop of a target over all sources, including its own unless `diagonal=False`."""
        return self.statistic("fragility", diagonal=diagonal, relative=relative)

    def disruptivity(self, *, diagonal: bool = False, relative: bool = False) -> pd.DataFrame:
        """E[s, k]: mean drop that a source's heads cause in the other targets; `diagonal=True` includes its own."""
        return self.statistic("disruptivity", diagonal=diagonal, relative=relative)

    def specificity(self, *, relative: bool = False) -> pd.DataFrame:
        """S[s, k] = drop[s, s, k] - E[s, k]: drop of a source's own task minus the mean drop of the others."""
        return self.statistic("specificity", relative=relative)

    def beyond_random(self, *, diagonal: bool = True, relative: bool = False) -> pd.DataFrame:
        """Fragility minus the mean drop from as many random heads."""
        return self.statistic("beyond_random", diagonal=diagonal, relative=relative)

    def random(self, *, relative: bool = False) -> pd.DataFrame:
        """Drop from random heads: a row per k and target with the mean, the range over draws, and the number of draws."""
        self._check("random", {"relative": relative})
        by_draw = self.cells.drop(relative, drawn=True).swapaxes(-1, -2).reshape(self.draws, -1)
        frame = pd.MultiIndex.from_product([self.ks, self.targets], names=["k", "target"]).to_frame(index=False)
        return frame.assign(drop=by_draw.mean(0), lowest=by_draw.min(0), highest=by_draw.max(0), draws=self.draws)

    def statistic(self, name: str, **options: bool) -> pd.DataFrame:
        """A statistic from `transfer_cells.STATISTICS` by name, with its options: rows k, columns tasks."""
        return self._frame(name, self._compute(name, self.cells, options))

    def resampled(
        self, name: str, *, n: int = 1000, seed: int = 0, **options: bool
    ) -> Float[np.ndarray, "sample k task"]:
        """A statistic on n bootstrap resamples of the items; all cells of a target use the same resample.

        Each target is resampled independently, seeded by its name and `seed`: matrices with the same items and seed get the
        same resamples. The draws of random heads are resampled as well.
        """
        checks.count("n", n)
        checks.seed(seed)
        drawn = [measured.resampled(n, seed_of(target, seed)) for target, measured in self._measured.items()]
        cells = self._layout.cells(np.stack(drawn, -1))
        picked = np.random.default_rng(seed).integers(max(self.draws, 1), size=(n, self.draws))
        cells = replace(cells, drawn=np.take_along_axis(cells.drawn, picked[:, :, None, None], 1))
        return self._compute(name, cells, options)

    def halves(
        self, name: str, *, n: int = 100, seed: int = 0, **options: bool
    ) -> tuple[Float[np.ndarray, "sample k task"], Float[np.ndarray, "sample k task"]]:
        """A statistic on both halves of n random splits of every target's items. Every target needs two items or groups."""
        checks.count("n", n)
        checks.seed(seed)
        self._check_spread()
        both = [measured.halves(n, seed_of(target, seed)) for target, measured in self._measured.items()]
        first, second = (self._layout.cells(np.stack(side, -1)) for side in zip(*both, strict=True))
        return self._compute(name, first, options), self._compute(name, second, options)

    def interval(
        self, name: str, *, level: float = 0.95, n: int = 2000, seed: int = 0, **options: bool
    ) -> Interval[pd.DataFrame]:
        """A statistic with its bounds over items and draws of random heads, each with rows k, columns tasks.

        `compare.cell_intervals` has the method; counts have percentiles of `resampled`. `n`: resamples. NaN where a target that
        enters the statistic has fewer than five items or groups of items and, if `relative`, where its mean without ablation is
        not clearly above zero.
        """
        values = self._compute(name, self.cells, options)
        alone = np.broadcast_to(np.eye(values.shape[-1], dtype=bool), (len(values), *[values.shape[-1]] * 2))
        low, high = np.moveaxis(self._bounds(name, alone, options, level, (n, seed)), -1, 0)
        return Interval(self._frame(name, values), self._frame(name, low), self._frame(name, high), level)

    def over_tasks(
        self, name: str, *, level: float = 0.95, n: int = 2000, seed: int = 0, **options: bool
    ) -> pd.DataFrame:
        """The mean of a statistic over its tasks, with bounds as in `interval`: rows k, columns value, low, high.

        The tasks are the measured ones, not a sample of tasks. Tasks without a relative drop are omitted.
        """
        values = self._compute(name, self.cells, options)
        told = np.isfinite(values)
        means = [row[kept].mean() if kept.any() else np.nan for row, kept in zip(values, told, strict=True)]
        bounds = self._bounds(name, told[:, None], options, level, (n, seed))[:, 0]
        return pd.DataFrame(
            {"value": means, "low": bounds[:, 0], "high": bounds[:, 1]}, index=pd.Index(self.ks, name="k")
        )

    def _bounds(
        self,
        name: str,
        averaged: Bool[np.ndarray, "k column task"],
        options: dict[str, bool],
        level: float,
        draw: tuple[int, int],
    ) -> Float[np.ndarray, "k column 2"]:
        """(low, high) of a statistic's mean over the tasks of each column; `draw`: resamples and seed."""
        checks.level(level)
        if self.per_trial is None:
            enough = min(measured.n for measured in self._measured.values()) >= FEWEST
            return of_samples(self.resampled(name, n=draw[0], seed=draw[1], **options), averaged, level) * (
                1 if enough else np.nan
            )
        items = {target: measured for target, measured in self._measured.items() if isinstance(measured, Items)}
        found, bounds = contributions(self._layout, items, name, options), np.empty((*averaged.shape[:2], 2))
        for k, column in np.ndindex(averaged.shape[:2]):
            bounds[k, column] = of_items(found, k, averaged[k, column], level, draw)[1:]
        return bounds

    def plot(self, k: int | None = None, *, relative: bool = False, title: str | None = None) -> go.Figure:
        """Heat map of the drops, source by target, at one k (default: the largest)."""
        from lens_heads import plots

        return plots.transfer_map(self, k=self.ks[-1] if k is None else k, relative=relative, title=title)

    def save(self, folder: str | Path) -> Path:
        """Write the long table (`per_trial.parquet` or `counts.parquet`) and `transfer.json` (metric, meta)."""
        table = {KINDS[self.per_trial is None]: self._table}
        return write_tables(folder, table, ABOUT, {"metric": self.metric, "meta": self.meta})

    @classmethod
    def load(cls, folder: str | Path) -> TransferMatrix:
        """Read what `save` wrote. FileNotFoundError names a missing file."""
        kind = next((kind for kind in KINDS if (Path(folder) / f"{kind}.parquet").exists()), KINDS[0])
        table, rest = read_tables(folder, [kind], ABOUT, cls.__name__)
        return cls(**{name.replace("item", "trial"): rows for name, rows in table.items()}, **rest)

    def _compute(self, name: str, cells: Cells, options: dict[str, bool]) -> Float[np.ndarray, "*sample k task"]:
        self._check(name, options)
        return getattr(cells, name)(**options)

    def _frame(self, name: str, values: Float[np.ndarray, "k task"]) -> pd.DataFrame:
        axis = STATISTICS[name][0]
        return pd.DataFrame(values, pd.Index(self.ks, name="k"), pd.Index(getattr(self, axis), name=axis[:-1]))

    def _check(self, name: str, options: dict[str, bool]) -> None:
        if name not in STATISTICS:
            raise ValueError(f"unknown statistic {name!r}. Choose from {', '.join(STATISTICS)}.")
        wrong = [option for option in options if option not in STATISTICS[name][1]]
        if wrong:
            raise ValueError(f"{name} has no option {wrong[0]!r}. It takes {', '.join(STATISTICS[name][1])}.")
        if "random" in name and not self.draws:
            raise ValueError(f"{name} requires random heads, which were not ablated. Run with controls='random'.")

    def _check_spread(self) -> None:
        single = [target for target, measured in self._measured.items() if measured.units < 2]
        if single:
            raise ValueError(
                f"target {single[0]!r} has only one item, or group of items, so it has no spread. Add items, or omit it."
            )

    def __repr__(self) -> str:
        items = sum(measured.n for measured in self._measured.values())
        what = f"{len(self.sources)} sources x {len(self.targets)} targets, k = {list(self.ks)}, {items} items"
        return f"TransferMatrix({what}, {self.metric}, {self.draws} random draws)"

    def _repr_html_(self) -> str:
        return f"{self!r}<br>fragility" + self.fragility().to_html(float_format=lambda x: f"{x:.3f}")
