"""Do matched heads do the same? Ablate a group in one model and its partners in the other, and compare which tasks break."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np
import pandas as pd
import torch

from lens_heads.evidence.grid import Grid, Tasks
from lens_heads.heads.conditions import KEY, NO_ABLATION, Condition, HeadSet, head_set
from lens_heads.heads.controls import AnyControls, Controls
from lens_heads.heads.depth import depth_bins
from lens_heads.heads.grouping import COLUMNS, groups_in
from lens_heads.heads.head import Head, parse_heads
from lens_heads.heads.matching import AnyHeads, HeadMatch
from lens_heads.heads.scores import HeadScores
from lens_heads.interventions.checked_kind import Ablation
from lens_heads.model.belonging import check_owner, check_scores_of
from lens_heads.model.geometry import Model, head_geometry
from lens_heads.runs import checks
from lens_heads.runs.drawn import Drawn
from lens_heads.runs.options import Run, RunOptions
from lens_heads.runs.tables import read_tables, write_tables
from lens_heads.runs.typed import typed, typed_methods
from lens_heads.stats import crossed_interval
from lens_heads.stats.correlation import pearson

if TYPE_CHECKING:
    import plotly.graph_objects as go

BESIDE = Controls("random_like")
"""The controls by default."""
_OLDER = {"group": "method", **{f"trial_{name}": name for name in COLUMNS}}
"""What older files call the columns."""


@typed_methods
@dataclass(frozen=True, eq=False)
class MatchValidation(Drawn):
    """The result of `validate_match`.

    `per_trial`: one row per trial and ablation: method (the name of a group of heads), set ("a": heads of a; "matched": their
    partners in b; "random": random heads of b from the same depth bins), k, draw, heads, task, trial, group and group_2 (the
    trial's), clean and ablated (log-probability of the gold answer, nats per token), drop = clean - ablated.

    `meta`: the settings.

    Example:
        >>> match = lh.match_heads(untrained, untrained, texts=["It rained. Nobody went out all day."] * 3)
        >>> few = lh.Controls("random_like", draws=1)
        >>> found = lh.evidence.validate_match(
        ...     match, untrained, untrained, {"needles": others}, groups={"some": ["L0H0"]}, kind="zero", controls=few
        ... )
        >>> sorted(set(found.per_trial["set"]))
        ['a', 'matched', 'random']
    """

    per_trial: pd.DataFrame
    meta: dict[str, Any]

    @cached_property
    def frame(self) -> pd.DataFrame:
        """One row per method, task and set: mean drop, its 95 % interval over trials (and draws), draws, trials.

        NaN bounds below five trials, or five groups of trials.
        """
        rows = []
        for (method, task, which), part in self.per_trial.groupby(["method", "task", "set"], sort=False):
            drops = part.pivot(index="draw", columns="trial", values="drop").dropna(axis=1)
            known = groups_in(part, drops.columns, "trial")
            found = crossed_interval(torch.from_numpy(drops.to_numpy().copy()), groups=known)
            row = {"method": method, "task": task, "set": which} | dict(
                zip(("drop", "low", "high"), found, strict=True)
            )
            rows.append(row | {"draws": drops.shape[0], "trials": drops.shape[1]})
        return pd.DataFrame(rows)

    @cached_property
    def correlation(self) -> pd.DataFrame:
        """Do the same tasks break? Pearson correlation over tasks between the drops in a and in b, per method and overall.

        Columns: method ("all groups" in the last row, if there are several); cells; matched (partners ablated in b); random
        (mean over draws of random heads), random_low and random_high (range). NaN with fewer than three cells or constant drops.
        """
        means = self.per_trial.groupby(["method", "task", "set", "draw"], sort=False)["drop"].mean()
        drops = means.unstack(["set", "draw"])
        parts = {str(method): part for method, part in drops.groupby("method", sort=False)}
        if len(parts) > 1:
            parts["all groups"] = drops
        rows = []
        for name, part in parts.items():
            r = pearson(part[("a", 0)].to_numpy(), part[["matched", "random"]].to_numpy().T)
            matched, *random = r if len(part) > 2 else np.full_like(r, np.nan)
            row = {"method": name, "cells": len(part), "matched": matched, "random": np.mean(random)}
            rows.append(row | {"random_low": np.min(random), "random_high": np.max(random)})
        return pd.DataFrame(rows)

    def plot(self, *, title: str | None = None) -> go.Figure:
        """The drop of every task for every group: heads of a, their partners, and random heads."""
        from lens_heads import plots

        labels = {"a": self.meta["model_a"], "matched": f"{self.meta['model_b']}, partners", "random": "random"}
        frame = self.frame.assign(name=self.frame["set"].map(labels), value=self.frame["drop"])
        frame["group"] = frame["method"] + ": " + frame["task"]
        return plots.drop_bars(frame, title=title or "Effect of ablating matched heads", axis="drop in log-probability")

    def save(self, folder: str | Path) -> Path:
        """Write `validation.parquet` (`per_trial`) and `validation.json` (meta)."""
        return write_tables(folder, {"validation": self.per_trial}, "validation.json", self.meta)

    @classmethod
    def load(cls, folder: str | Path) -> MatchValidation:
        """Read what `save` wrote. FileNotFoundError names a missing file."""
        tables, meta = read_tables(folder, ["validation"], "validation.json", cls.__name__)
        table = tables["validation"]
        return cls(table.rename(columns=_OLDER) if "method" not in table else table, meta)

    def __repr__(self) -> str:
        last = self.correlation.iloc[-1]
        return (
            f"MatchValidation({self.meta['model_a']} to {self.meta['model_b']}, {last['cells']} cells: drops correlate at "
            f"{last['matched']:.2f} with partners ablated, at {last['random']:.2f} with random heads of the same depth)"
        )


@typed
def validate_match(
    match: HeadMatch,
    model_a: Model,
    model_b: Model,
    trials_a: Tasks,
    trials_b: Tasks | None = None,
    *,
    groups: Mapping[str, HeadScores | AnyHeads],
    k: int = 5,
    kind: str | tuple[Ablation, Ablation],
    controls: AnyControls = BESIDE,
    **run: Unpack[RunOptions],
) -> MatchValidation:
    """Ablate groups of heads in a, their partners in b, and random heads of b at the same depth; compare which tasks break.

    Args:
        trials_a, trials_b: trials by task, with the same task names for both models; b defaults to the tasks of a.
        groups: heads of a by name, or scores of a's heads, of which the top `k` are used. Unmatched heads are skipped.
        kind: as in `ablate`, or one `Ablation` per model if the kind needs a reference.
        controls: "random_like": random heads of b, as many in each depth bin of the match (not in each layer, as elsewhere) as
            the partners, on all trials.
        **run: see `runs.options.RunOptions`; nothing is generated. `out` holds one run folder per model, `a` and `b`.

    The metric is the gold answer's mean log-probability per token, teacher-forced; drops are paired by trial.

    Raises ValueError for models that were not matched, different task names, no groups, groups without partners,
    tasks that share trials with a group's scores, and anything `ablate` rejects.

    `match`: the partners. `model_a`, `model_b`: the two models, in its order.

    Cost: for each trial a run without ablation in both models, one in a for each group, and one in b for each group and each
    of its draws.

    Example:
        >>> match = lh.match_heads(untrained, untrained, texts=["It rained. Nobody went out all day."] * 3)
        >>> few = lh.Controls("random_like", draws=1)
        >>> found = lh.evidence.validate_match(
        ...     match, untrained, untrained, {"needles": others}, groups={"some": ["L0H0"]}, kind="zero", controls=few
        ... )
        >>> drops = found.per_trial.groupby("set")["drop"].mean()
        >>> bool(abs(drops["a"] - drops["matched"]) < 1e-4)
        True
    """
    trials_b = trials_a if trials_b is None else trials_b
    _check_sides(match, (model_a, model_b), trials_a, trials_b)
    kinds, options = (kind, kind) if isinstance(kind, str) else kind, Run.of(run)
    outs = [None if options.out is None else Path(options.out) / side for side in "ab"]
    grids = [
        Grid.of(model, trials, Ablation.of(model, how), replace(options, out=out), generate=False)
        for model, trials, how, out in zip((model_a, model_b), (trials_a, trials_b), kinds, outs, strict=True)
    ]
    controls = Controls.given(controls, BESIDE, ("random_like",), few=False, several=False)
    sets = _sets(match, groups, k, controls)
    scored = {name: given for name, given in groups.items() if isinstance(given, HeadScores)}
    check_scores_of(model_a, scored)
    for grid in grids:
        grid.check_independent(scored)
        _ = grid.folder  # Refuse one with other settings before the first model runs.
    tables = [grid.run(mine) for grid, mine in zip(grids, sets, strict=True)]
    meta = {"model_a": head_geometry(model_a).name, "model_b": head_geometry(model_b).name}
    meta |= {"kind": grids[0].ablation.kind, "k": k, "seed": controls.seed}
    found = MatchValidation(pd.concat([_drops(table) for table in tables], ignore_index=True), meta)
    if options.out is not None:
        found.save(options.out)
    return found


def _check_sides(match: HeadMatch, models: tuple[Model, Model], trials_a: Tasks, trials_b: Tasks) -> None:
    """ValueError unless these are the matched models, with tasks of the same names."""
    if not trials_a or set(trials_a) != set(trials_b):
        raise ValueError(f"tasks of a are {sorted(trials_a)}, those of b {sorted(trials_b)}. Use the same names.")
    for model, wanted, owner in zip(models, (match.shape_a, match.shape_b), match.identities, strict=True):
        shape = head_geometry(model)
        if (shape.n_layers, shape.n_heads) != wanted:
            found = f"{shape.n_layers} layers x {shape.n_heads} heads, the match {wanted[0]} x {wanted[1]}"
            raise ValueError(f"{shape.name} has {found}. Pass the matched models in the same order.")
        check_owner(model, "the match was", owner, "pass the matched models in the same order, or match these")


def _drops(table: pd.DataFrame) -> pd.DataFrame:
    """A grid's table as drops: every row joined with the same trial without ablation, if both succeeded."""
    wide = table.rename(columns={"logprob": "ablated"})[[*KEY[:4], "heads", *KEY[4:], *COLUMNS, "ablated"]]
    clean = wide[wide["set"] == "none"].set_index(["task", "trial"])["ablated"].rename("clean")
    found = wide[wide["set"] != "none"].join(clean, on=["task", "trial"]).dropna()
    return found.assign(drop=found["clean"] - found["ablated"])


def _sets(
    match: HeadMatch, groups: Mapping[str, HeadScores | AnyHeads], k: int, controls: Controls
) -> tuple[list[HeadSet], list[HeadSet]]:
    """The sets to ablate in a and in b: none, then those of every group."""
    if not groups:
        raise ValueError("groups is empty. Pass {name: heads of a, or their HeadScores}.")
    checks.whole_number("k", k)
    in_a, in_b = [NO_ABLATION], [NO_ABLATION]
    for name, given in groups.items():
        if isinstance(given, HeadScores) and tuple(given.values.shape) != match.shape_a:
            found = f"{given.n_layers} layers x {given.n_heads} heads, model a {match.shape_a[0]} x {match.shape_a[1]}"
            raise ValueError(f"group {name!r} has scores of {found}. Pass scores of model a.")
        heads = parse_heads(given.top(k) if isinstance(given, HeadScores) else given)
        heads = [head for head in heads if match.partner(head) is not None]
        partners = match.matched(heads)
        if not partners:
            raise ValueError(f"group {name!r} has no head with a partner in {match.meta['model_b']}. Name other heads.")
        in_a.append(head_set(Condition(name, "a", len(heads)), heads))
        in_b.append(head_set(Condition(name, "matched", len(partners)), partners))
        chance, drawn = Condition.random(len(partners), method=name), _as_deep(match, partners, controls)
        in_b += [head_set(chance, heads, draw) for draw, heads in enumerate(drawn)]
    return in_a, in_b


def _as_deep(match: HeadMatch, partners: Sequence[Head], controls: Controls) -> list[list[Head]]:
    """Random heads of b, as many in each depth bin as partners."""
    layers, heads = match.shape_b
    bins = depth_bins(layers, match.depth_bins)
    # With bins in place of layers, matching by layer becomes matching by bin.
    binned = {head: Head(bins[head.layer], head.layer * heads + head.head) for head in match.heads_b}
    sets = controls.random_like([binned[head] for head in partners], [*binned.values()])
    return [[Head(*divmod(head.head, heads)) for head in drawn] for drawn in sets]
