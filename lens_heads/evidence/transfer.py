"""transfer_matrix: ablate the heads of every task and measure the effect on every other task   (the 10-K study)

Differs from the study: several random sets at every k instead of one, and every metric is kept item by item.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any, Unpack

import pandas as pd

from lens_heads.answering.evaluation import METRICS, check_metric
from lens_heads.evidence.grid import Grid, Tasks
from lens_heads.evidence.head_sets import capped
from lens_heads.evidence.transfer_cells import NONE, RANDOM, seed_of
from lens_heads.evidence.transfer_results import TransferMatrix
from lens_heads.heads.conditions import KEY, NO_ABLATION, Condition, HeadSet, head_set
from lens_heads.heads.controls import AnyControls, Controls
from lens_heads.heads.geometry import HeadGeometry
from lens_heads.heads.grouping import COLUMNS
from lens_heads.heads.head import Head
from lens_heads.heads.named import AnyRanked, Ranking, ranked_by_name
from lens_heads.heads.ranks import check_ranks
from lens_heads.heads.scores import HeadScores
from lens_heads.heads.sets import shuffled
from lens_heads.interventions.checked_kind import Ablation
from lens_heads.interventions.options import AblationRun, ablation_run
from lens_heads.model.belonging import check_scores_of
from lens_heads.model.geometry import Model, head_geometry
from lens_heads.model.workers import shared
from lens_heads.runs.typed import typed
from lens_heads.runs.warned import users_line
from lens_heads.trials.encoded import EncodedTrial

BESIDE = Controls("random")
"""The controls by default."""


@typed
@shared
def transfer_matrix(
    model: Model,
    trials: Tasks,
    rankings: AnyRanked,
    *,
    ks: Sequence[int] = (8, 16, 32, 48, 64, 96, 128),
    kind: str | Ablation,
    controls: AnyControls = BESIDE,
    metric: str,
    generate: bool = True,
    **options: Unpack[AblationRun],
) -> TransferMatrix:
    """Evaluate every task with the top k heads of every task ablated, with random heads ablated, and without ablation.

    Heads are ablated at all positions, in prefill and decoding. A set of heads shared by several tasks or sizes runs once,
    and all sets share one unablated prefill per trial.

    Args:
        trials: the targets, by task, none of them used to make a ranking. Every source must be a target.
        rankings: the sources, by task: scores, or lists of heads from best to worst, whose selection trials go unchecked. A
            list shorter than the largest k is completed with random heads, with a warning and in `meta["completed"]`.
        ks: numbers of heads, capped at the number of heads in the model.
        kind: as in `ablate`.
        controls: "random", on all trials, since the matrix compares item by item; () for none.
        metric: the metric of the statistics; `per_trial` has a column for every metric measured.
        generate: also decode and judge text; otherwise only "logprob" and "greedy_match" are measured.
        **options: run options (`runs.options.RunOptions`), and `reference` and the options of
            the ablation.

    A trial that fails under one set of heads is excluded from all, with a warning (`meta["left_out"]`).

    Raises ValueError for trials shared between selection and evaluation, a source without trials, rankings of another shape,
    a metric that is not measured, k below 1, and anything `ablate` rejects; all before anything runs.

    Cost: for each trial of every task a run without ablation, one for each source and k, and one for each draw and k.

    Example:
        >>> asked = {"first": others[:2], "second": planted.trials(2, seed=2)}
        >>> found = lh.evidence.transfer_matrix(
        ...     model, asked, {"first": scores}, ks=[2], kind="zero", metric="greedy_match", generate=False, controls=()
        ... )
        >>> found.per_trial.groupby(["method", "task"])["greedy_match"].mean()
        method  task
        first   first     0.0
                second    0.0
        none    first     1.0
                second    1.0
        Name: greedy_match, dtype: float64
    """
    ablation, run = ablation_run(model, kind, options)
    controls = Controls.given(controls, BESIDE, ("random",), few=False, several=False)
    for name in {NONE, RANDOM} & set(trials):
        raise ValueError(f"task name {name!r} is reserved for a control. Rename the task.")
    grid, shape = Grid.of(model, trials, ablation, run, generate), head_geometry(model)
    sizes = capped(ks, shape.size)
    check_metric(metric, grid.trials, generate)
    named = ranked_by_name(rankings)
    scored = {name: ranking for name, ranking in named.items() if isinstance(ranking, HeadScores)}
    orders, completed = _orders(named, grid.tasks, shape, sizes[-1], controls.seed)
    grid.check_independent(scored)
    check_scores_of(model, scored)
    check_ranks(scored, sizes)
    sets, drawn = _sets(orders, sizes, shape, controls)
    rows, left_out = _complete(grid.run(sets), grid.tasks, len(sets))
    heads = {name: [str(head) for head in order[: sizes[-1]]] for name, order in orders.items()}
    meta = {**grid.settings, "heads": heads, "random_heads": drawn, "ks": sizes, "seed": controls.seed}
    meta |= {"completed": completed, "left_out": left_out}
    matrix = TransferMatrix(per_trial=rows, metric=metric, meta=meta)
    if grid.folder is not None:
        matrix.save(grid.folder.path)
    return matrix


def _orders(
    rankings: Mapping[str, Ranking], tasks: Mapping[str, Any], shape: HeadGeometry, most: int, seed: int
) -> tuple[dict[str, list[Head]], dict[str, int]]:
    """At least `most` heads of every source, best first; and the original length of each list that had to be completed."""
    everyone = shape.every_head()
    orders, completed = {}, {}
    for name, ranking in rankings.items():
        if name not in tasks:
            raise ValueError(f"source {name!r} has no trials; the tasks are {', '.join(tasks)}. Add trials[{name!r}].")
        if isinstance(ranking, HeadScores):
            shape.check_scores(ranking, f"ranking {name!r}")
            orders[name] = ranking.ranking()
            continue
        given = shape.check_heads(ranking)
        if not given:
            raise ValueError(f"ranking {name!r} is empty. List its best heads in order, or omit it.")
        orders[name] = list(dict.fromkeys([*given, *shuffled(everyone, seed_of(name, seed))]))
        if len(given) < most:
            completed[name] = len(given)
    if completed:
        listed = ", ".join(f"{name} ({given} of {most})" for name, given in completed.items())
        warnings.warn(f"completed rankings shorter than k with random heads: {listed}", stacklevel=users_line())
    return orders, completed


def _sets(
    orders: Mapping[str, Sequence[Head]], sizes: Sequence[int], shape: HeadGeometry, controls: Controls
) -> tuple[list[HeadSet], dict[str, list[list[str]]]]:
    """No ablation, every source's top k, and random heads; and the names of the random heads by k."""
    sets, names, everyone = [NO_ABLATION], {}, shape.every_head()
    for k in sizes:
        tops = {name: order[:k] for name, order in orders.items()}
        sets += [head_set(Condition.top(name, k), heads) for name, heads in tops.items()]
        drawn = controls.random(everyone, k)
        sets += [head_set(Condition.random(k, method=RANDOM), heads, draw) for draw, heads in enumerate(drawn)]
        if drawn:
            names[str(k)] = [[str(head) for head in heads] for heads in drawn]
    return sets, names


def _complete(
    table: pd.DataFrame, tasks: Mapping[str, Sequence[EncodedTrial]], conditions: int
) -> tuple[pd.DataFrame, dict[str, list[str]]]:
    """One row per trial and cell, without the trials that any cell lacks; and those trials by task."""
    found = table[[*KEY, *COLUMNS, *(name for name in METRICS if name in table.columns)]]
    cells = found.groupby(["task", "trial"])["k"].transform("size")
    rows = found[cells == conditions].reset_index(drop=True)
    left_out = {}
    for name, trials in tasks.items():
        kept = set(rows.loc[rows["task"] == name, "trial"])
        if not kept:
            raise RuntimeError(f"task {name!r}: every trial failed under some set of heads. See the warnings above.")
        if lost := [trial.id for trial in trials if trial.id not in kept]:
            left_out[name] = lost
    if left_out:
        listed = "; ".join(f"{name}: {', '.join(lost)}" for name, lost in left_out.items())
        warnings.warn(f"excluded trials that failed under some set of heads: {listed}", stacklevel=users_line())
    return rows, left_out
