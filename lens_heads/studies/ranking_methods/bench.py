"""Bench: the table of methods over models and tasks, of `Cell`s: what one model and task say about every method.

All numbers are views of values per trial. What is stored is read again with every field, column and row checked.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
import pandas as pd
import torch

from lens_heads.evidence.areas import over_log_k
from lens_heads.evidence.curve_results import AblationCurve, check_table
from lens_heads.evidence.faithfulness_results import ALL, FaithfulnessCurve
from lens_heads.heads.conditions import Condition, with_key
from lens_heads.runs.drawn import Drawn
from lens_heads.runs.fields import Fields, check_columns
from lens_heads.runs.files import write_atomic
from lens_heads.runs.reading import read_json, user_path
from lens_heads.runs.tables import read_table, write_table
from lens_heads.runs.typed import typed_methods
from lens_heads.sanity.quality import QUALITIES, over_seeds
from lens_heads.stats import Interval, crossed_interval, difference, ratio_interval
from lens_heads.studies.finding import plain

if TYPE_CHECKING:
    import plotly.graph_objects as go


CELL = "cell.json"
REMEDY = "delete its folder and run lens-heads bench again with the same --out, or save the Bench again"


def read_cell(folder: Path, metric: str, reserved: str) -> dict[str, Any]:
    """The fields of the `Cell` in a folder. `metric`: what every ablated trial has; `reserved`: what no method is called.

    FileNotFoundError for a folder without it. ValueError naming the file and field or row for anything that is damaged, of
    another task or model, lacks a method, or is not finite.
    """
    file = folder / CELL
    if not file.exists():
        raise FileNotFoundError(f"{file} is missing: {folder} holds no finished table of methods")
    read = Fields(file, read_json(file), REMEDY)
    model, task, k = read.text("model"), read.text("task"), read.whole("k", 1)
    about = _about(read, reserved)
    metas = read.inside("meta")
    curve, other = (_curve(folder, metas.inside(name), name, metric) for name in ("curve", "other"))
    kept = _kept(folder, metas.inside("kept")) if "kept" in metas.found else None
    _check_task(metas.inside("curve"), folder / "curve.parquet", curve, task)
    _check_task(metas.inside("other"), folder / "other.parquet", other, metas.inside("other").text("task"))
    parts = [metas.inside(name) for name in ("curve", "other", *["kept"] * (kept is not None))]
    for part in parts[1:]:
        if part.text("weights") != parts[0].text("weights"):
            raise part.wrong("weights", part.text("weights"), f"{parts[0].text('weights')}, as of meta.curve")
    ks = _numbers(metas.inside("curve"), "ks")
    if k not in ks:
        raise read.wrong("k", k, f"one of meta.curve.ks, {ks}")
    methods = list(about["method"])
    for name, one, sizes in (("curve", curve, ks), ("other", other, [k])):
        wanted = [Condition.none(), *(Condition.random(size) for size in sizes)]
        wanted += [Condition.top(method, size) for method in methods for size in sizes]
        _check_conditions(folder / f"{name}.parquet", one.per_trial, wanted)
    if kept is not None:
        between = [size for _, size in kept.shares if 0 < size < kept.total]
        wanted = [Condition.none(), Condition.given(ALL, kept.total), *map(Condition.random, between)]
        wanted += [Condition.top(method, size) for method in methods for size in between]
        file = folder / "kept.parquet"
        _check_conditions(file, kept.per_trial, wanted)
        ends = kept.per_trial["set"].isin([Condition.none().set, Condition.given(ALL, kept.total).set])
        try:  # Of the two ends alone: all conditions are slow to take apart.
            replace(kept, per_trial=kept.per_trial[ends]).checked()
        except ValueError as error:
            raise ValueError(f"{file}: value {error}; {REMEDY}") from None
    left_out = read.inside("left_out")
    parts = {"model": model, "task": task, "k": k, "about": about, "curve": curve, "other": other, "kept": kept}
    return parts | {"left_out": {name: left_out.text(name) for name in left_out.found}}


def read_planted(file: Path) -> pd.DataFrame:
    """How well every method finds planted heads, a row per method and model; qualities are shares, or NaN where there is none."""
    table = read_table(file)
    check_columns(file, table, ["method"], ["seed"], gaps=QUALITIES, key=["method", "seed"], remedy=REMEDY)
    for name in QUALITIES:
        if not table[name].dropna().between(0, 1).all():
            raise ValueError(f"{file}: {name} lies outside 0 to 1; {REMEDY}")
    return table


def _about(read: Fields, reserved: str) -> pd.DataFrame:
    rows = [
        {"method": one.text("method"), "family": one.text("family")}
        | {name: one.number(name) for name in ("passes", "seconds")}
        | {"stability": one.number("stability", 1, gap=True), "chance": one.number("chance", 1)}
        for one in read.each("about")
    ]
    for i, row in enumerate(rows):
        if row["method"] in (reserved, *(earlier["method"] for earlier in rows[:i])):
            raise read.wrong(f"about[{i}].method", row["method"], "a name of its own")
    return pd.DataFrame(rows)


def _numbers(meta: Fields, name: str) -> list[int]:
    wanted = "a list of whole numbers from 1 on, ascending"
    found = meta.listed(name, wanted)
    if any(type(k) is not int or k < 1 for k in found) or found != sorted(set(found)):
        raise meta.wrong(name, found, wanted)
    return found


def _curve(folder: Path, meta: Fields, name: str, metric: str) -> AblationCurve:
    file = folder / f"{name}.parquet"
    table = with_key(read_table(file))
    check_columns(file, table, numbers=[metric], remedy=REMEDY)
    check_table(file, table, REMEDY)
    return AblationCurve(table, meta.found)


KEPT = ("metric", "mlps", "shape", "shares", "d_model")
"""What a stored curve of kept heads is of, beside its settings."""


def stored_meta(curve: AblationCurve | FaithfulnessCurve) -> dict[str, Any]:
    """What is written of a curve beside its table."""
    fields = KEPT if isinstance(curve, FaithfulnessCurve) else ()
    return plain({**curve.meta, **{field: getattr(curve, field) for field in fields}})


def _kept(folder: Path, meta: Fields) -> FaithfulnessCurve:
    file, sizes = folder / "kept.parquet", meta.listed("shape", "[layers, heads]")
    if len(sizes) != 2 or any(type(size) is not int or size < 1 for size in sizes):
        raise meta.wrong("shape", sizes, "[layers, heads]")
    for name in ("metric", "mlps"):
        meta.text(name)
    total, wanted = sizes[0] * sizes[1], "pairs of a share of all heads and a number of them, both ascending"
    shares = meta.listed("shares", wanted)
    if not all(_is_share(one, total) for one in shares) or any(
        one[0] >= after[0] or one[1] > after[1] for one, after in pairwise(shares)
    ):
        raise meta.wrong("shares", shares, wanted)
    table = with_key(read_table(file))
    texts, key = ("method", "set", "heads", "trial"), ("method", "set", "k", "draw", "trial")
    check_columns(
        file,
        table,
        texts,
        ("k", "draw"),
        ["value" if "value" in table else meta.text("metric")],
        key=key,
        remedy=REMEDY,
    )
    layers, heads = sizes
    metric, mlps, d_model = (meta.found.get(name) for name in ("metric", "mlps", "d_model"))
    settings = {name: value for name, value in meta.found.items() if name not in KEPT}
    return FaithfulnessCurve(table, {}, metric, mlps, (layers, heads), shares, d_model or 0, settings)


def _is_share(one: Any, total: int) -> bool:
    fits = isinstance(one, list) and len(one) == 2 and type(one[0]) in (int, float) and type(one[1]) is int
    return fits and 0 < one[0] <= 1 and 0 <= one[1] <= total


def _check_task(meta: Fields, file: Path, curve: AblationCurve, task: str) -> None:
    """ValueError for a curve, or a row of it, of another task."""
    if meta.text("task") != task:
        raise meta.wrong("task", meta.text("task"), f"{task!r}, the task of this cell")
    foreign = [one for one in curve.tasks if one != task]
    if foreign or not curve.tasks:
        raise ValueError(f"{file}: task is {(foreign or ['none'])[0]!r}: expected {task!r} in every row; {REMEDY}")


def _check_conditions(file: Path, table: pd.DataFrame, wanted: Sequence[Condition]) -> None:
    """ValueError for a condition that no row has."""
    there: Iterable[tuple[Any, ...]] = table[["method", "set", "k"]].drop_duplicates().itertuples(index=False)
    known = {(str(method), str(kind), int(k)) for method, kind, k in there}
    lacking = next((one for one in wanted if (one.method, one.set, one.k) not in known), None)
    if lacking is not None:
        raise ValueError(f"{file}: no row of {lacking}: expected every method of {CELL} at every k; {REMEDY}")


RANDOM = "random heads"
"""The row of random sets of heads, of all draws together."""
METRIC = "logprob"
NONE = Interval(math.nan, math.nan, math.nan)
_TABLES = ("curve", "other", "kept")
By = Literal["damage", "faithfulness"]


@dataclass(frozen=True, eq=False)
class Cell:
    """One model and task.

    `about`: a row per method with family, passes, seconds and stability. `curve` and `other`: ablation on the task and on
    another. `kept`: faithfulness, None without pairs. `left_out`: why a method has no row.
    """

    model: str
    task: str
    k: int
    about: pd.DataFrame
    curve: AblationCurve
    other: AblationCurve
    kept: FaithfulnessCurve | None
    left_out: dict[str, str] = field(default_factory=dict)

    @property
    def methods(self) -> list[str]:
        """The methods with a row."""
        return list(self.about["method"])

    @cached_property
    def ks(self) -> list[int]:
        """The numbers of heads that were ablated on the task."""
        return sorted({one.k for one in self.curve.conditions() if one.k})

    def condition(self, method: str, k: int) -> Condition:
        """The top k heads of a method, or random heads."""
        return Condition.random(k) if method == RANDOM else Condition.top(method, k)

    def damage(self, method: str, k: int | None = None, other: bool = False) -> pd.DataFrame:
        """What ablating k heads takes from the answer's log-probability (nats per token): a row per trial, a column per draw."""
        curve = self.other if other else self.curve
        lost = curve.draws(self.condition(method, k or self.k), METRIC).dropna()
        none = curve.draws(Condition.none(), METRIC)[0]
        return lost.rsub(none.loc[lost.index], axis=0)

    def area(self, method: str) -> pd.DataFrame:
        """The damage averaged over log k: a row per trial, a column per draw."""
        return over_log_k(self.curve, [self.condition(method, k) for k in self.ks], METRIC)

    def interval(self, values: pd.DataFrame, level: float = 0.95, other: bool = False) -> Interval[float]:
        """The mean with its interval over trials and draws."""
        groups = (self.other if other else self.curve).groups(values.index)
        return crossed_interval(torch.from_numpy(values.to_numpy(float).T.copy()), groups=groups, level=level)

    def goodness(self, method: str, by: By) -> float:
        """What methods are compared by: the area of damage, or the area under faithfulness (CPR), over log k."""
        check_by(by)
        if by == "damage":
            return float(self.area(method).to_numpy().mean())
        return math.nan if self.kept is None else self.kept.cpr(*_named(method), scale="log").value

    def beyond(self, method: str, against: str, level: float = 0.95, by: By = "damage") -> Interval[float]:
        """What one method is better by than another (see `goodness`), paired by trial; NaN for faithfulness without pairs."""
        check_by(by)
        if by == "faithfulness":
            return (
                NONE
                if self.kept is None
                else self.kept.cpr_difference(_named(method), _named(against), scale="log", level=level)
            )
        one, other = self.area(method), self.area(against)
        both = one.index.intersection(other.index)
        if RANDOM in (method, against) and len(one) != len(other):
            return difference(self.interval(one, level), self.interval(other, level))
        gap = one.loc[both].to_numpy(float) - other.loc[both].to_numpy(float)
        return self.interval(pd.DataFrame(gap, index=both), level)

    @cached_property
    def halves(self) -> tuple[pd.Index, pd.Index]:
        """The test trials in two halves that share no group: groups in turn, in the order of the trials."""
        trials = self.damage(self.methods[0]).index
        groups = self.curve.groups(trials)
        labels = [label or trial for label, trial in zip(groups[0], trials, strict=True)] if groups else list(trials)
        place = {label: at for at, label in enumerate(dict.fromkeys(labels))}
        first = np.array([place[label] % 2 == 0 for label in labels])
        return trials[first], trials[~first]

    @cached_property
    def rivals(self) -> tuple[str, str]:
        """For each half of the test trials, the method whose k heads do most damage on the other half: shares are of its."""

        def most(half: pd.Index) -> str:
            means = {
                name: float(one.loc[one.index.intersection(half)].to_numpy().mean()) for name, one in damage.items()
            }
            return max(means, key=lambda name: means[name])

        damage = {name: self.damage(name) for name in self.methods}
        one, other = self.halves
        return (most(other), most(one)) if len(other) else (most(one), most(one))

    @property
    def best(self) -> str:
        """The best known method, or both where the halves have different ones."""
        return " and ".join(dict.fromkeys(self.rivals))

    @cached_property
    def best_known(self) -> pd.DataFrame:
        """The damage of the best known method, trial by trial, none of which chose it."""
        parts = [self.damage(name).reindex(half) for name, half in zip(self.rivals, self.halves, strict=True)]
        return pd.concat(parts).dropna()

    def share(self, method: str, level: float = 0.95) -> Interval[float]:
        """The damage at k as a share of that of the best known (`rivals`); NaN where that is not surely above zero.

        A method that is itself the best known of both halves has 1; one that only looks best where it was chosen does not.
        """
        one, best = self.damage(method), self.best_known
        both = one.index.intersection(best.index)
        above = torch.from_numpy(one.loc[both].to_numpy(float).T.copy())
        below = torch.from_numpy(best.loc[both].to_numpy(float).T.copy()).expand_as(above)
        return ratio_interval(above, below, groups=self.curve.groups(both), level=level)

    def crosswise(self, method: str, against: str) -> bool:
        """Whether the area of one method is above that of another on either half of the test trials alone."""
        one, other = self.area(method).mean(axis=1), self.area(against).mean(axis=1)
        return all(
            one[one.index.intersection(half)].mean() > other[other.index.intersection(half)].mean()
            for half in self.halves
            if len(half)
        )

    @cached_property
    def frame(self) -> pd.DataFrame:
        """A row per method and one of random heads: see `Bench.frame`."""
        chance = float(self.about["chance"].iloc[0])
        first = {"method": RANDOM, "family": "baseline", "passes": 0.0, "seconds": 0.0, "stability": chance}
        about = [*self.about.to_dict("records"), {**first, "chance": chance}]
        rows = [row | self._row(str(row["method"])) for row in about]
        return pd.DataFrame(rows).assign(model=self.model, task=self.task, k=self.k, best=self.best)

    def _row(self, method: str) -> dict[str, Any]:
        here, kept = self.interval(self.damage(method)), self.kept
        aside = self.interval(self.damage(method, other=True), other=True)
        row = {
            "damage": here,
            "area": self.interval(self.area(method)),
            "beyond_random": self.beyond(method, RANDOM) if method != RANDOM else NONE,
            "share": self.share(method),
            "elsewhere": aside,
            "specific": difference(here, aside),
            "cpr": NONE if kept is None else kept.cpr(*_named(method)),
            "cpr_log": NONE if kept is None else kept.cpr(*_named(method), scale="log"),
        }
        numbers = {name: value.value for name, value in row.items()}
        bounds = {f"{name}_{end}": getattr(value, end) for name, value in row.items() for end in ("low", "high")}
        cmd = math.nan if kept is None else kept.cmd(*_named(method))
        for_80 = None if kept is None or method == RANDOM else kept.heads_for(share=0.8, method=method)
        return {**numbers, **bounds, "cmd": cmd, "heads_for_80": math.nan if for_80 is None else float(for_80)}

    def save(self, folder: Path) -> None:
        """Write the values per trial as Parquet, and the rest as `cell.json`."""
        metas: dict[str, Any] = {}
        for name in _TABLES:
            one = getattr(self, name)
            if one is not None:
                write_table(folder / f"{name}.parquet", one.per_trial.drop(columns=["answer", "text"], errors="ignore"))
                metas[name] = stored_meta(one)
        text = {"model": self.model, "task": self.task, "k": self.k, "left_out": self.left_out}
        text |= {"about": self.about.to_dict("records"), "meta": metas}
        write_atomic(folder / CELL, json.dumps(plain(text), indent=1) + "\n")

    @classmethod
    def load(cls, folder: Path) -> Cell:
        """Read what `save` wrote; errors as in `read_cell`."""
        return cls(**read_cell(folder, METRIC, RANDOM))


def check_by(by: str) -> None:
    """ValueError for anything that methods are not compared by."""
    if by not in get_args(By):
        raise ValueError(f"by={by!r}: use {' or '.join(map(repr, get_args(By)))}")


def _named(method: str) -> tuple[str, str]:
    """Method and set of a row in a `FaithfulnessCurve`."""
    return (method, "top") if method != RANDOM else ("any", "random")


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
        """A row per method, over all models and tasks: see `across`."""
        return across(self.frame)

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


def across(frame: pd.DataFrame) -> pd.DataFrame:
    """A row per method, over the models and tasks of `Bench.frame` that every method ran on, the largest mean share first.

    Columns: family, cells (models and tasks), passes (geometric mean), share (mean), with the least and the most of any cell,
    rank (mean; 1 has the largest area), cpr_log and stability (means), auroc. All rows rest on the same cells; without a cell
    that all methods have, on each one's own. Means have no interval: cells of one model, or of one task, are no independent
    trials, and fewer than five models or tasks say little of others.
    """
    table = frame.assign(rank=frame.groupby(["model", "task"])["area"].rank(ascending=False))
    table = table.sort_values(["model", "task"], kind="stable")
    everywhere = table.groupby(["model", "task"])["method"].transform("nunique") == table["method"].nunique()
    table = table[everywhere] if everywhere.any() else table
    rows = []
    for method, own in table.groupby("method", sort=False):
        shares = own["share"].dropna()
        row = {"method": method, "family": own["family"].iloc[0], "cells": len(own)}
        row |= {"passes": float(np.exp(np.log(own["passes"].clip(lower=0.1)).mean())) if method != RANDOM else 0.0}
        row |= {"share": shares.mean(), "least": shares.min(), "most": shares.max()}
        row |= {name: own[name].mean() for name in ("rank", "cpr_log", "stability")}
        rows.append(row | {"auroc": own["auroc"].iloc[0]})
    return pd.DataFrame(rows).sort_values("share", ascending=False, ignore_index=True)
