"""Bench: the table of methods over models and tasks, of `Cell`s: what one model and task say about every method.

All numbers are views of values per trial. What is stored is read again with every field, column and row checked.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import torch

from lens_heads.ranking.registry import methods
from lens_heads.runs.drawn import Drawn
from lens_heads.runs.reading import user_path
from lens_heads.runs.tables import write_table
from lens_heads.runs.typed import typed_methods
from lens_heads.sanity.quality import QUALITIES, over_seeds
from lens_heads.stats import mean_interval

if TYPE_CHECKING:
    import plotly.graph_objects as go
from lens_heads.studies.ranking_methods.cell import RANDOM, Cell
from lens_heads.studies.ranking_methods.stored_cells import CELL, read_planted

PLANTED = "planted.parquet"


@typed_methods
@dataclass(frozen=True, eq=False)
class Bench(Drawn):
    """The result of `studies.bench`: a `Cell` per model and task, and `planted`, a row per method and planted model.

    `cells`: as said.

    Example:
        >>> plan = lh.studies.bench(model, "arithmetic", ["dla"], arguments={"digits": 1}, plan=True)
        bench: what it would cost, in passes of one trial ...
        >>> isinstance(plan, lh.Bench), len(plan.cells)
        (True, 0)
    """

    cells: Sequence[Cell]
    planted: pd.DataFrame

    @cached_property
    def frame(self) -> pd.DataFrame:
        """A row per model, task and method, the most damaging first; "random heads" are all random sets together.

        passes, seconds: cost, relative to one plain pass over the selection trials.
        damage: nats per token that ablating the top k heads takes from the answer; area: the same, averaged over log k.
        beyond_random: the area less that of random heads. share: the damage as a share of that of the best method known by the
        other half of the test trials (`best` names it, or both).
        elsewhere: the damage on another task; specific: damage less elsewhere.
        cpr, cpr_log: area under faithfulness over the share of heads and its logarithm; cmd: MIB's distance from 1;
        heads_for_80: the fewest heads kept that give 80 % of the effect of all (NaN: more than were measured).
        stability: Jaccard of the top k of two halves of the trials; chance: that of random sets.
        auroc, average_precision, precision: on models with planted heads.

        Most have 95 % bounds in `<name>_low` and `<name>_high`, over trials (and draws; for these three, over models).
        """
        if not self.cells:
            return pd.DataFrame({"method": []})
        rows = pd.concat([cell.frame for cell in self.cells], ignore_index=True)
        known = self._known.reindex(rows["method"].where(rows["method"] != RANDOM, "")).reset_index(drop=True)
        found = pd.concat([rows, known], axis=1)
        found.loc[found["method"] == RANDOM, "auroc"] = 0.5
        first = ["model", "task", "method", "family", "passes", "seconds"]
        found = found[[*first, *(name for name in found if name not in first)]]
        return found.sort_values(["model", "task", "area"], ascending=[True, True, False], ignore_index=True)

    @cached_property
    def _known(self) -> pd.DataFrame:
        """A row per method: every quality on the planted models, with its bounds."""
        rows = {}
        for name, own in self.planted.groupby("method"):
            found = over_seeds(own).set_index("metric")
            rows[name] = {metric: found.loc[metric, "value"] for metric in QUALITIES}
            rows[name] |= {f"{metric}_{end}": found.loc[metric, end] for metric in QUALITIES for end in ("low", "high")}
        columns = [f"{metric}{end}" for metric in QUALITIES for end in ("", "_low", "_high")]
        return pd.DataFrame.from_dict(rows, orient="index", columns=columns)

    @cached_property
    def overall(self) -> pd.DataFrame:
        """A row per method, over all models and the tasks that they do: see `across`."""
        idle = {(cell.model, cell.task) for cell in self.cells if cell.does is False}
        done = [pair not in idle for pair in zip(self.frame["model"], self.frame["task"], strict=True)]
        known = [methods[name] for name in self.frame["method"].unique() if name in methods]
        apart = {pair for method in known for pair in method.made_on}
        return across(self.frame[done] if any(done) else self.frame, apart=apart)

    def cell(self, model: str | None = None, task: str | None = None) -> Cell:
        """The cell of a model and task; either may be omitted if there is one. ValueError for one that does not exist."""
        found = [one for one in self.cells if model in (None, one.model) and task in (None, one.task)]
        if len(found) != 1:
            known = ", ".join(f"{one.model} {one.task}" for one in self.cells)
            raise ValueError(f"{len(found)} cells fit model={model!r}, task={task!r}: there is {known}")
        return found[0]

    def plot(self, model: str | None = None, task: str | None = None, title: str | None = None) -> go.Figure:
        """Quality against cost with the Pareto front: the area of damage in one cell, or, over several, the share of the best."""
        from lens_heads import plots

        chosen = [one for one in self.cells if model in (None, one.model) and task in (None, one.task)]
        if len(chosen) > 1:
            table = Bench(chosen, self.planted).overall
            what = f"share of the best known damage, mean over {table['cells'].max()} models and tasks"
            return plots.quality_cost(
                table, "share", what, title=title or "What a ranking of heads costs, and what it finds"
            )
        cell = self.cell(model, task)
        rows = self.frame[(self.frame["model"] == cell.model) & (self.frame["task"] == cell.task)]
        heading = title or f"{cell.model}, {cell.task}: what a ranking costs, and what it finds"
        return plots.quality_cost(rows, "area", "damage averaged over log k (nats per token)", title=heading)

    def save(self, folder: str | Path) -> Path:
        """Write every cell's values per trial, and those of the planted models."""
        folder = user_path(folder, "folder")
        for cell in self.cells:
            cell.save(folder / cell.model / cell.task)
        write_table(folder / PLANTED, self.planted)
        return folder

    @classmethod
    def load(cls, folder: str | Path) -> Bench:
        """Read what `save` wrote, or a run folder.

        FileNotFoundError for a folder without any cell; ValueError naming file, field and remedy for anything damaged (see
        `read_cell`), and for two cells of one model and task.
        """
        folder = user_path(folder, "folder")
        files = sorted(folder.glob(f"*/*/{CELL}"))
        if not files:
            raise FileNotFoundError(f"{folder} holds no table of methods: pass the --out folder of lens-heads bench")
        known: dict[tuple[str, str], Path] = {}
        cells = [Cell.load(file.parent) for file in files]
        for file, cell in zip(files, cells, strict=True):
            first = known.setdefault((cell.model, cell.task), file)
            if first is not file:
                raise ValueError(
                    f"{file}: task is {cell.task!r} of model {cell.model!r}, as in {first}: keep one of them in {folder}"
                )
        table = folder / PLANTED
        planted = read_planted(table) if table.exists() else pd.DataFrame({"method": [], "auroc": []})
        return cls(cells, planted)

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        return super()._repr_mimebundle_(include, exclude) if self.cells else {}

    def __repr__(self) -> str:
        return f"Bench({', '.join(f'{one.model} {one.task}: {len(one.methods)} methods' for one in self.cells)})"


def across(frame: pd.DataFrame, *, apart: Collection[tuple[str, str]] = ()) -> pd.DataFrame:
    """A row per method, over the models and tasks of `Bench.frame` that every method ran on, the largest mean share first.

    Columns: family, cells (models and tasks), passes (geometric mean), share (mean, with its interval), least and most of any
    cell, made_on, rank (mean; 1 has the largest area), cpr_log and stability (means), auroc. All rows rest on the same cells;
    without a cell that all methods have, on each one's own.

    `apart`: models and tasks that some method was made on, which cannot test it. They enter a row by `made_on` alone, the mean
    share there, unless there are no others. Models and tasks cross in the interval of the share: none below five of either.
    """
    table = frame.assign(rank=frame.groupby(["model", "task"])["area"].rank(ascending=False))
    table = table.sort_values(["model", "task"], kind="stable")
    everywhere = table.groupby(["model", "task"])["method"].transform("nunique") == table["method"].nunique()
    table = table[everywhere] if everywhere.any() else table
    inside = pd.Series([pair in apart for pair in zip(table["model"], table["task"], strict=True)], table.index)
    table, made_on = (table[~inside], table[inside]) if not inside.all() else (table, table[:0])
    there = made_on.groupby("method")["share"].mean()
    rows = []
    for method, own in table.groupby("method", sort=False):
        shares = own["share"].dropna()
        low, high = _crossed(own.loc[shares.index])
        row = {"method": method, "family": own["family"].iloc[0], "cells": len(own)}
        row |= {"passes": float(np.exp(np.log(own["passes"].clip(lower=0.1)).mean())) if method != RANDOM else 0.0}
        row |= {
            "share": shares.mean(),
            "share_low": low,
            "share_high": high,
            "least": shares.min(),
            "most": shares.max(),
        }
        row |= {"made_on": there.get(method, float("nan"))}
        row |= {name: own[name].mean() for name in ("rank", "cpr_log", "stability")}
        rows.append(row | {"auroc": own["auroc"].iloc[0]})
    return pd.DataFrame(rows).sort_values("share", ascending=False, ignore_index=True)


def _crossed(own: pd.DataFrame) -> tuple[float, float]:
    """The bounds of the mean share, over models and tasks that cross; NaN without any."""
    if own.empty:
        return float("nan"), float("nan")
    values = torch.tensor(own["share"].to_numpy(float))
    _, low, high = mean_interval(values, groups=[list(own["model"]), list(own["task"])])
    return float(low), float(high)
