"""TransferMatrix: what the heads of every task do to every other task, item by item, and the statistics on it.

The formulas are in `cells.py`, the run in `transfer.py`, published tables in `transfer_files.py`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from jaxtyping import Float

from lens_heads.compare.cells import CELL, STATISTICS, Cells, Layout
from lens_heads.compare.transfer_items import Items, Measured, counts_of, items_of, seed_of
from lens_heads.runs.store import write_atomic
from lens_heads.stats import percentile_interval

if TYPE_CHECKING:
    import plotly.graph_objects as go

ABOUT, KINDS = "transfer.json", ("per_item", "counts")


@dataclass(frozen=True, eq=False)
class TransferMatrix:
    """Every target task without ablation, with every source task's top k heads, and with random heads ablated.

    One of two long tables, both with the columns source ("none" at k = 0, a task, "random"), target, k, draw (0 unless
    random):
    `per_item`: also item and one column per metric; every cell of a target has the same items.
    `counts`: also attempts and matches, for published tables. Resampling is then binomial, cell by cell: what pairs the
    cells of a target (its items) is lost, and a cell of no or all matches has no spread.

    `metric` is the column that the statistics are on (`dataclasses.replace(matrix, metric="contains")` for another). Tables
    of statistics have k as rows and tasks as columns; formulas: `compare.cells`. To leave a task out, leave its rows out of
    the table. Raises ValueError for a missing cell (naming it), items that differ between the cells of a target, NaN, and
    counts that cannot be.
    """

    per_item: pd.DataFrame | None = None
    counts: pd.DataFrame | None = None
    metric: str = "correct"
    meta: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if (self.per_item is None) == (self.counts is None):
            raise ValueError("a transfer matrix is made of per_item or of counts: give one of them")
        measured = ["item", self.metric] if self.counts is None else ["attempts", "matches"]
        columns, table = ["target", *CELL, *measured], self._table
        missing = [column for column in columns if column not in table.columns]
        if missing:
            has = ", ".join(map(str, table.columns))
            raise ValueError(f"the table has no column {', '.join(missing)}: it has {has}")
        bad = table[table[columns].isna().any(axis=1)]
        if not bad.empty:
            raise ValueError(f"{len(bad)} rows hold NaN, the first {dict(bad.iloc[0][columns])}: leave such items out")
        _ = self._measured  # Refuse what cannot be laid out now.

    @property
    def _table(self) -> pd.DataFrame:
        table = self.per_item if self.per_item is not None else self.counts
        assert table is not None
        return table

    @cached_property
    def _layout(self) -> Layout:
        return Layout.of(self._table)

    @cached_property
    def _measured(self) -> dict[str, Measured]:
        found: dict[str, Measured] = {}
        for target in self.targets:
            rows = self._table[self._table["target"] == target]
            counted = self.per_item is None
            found[target] = (
                counts_of(rows, self._layout, target) if counted else items_of(rows, self._layout, target, self.metric)
            )
        return found

    @property
    def sources(self) -> tuple[str, ...]:
        return self._layout.sources

    @property
    def targets(self) -> tuple[str, ...]:
        return self._layout.targets

    @property
    def ks(self) -> tuple[int, ...]:
        """Numbers of heads ablated, without 0."""
        return self._layout.ks

    @property
    def draws(self) -> int:
        """Random sets of heads at every k."""
        return self._layout.draws

    def items(self, target: str) -> tuple[str, ...] | None:
        """Ids of the items of a target, in one order for all matrices; None where only counts are known."""
        found = self._measured[target]
        return found.ids if isinstance(found, Items) else None

    @cached_property
    def cells(self) -> Cells:
        """The mean of the metric in every cell, as arrays in the order of `sources`, `targets` and `ks`."""
        return self._layout.cells(np.stack([target.means for target in self._measured.values()], -1))

    def accuracy(self) -> pd.DataFrame:
        """One row per cell: source, target, k, draw, accuracy (the mean of the metric), items."""
        rows = [
            {**dict(zip(CELL, condition, strict=True)), "target": target, "accuracy": mean, "items": measured.n}
            for target, measured in self._measured.items()
            for condition, mean in zip(self._layout.conditions, measured.means, strict=True)
        ]
        return pd.DataFrame(rows)[["source", "target", "k", "draw", "accuracy", "items"]]

    def drop(self, relative: bool = False) -> pd.DataFrame:
        """acc[t, 0] - acc[s, t, k]: rows (k, source), columns targets; `.loc[k]` is the matrix at one k."""
        rows = pd.MultiIndex.from_product([self.ks, self.sources], names=["k", "source"])
        by_k = np.moveaxis(self.cells.drop(relative), -1, 0)
        return pd.DataFrame(by_k.reshape(-1, len(self.targets)), rows, pd.Index(self.targets, name="target"))

    def fragility(self, diagonal: bool = True, relative: bool = False) -> pd.DataFrame:
        """T[t, k]: mean drop of a target over all sources, its own among them unless `diagonal=False`."""
        return self.statistic("fragility", diagonal=diagonal, relative=relative)

    def disruptivity(self, diagonal: bool = False, relative: bool = False) -> pd.DataFrame:
        """E[s, k]: mean drop that a source's heads cost the other targets, its own too with `diagonal=True`."""
        return self.statistic("disruptivity", diagonal=diagonal, relative=relative)

    def specificity(self, relative: bool = False) -> pd.DataFrame:
        """What a source's heads cost its own task beyond the mean of the others: drop[s, s, k] - E[s, k]."""
        return self.statistic("specificity", relative=relative)

    def beyond_random(self, diagonal: bool = True, relative: bool = False) -> pd.DataFrame:
        """Fragility less the mean drop that as many random heads cost the target."""
        return self.statistic("beyond_random", diagonal=diagonal, relative=relative)

    def random(self, relative: bool = False) -> pd.DataFrame:
        """What random heads cost: a row per k and target with the mean drop, the range of the draws, and their number."""
        self._check("random", {"relative": relative})
        by_draw = self.cells.drop_of_draws(relative).swapaxes(-1, -2).reshape(self.draws, -1)
        frame = pd.MultiIndex.from_product([self.ks, self.targets], names=["k", "target"]).to_frame(index=False)
        return frame.assign(drop=by_draw.mean(0), lowest=by_draw.min(0), highest=by_draw.max(0), draws=self.draws)

    def statistic(self, name: str, **options: bool) -> pd.DataFrame:
        """A statistic of `compare.cells.STATISTICS` by name, with its options: rows k, columns tasks."""
        return self._frame(name, self._compute(name, self.cells, options))

    def resampled(self, name: str, n: int = 1000, seed: int = 0, **options: bool) -> Float[np.ndarray, "sample k task"]:
        """A statistic on n bootstrap resamples of the items, the same resample for all cells of a target.

        Targets are resampled on their own, each from the seed and its name: matrices of the same items and one seed have the
        same resamples. Of random heads the draws are resampled as well.
        """
        drawn = [target.resampled(n, seed_of(name_, seed)) for name_, target in self._measured.items()]
        cells = self._layout.cells(np.stack(drawn, -1))
        picked = np.random.default_rng(seed).integers(max(self.draws, 1), size=(n, self.draws))
        cells = replace(cells, drawn=np.take_along_axis(cells.drawn, picked[:, :, None, None], 1))
        return self._compute(name, cells, options)

    def halves(
        self, name: str, n: int = 100, seed: int = 0, **options: bool
    ) -> tuple[Float[np.ndarray, "sample k task"], Float[np.ndarray, "sample k task"]]:
        """A statistic on either half of n random halvings of every target's items. Targets need two items."""
        self._check_spread()
        both = [target.halves(n, seed_of(name_, seed)) for name_, target in self._measured.items()]
        first, second = (self._layout.cells(np.stack(side, -1)) for side in zip(*both, strict=True))
        return self._compute(name, first, options), self._compute(name, second, options)

    def interval(
        self, name: str, level: float = 0.95, n: int = 1000, seed: int = 0, **options: bool
    ) -> tuple[pd.DataFrame, pd.DataFrame]:
        """(low, high) of a statistic by percentile bootstrap over items (`resampled`), each with rows k, columns tasks.

        A resample in which a relative drop has no baseline is left out. ValueError where a target has one item.
        """
        self._check_spread()
        low, high = percentile_interval(self.resampled(name, n, seed, **options), level)
        return self._frame(name, low), self._frame(name, high)

    def plot(self, k: int | None = None, relative: bool = False, title: str | None = None) -> go.Figure:
        """Heat map of the drops, source by target, at one k (the largest by default)."""
        from lens_heads import plots

        return plots.transfer_map(self, self.ks[-1] if k is None else k, relative, title)

    def save(self, folder: str | Path) -> Path:
        """Write the long table (`per_item.parquet` or `counts.parquet`) and `transfer.json` (metric, meta)."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        self._table.to_parquet(folder / f"{KINDS[self.per_item is None]}.parquet", index=False)
        about = {"metric": self.metric, "meta": self.meta}
        write_atomic(folder / ABOUT, json.dumps(about, indent=2, default=str) + "\n")
        return folder

    @classmethod
    def load(cls, folder: str | Path) -> TransferMatrix:
        """Read what `save` wrote. FileNotFoundError names the file that is missing."""
        files = {kind: Path(folder) / f"{kind}.parquet" for kind in KINDS}
        about, found = Path(folder) / ABOUT, [kind for kind, file in files.items() if file.exists()]
        if not found or not about.exists():
            missing = about if found else files["per_item"]
            raise FileNotFoundError(f"{missing} is missing: {folder} holds no finished transfer matrix")
        table = {found[0]: pd.read_parquet(files[found[0]])}
        return cls(**table, **json.loads(about.read_text(encoding="utf-8")))

    def _compute(self, name: str, cells: Cells, options: dict[str, bool]) -> Float[np.ndarray, "*sample k task"]:
        self._check(name, options)
        return getattr(cells, name)(**options)

    def _frame(self, name: str, values: Float[np.ndarray, "k task"]) -> pd.DataFrame:
        axis = STATISTICS[name][0]
        return pd.DataFrame(values, pd.Index(self.ks, name="k"), pd.Index(getattr(self, axis), name=axis[:-1]))

    def _check(self, name: str, options: dict[str, bool]) -> None:
        if name not in STATISTICS:
            raise ValueError(f"unknown statistic {name!r}: there are {', '.join(STATISTICS)}")
        wrong = [option for option in options if option not in STATISTICS[name][1]]
        if wrong:
            raise ValueError(f"{name} has no option {wrong[0]!r}: it takes {', '.join(STATISTICS[name][1])}")
        if "random" in name and not self.draws:
            raise ValueError("no random heads were ablated: run with random_draws of 1 or more")

    def _check_spread(self) -> None:
        single = [target for target, measured in self._measured.items() if measured.n < 2]
        if single:
            raise ValueError(
                f"target {single[0]!r} has one item, which tells no spread: evaluate more, or leave it out"
            )

    def __repr__(self) -> str:
        items = sum(measured.n for measured in self._measured.values())
        what = f"{len(self.sources)} sources x {len(self.targets)} targets, k = {list(self.ks)}, {items} items"
        return f"TransferMatrix({what}, {self.metric}, {self.draws} random draws)"

    def _repr_html_(self) -> str:
        return f"{self!r}<br>fragility" + self.fragility().to_html(float_format=lambda x: f"{x:.3f}")
