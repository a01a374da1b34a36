"""transfer_matrix: ablate the heads of every task, and see what that does to every other task   (the 10-K study)

Differs from the study: several random sets at every k instead of one, every metric kept item by item.
"""

from __future__ import annotations

import warnings
import zlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Unpack

import pandas as pd

from lens_heads.ablation.conditions import NO_ABLATION, Condition, HeadSet, head_set
from lens_heads.ablation.evaluation import METRICS, check_metric
from lens_heads.ablation.grid import Grid
from lens_heads.ablation.plan import capped, warn_of_ties
from lens_heads.compare.cells import NONE, RANDOM
from lens_heads.compare.transfer_matrix import TransferMatrix
from lens_heads.heads.head import Head
from lens_heads.heads.scores import HeadScores
from lens_heads.heads.sets import check_draws, every_head, random_heads, shuffled
from lens_heads.interventions.ablation import Ablation, Reference
from lens_heads.interventions.options import AblationRun, ablation_run
from lens_heads.model.geometry import HeadGeometry, Model, geometry
from lens_heads.trials.encoded import EncodedTrial
from lens_heads.trials.trial import AnyTrial

Ranking = HeadScores | Iterable[Head | str | Sequence[int]]


def transfer_matrix(
    model: Model,
    rankings_by_task: Mapping[str, Ranking],
    tasks: Mapping[str, Iterable[AnyTrial]],
    ks: Sequence[int] = (8, 16, 32, 48, 64, 96, 128),
    kind: str | Ablation = "zero",
    random_draws: int = 5,
    metric: str = "correct",
    reference: Reference | None = None,
    generate: bool = True,
    seed: int = 0,
    **options: Unpack[AblationRun],
) -> TransferMatrix:
    """Evaluate every task with the top k heads of every task ablated, at every k, beside random heads and no ablation.

    Heads are ablated at all positions, in prefill and decoding. A set of heads that several tasks or sizes share is run once,
    and all sets on a trial share one unablated prefill.

    Args:
        rankings_by_task: the sources: scores, or heads in order, best first, of which nothing says what trials chose them.
            A list shorter than the largest k is completed with random heads (warned about; `meta["completed"]`, and
            `meta["heads"]` what was ablated).
        tasks: the targets: trials by task, none of which a ranking was made on; every source is one of them.
        ks: numbers of heads; those beyond the number of heads in the model become that number.
        kind, reference: as in `ablate`.
        random_draws: random sets at every k, of heads outside every source's top k while there are enough. Random heads do
            harm where k is large: one draw tells little.
        metric: what the statistics are on; `per_item` has a column for each measured.
        generate: also decode and judge the text; without it only "logprob" and "greedy_match" are measured.
        **options: run options (`runs.options.RunOptions`; at most 30 new tokens by default), and those of the ablation.

    Trials that fail under some set of heads are left out under all (warned about; `meta["left_out"]`).

    Raises ValueError for trials shared between selection and evaluation, a source without trials, rankings of another model's
    shape, a metric that is not measured, k below 1, and whatever `ablate` refuses, all before anything is run.
    """
    ablation, run = ablation_run(model, kind, reference, options, max_new_tokens=30)
    check_draws(random_draws)
    for name in tasks:
        if name in (NONE, RANDOM):
            raise ValueError(f"a task cannot be called {name!r}, which stands for a control: choose another name")
    grid, shape = Grid.of(model, tasks, ablation, run, generate), geometry(model)
    sizes = capped(ks, shape)
    check_metric(metric, grid.trials, generate)
    scored = {name: ranking for name, ranking in rankings_by_task.items() if isinstance(ranking, HeadScores)}
    orders, completed = _orders(rankings_by_task, grid.tasks, shape, sizes[-1], seed)
    grid.check_independent(scored)
    warn_of_ties(scored, sizes)
    sets = _sets(orders, sizes, shape, random_draws, seed)
    rows, left_out = _complete(grid.run(sets), grid.tasks, len(sets))
    meta = {**grid.settings, **_heads(sets), "ks": sizes, "seed": seed, "completed": completed, "left_out": left_out}
    matrix = TransferMatrix(per_item=rows, metric=metric, meta=meta)
    if grid.folder is not None:
        matrix.save(grid.folder.path)
    return matrix


def _orders(
    rankings: Mapping[str, Ranking], tasks: Mapping[str, Any], shape: HeadGeometry, most: int, seed: int
) -> tuple[dict[str, list[Head]], dict[str, int]]:
    """Every source's heads, best first, at least `most`; and how many were given where random ones had to be added."""
    if not rankings:
        raise ValueError("there are no rankings: give {task: HeadScores, or heads in order}")
    everyone = every_head(shape.n_layers, shape.n_heads)
    orders, completed = {}, {}
    for name, ranking in rankings.items():
        if name not in tasks:
            raise ValueError(f"source {name!r} has no trials: the tasks are {', '.join(tasks)}; give tasks[{name!r}]")
        if isinstance(ranking, HeadScores):
            shape.check_scores(ranking, f"ranking {name!r}")
            orders[name] = ranking.ranking()
            continue
        given = shape.check_heads(ranking)
        if not given:
            raise ValueError(f"ranking {name!r} has no heads: omit it, or list its best heads in order")
        # By the name, so that tasks do not share what chance adds, nor depend on their order.
        chance = shuffled(everyone, zlib.crc32(f"{seed} {name}".encode()))
        orders[name] = list(dict.fromkeys([*given, *chance]))
        if len(given) < most:
            completed[name] = len(given)
    if completed:
        listed = ", ".join(f"{name} ({given} of {most})" for name, given in completed.items())
        warnings.warn(f"rankings shorter than k are completed with random heads: {listed}", stacklevel=3)
    return orders, completed


def _sets(
    orders: Mapping[str, Sequence[Head]], sizes: Sequence[int], shape: HeadGeometry, random_draws: int, seed: int
) -> list[HeadSet]:
    sets, everyone = [NO_ABLATION], every_head(shape.n_layers, shape.n_heads)
    for k in sizes:
        tops = {name: order[:k] for name, order in orders.items()}
        sets += [head_set(Condition.top(name, k), heads) for name, heads in tops.items()]
        taken = {head for heads in tops.values() for head in heads}
        chance = Condition.random(k, RANDOM)
        sets += [head_set(chance, random_heads(everyone, taken, k, seed + draw), draw) for draw in range(random_draws)]
    return sets


def _heads(sets: Sequence[HeadSet]) -> dict[str, Any]:
    """Which heads were ablated: of each source the largest set, best first; of random heads every set, by k."""
    sources: dict[str, list[str]] = {}
    drawn: dict[str, list[list[str]]] = {}
    for one in sets:
        names = [str(head) for head in one.heads]
        if one.condition.set == RANDOM:
            drawn.setdefault(str(one.condition.k), []).append(names)
        elif one.condition.set == "top":
            sources[one.condition.method] = names
    return {"heads": sources, "random_heads": drawn}


def _complete(
    table: pd.DataFrame, tasks: Mapping[str, Sequence[EncodedTrial]], conditions: int
) -> tuple[pd.DataFrame, dict[str, list[str]]]:
    """A row per item and cell, items that some cell lacks left out, and which those are."""
    columns = {"method": "source", "task": "target", "k": "k", "seed": "draw", "trial": "item"}
    found = table.rename(columns=columns)[[*columns.values(), *(name for name in METRICS if name in table.columns)]]
    cells = found.groupby(["target", "item"])["k"].transform("size")
    rows = found[cells == conditions].reset_index(drop=True)
    left_out = {}
    for name, trials in tasks.items():
        kept = set(rows.loc[rows["target"] == name, "item"])
        if lost := [trial.id for trial in trials if trial.id not in kept]:
            left_out[name] = lost
        if not kept:
            raise RuntimeError(f"task {name!r}: every trial failed under some set of heads; see the warnings above")
    if left_out:
        listed = "; ".join(f"{name}: {', '.join(lost)}" for name, lost in left_out.items())
        warnings.warn(f"trials that failed under some set of heads are left out under all: {listed}", stacklevel=3)
    return rows, left_out
