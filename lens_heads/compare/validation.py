"""Do matched heads do the same? Ablate a group in one model and its partners in the other, and see which tasks break."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np
import pandas as pd
import torch

from lens_heads.ablation.conditions import NO_ABLATION, Condition, HeadSet, head_set
from lens_heads.ablation.grid import Grid, Tasks
from lens_heads.compare.depth import depth_bins
from lens_heads.compare.head_match import AnyHeads, HeadMatch
from lens_heads.heads.head import Head, parse_heads
from lens_heads.heads.scores import HeadScores
from lens_heads.heads.sets import layer_matched
from lens_heads.interventions.ablation import Ablation
from lens_heads.model.geometry import Model, geometry
from lens_heads.runs.options import Run, RunOptions
from lens_heads.runs.store import write_atomic
from lens_heads.stats import bootstrap_over_draws

if TYPE_CHECKING:
    import plotly.graph_objects as go

SETS = ("a", "matched", "random")
"""Heads of a, their partners in b, random heads of b from the same depth bins."""


@dataclass(frozen=True, eq=False)
class MatchValidation:
    """The result of `validate_match`.

    `per_trial`: one row per trial and ablation: group, task, set ("a", "matched", "random"), draw, heads, trial, clean and
    ablated (log-probability of the gold answer, nats per token), drop = clean - ablated.
    """

    per_trial: pd.DataFrame
    meta: dict[str, Any]

    @cached_property
    def frame(self) -> pd.DataFrame:
        """One row per group, task and set: mean drop with its 95 % bootstrap interval over trials (and draws), trials."""
        rows = []
        for (group, task, which), part in self.per_trial.groupby(["group", "task", "set"], sort=False):
            drops = part.pivot(index="draw", columns="trial", values="drop").dropna(axis=1)
            found = bootstrap_over_draws(torch.from_numpy(drops.to_numpy().copy()))
            row = {"group": group, "task": task, "set": which} | dict(zip(("drop", "low", "high"), found, strict=True))
            rows.append(row | {"draws": drops.shape[0], "trials": drops.shape[1]})
        return pd.DataFrame(rows)

    @cached_property
    def correlation(self) -> pd.DataFrame:
        """Do the same tasks break? Pearson correlation over tasks of the drops in a and in b, per group and over all.

        matched: with the partners ablated in b. random: mean over the draws of random heads, random_low and random_high
        their range. NaN with fewer than three tasks, or where all drop alike. The last row, "all groups", correlates over
        groups and tasks together.
        """
        drops = (
            self.per_trial.groupby(["group", "task", "set", "draw"], sort=False)["drop"].mean().unstack(["set", "draw"])
        )
        groups = list(dict.fromkeys(self.per_trial["group"]))
        rows = []
        for name in [*groups, "all groups"] if len(groups) > 1 else groups:
            part = drops if name == "all groups" else drops.loc[[name]]
            mine = part[("a", 0)].to_numpy()
            random = [_pearson(mine, part["random"][draw].to_numpy()) for draw in part["random"].columns]
            row = {"group": name, "cells": len(part), "matched": _pearson(mine, part[("matched", 0)].to_numpy())}
            row |= {"random": np.mean(random), "random_low": np.min(random), "random_high": np.max(random)}
            rows.append(row)
        return pd.DataFrame(rows)

    def plot(self, title: str | None = None) -> go.Figure:
        """The drop of every task for every group: heads of a, their partners, random heads."""
        from lens_heads import plots

        labels = {"a": self.meta["model_a"], "matched": f"{self.meta['model_b']}, partners", "random": "random"}
        frame = self.frame.assign(name=self.frame["set"].map(labels), value=self.frame["drop"])
        frame["group"] = frame["group"] + ": " + frame["task"]
        return plots.drop_bars(frame, title or "What ablating matched heads costs", axis="drop of the log-probability")

    def save(self, folder: str | Path) -> Path:
        """Write `validation.parquet` (`per_trial`) and `validation.json` (meta)."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        self.per_trial.to_parquet(folder / "validation.parquet", index=False)
        write_atomic(folder / "validation.json", json.dumps(self.meta, indent=2) + "\n")
        return folder

    @classmethod
    def load(cls, folder: str | Path) -> MatchValidation:
        """Read what `save` wrote. FileNotFoundError names the file that is missing."""
        table, about = (Path(folder) / f"validation.{kind}" for kind in ("parquet", "json"))
        for file in (table, about):
            if not file.exists():
                raise FileNotFoundError(f"{file} is missing: {folder} holds no saved validation of a match")
        return cls(pd.read_parquet(table), json.loads(about.read_text(encoding="utf-8")))

    def __repr__(self) -> str:
        last = self.correlation.iloc[-1]
        return (
            f"MatchValidation({self.meta['model_a']} to {self.meta['model_b']}: drops over {last['cells']} cells correlate "
            f"{last['matched']:.2f} with partners ablated, {last['random']:.2f} with random heads of the same depth)"
        )

    def _repr_html_(self) -> str:
        return self.frame.to_html(index=False, float_format=lambda x: f"{x:.3f}")


def validate_match(
    match: HeadMatch,
    model_a: Model,
    model_b: Model,
    tasks_a: Tasks,
    tasks_b: Tasks | None = None,
    *,
    groups: Mapping[str, HeadScores | AnyHeads],
    k: int = 10,
    kind: str | tuple[Ablation, Ablation] = "zero",
    draws: int = 3,
    seed: int = 0,
    **run: Unpack[RunOptions],
) -> MatchValidation:
    """Ablate groups of heads in a, their partners in b, and random heads of b as deep, and compare which tasks break.

    Args:
        tasks_a, tasks_b: trials by name of task, the same names for both models; b gets those of a by default.
        groups: heads of a by name, or scores of a's heads, whose top `k` are taken. Heads without a partner are left out.
        kind: as in `ablate`, or an `Ablation` for either model, where the kind needs a reference.
        draws: random sets, each with as many heads per depth bin of the match as the partners have, none of them partners
            while others are left.
        **run: see `runs.options.RunOptions`; nothing is generated. With `out`, the folders `a` and `b` in it are continued.

    The measure is the gold answer's mean log-probability per token, teacher-forced; drops are paired by trial.

    Raises ValueError for models that were not matched, different names of tasks, no groups, groups without a partner,
    draws below 1, tasks that share trials with the scores of a group, and whatever `ablate` refuses.
    """
    tasks_b = tasks_a if tasks_b is None else tasks_b
    _check_sides(match, (model_a, model_b), tasks_a, tasks_b)
    kinds, options = (kind, kind) if isinstance(kind, str) else kind, Run.of(run)
    grids = [
        Grid.of(model, tasks, Ablation.of(model, how), _inside(options, side), generate=False)
        for model, tasks, how, side in zip((model_a, model_b), (tasks_a, tasks_b), kinds, "ab", strict=True)
    ]
    sets = _sets(match, groups, k, draws, seed)
    scored = {name: given for name, given in groups.items() if isinstance(given, HeadScores)}
    for grid in grids:
        grid.check_independent(scored)
        _ = grid.folder  # Refuse one of other settings before the first model is run.
    tables = [grid.run(mine) for grid, mine in zip(grids, sets, strict=True)]
    meta = {"model_a": geometry(model_a).name, "model_b": geometry(model_b).name}
    meta |= {"kind": grids[0].ablation.kind, "k": k, "seed": seed}
    found = MatchValidation(pd.concat([_drops(table) for table in tables], ignore_index=True), meta)
    if options.out is not None:
        found.save(options.out)
    return found


def _inside(options: Run, side: str) -> Run:
    """The options of one model's grid: its results lie in a folder of their own."""
    return options if options.out is None else replace(options, out=Path(options.out) / side)


def _check_sides(match: HeadMatch, models: tuple[Model, Model], *tasks: Tasks) -> None:
    """ValueError unless these are the matched models, with tasks of the same names."""
    if not tasks[0] or set(tasks[0]) != set(tasks[1]):
        raise ValueError(
            f"tasks of a are {sorted(tasks[0])}, those of b {sorted(tasks[1])}: give the same names, at least one"
        )
    for model, wanted in zip(models, (match.shape_a, match.shape_b), strict=True):
        shape = geometry(model)
        if (shape.n_layers, shape.n_heads) != wanted:
            raise ValueError(
                f"{shape.name} has {shape.n_layers} layers x {shape.n_heads} heads, the match has {wanted[0]} x {wanted[1]} "
                "on that side: give the models that were matched, in the same order"
            )


def _drops(table: pd.DataFrame) -> pd.DataFrame:
    """A grid's table as drops: every row beside the same trial without ablation; trials that lack either are left out."""
    columns = {"method": "group", "seed": "draw", "logprob": "ablated"}
    wide = table.rename(columns=columns)[["group", "task", "set", "draw", "heads", "trial", "ablated"]]
    clean = wide[wide["set"] == "none"].set_index(["task", "trial"])["ablated"].rename("clean")
    found = wide[wide["set"] != "none"].join(clean, on=["task", "trial"]).dropna()
    return found.assign(drop=found["clean"] - found["ablated"])


def _sets(
    match: HeadMatch, groups: Mapping[str, HeadScores | AnyHeads], k: int, draws: int, seed: int
) -> tuple[list[HeadSet], list[HeadSet]]:
    """Which heads are ablated in a, and which in b: none, then those of every group."""
    if not groups or draws < 1:
        raise ValueError(
            f"{len(groups)} groups and {draws} draws: at least 1 of both is needed, groups as {{name: heads}}"
        )
    in_a, in_b = [NO_ABLATION], [NO_ABLATION]
    for name, given in groups.items():
        if isinstance(given, HeadScores) and tuple(given.values.shape) != match.shape_a:
            raise ValueError(
                f"group {name!r} has scores of {given.n_layers} layers x {given.n_heads} heads, {match.meta['model_a']} has "
                f"{match.shape_a[0]} x {match.shape_a[1]}: give scores of the model whose heads are looked up"
            )
        heads = parse_heads(given.top(k) if isinstance(given, HeadScores) else given)
        heads = [head for head in heads if match.partner(head) is not None]
        partners = match.matched(heads)
        if not partners:
            raise ValueError(f"group {name!r} has no head with a partner in {match.meta['model_b']}: name other heads")
        in_a.append(head_set(Condition(name, "a", len(heads)), heads))
        in_b.append(head_set(Condition(name, "matched", len(partners)), partners))
        chance = Condition.random(len(partners), name)
        in_b += [head_set(chance, _as_deep(match, partners, seed + draw), draw) for draw in range(draws)]
    return in_a, in_b


def _as_deep(match: HeadMatch, partners: Sequence[Head], seed: int) -> list[Head]:
    """Random heads of b outside the partners, as many in each bin of depth."""
    layers, heads = match.shape_b
    bins = depth_bins(layers, match.meta["depth_bins"])
    # Bins in the place of layers: what is matched by layer is then matched by bin.
    everyone = {
        Head(layer, head): Head(bins[layer], layer * heads + head) for layer in range(layers) for head in range(heads)
    }
    drawn = layer_matched([*everyone.values()], [everyone[head] for head in partners], seed)
    return [Head(*divmod(head.head, heads)) for head in drawn]


def _pearson(x: np.ndarray, y: np.ndarray) -> float:
    if len(x) < 3 or np.ptp(x) == 0 or np.ptp(y) == 0:
        return float("nan")
    return float(np.corrcoef(x, y)[0, 1])
