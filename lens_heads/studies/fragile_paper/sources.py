"""Whose heads break a task more: its own, those of tasks with the same answer format or subject, or random ones?"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Float

from lens_heads.evidence.curve_results import AblationCurve
from lens_heads.evidence.transfer_cells import NONE, RANDOM
from lens_heads.evidence.transfer_results import TransferMatrix
from lens_heads.heads.conditions import Condition
from lens_heads.heads.grouping import groups_in
from lens_heads.stats import (
    Interval,
    crossed_interval,
    rank_p,
    sum_interval,
)
from lens_heads.stats.correlation import ROUNDING
from lens_heads.stats.intervals import NOTHING

METRIC = "logprob"
"""What every claim is judged by: nats per answer token."""
ALL = "all tasks"
OWN, OTHERS = "the task's own heads", "other tasks' heads"


def sources(matrix: TransferMatrix, curve: AblationCurve, k: int) -> pd.DataFrame:
    """One row per source and task, and per source over all tasks (`ALL`).

    Columns: source, task; drop: nats per answer token that the source costs, with drop_low, drop_high; trials; beyond: the same
    beyond random heads, with its bounds, on `random_trials` of the trials, and p of the source's rank among the random sets; for
    rankings that random heads with their layers were drawn for, beyond_layers with its bounds. Several tasks' heads are ranked as
    one set, which is on the safe side. `k` is that of the matrix; the curve has a single one.
    """
    (size,) = {one.k for one in curve.conditions() if one.k}
    targets = {item: task for task in matrix.targets for item in matrix.items(task) or ()}
    ablated = matrix.per_trial
    assert ablated is not None
    ablated = ablated[(ablated["k"] == k) & ~ablated["method"].isin([NONE, RANDOM])]
    own = ablated["method"] == ablated["task"]
    values = {name: ablated[mine].groupby("trial")[METRIC].mean() for name, mine in ((OWN, own), (OTHERS, ~own))}
    values |= {name: curve.values(Condition.top(name, size), METRIC) for name in curve.rankings}
    measured, rows = curve.conditions(), []
    for name, every in values.items():
        for task in (*matrix.targets, ALL):
            found = every[every.index.map(targets) == task] if task != ALL else every
            against = {"drop": Condition.none(), "beyond": Condition.random(size)}
            against["beyond_layers"] = Condition.random_like(name, size)
            row, about = {"source": name, "task": task}, {}
            for column, condition in against.items():
                cost, trials, p = NOTHING, 0, math.nan
                draws = curve.draws(condition, METRIC).dropna() if condition in measured else pd.DataFrame()
                draws = draws.loc[draws.index.intersection(found.index)]
                if not draws.empty:
                    gaps = draws.sub(found.loc[draws.index], axis=0).to_numpy().T.copy()
                    cost = crossed_interval(torch.from_numpy(gaps), groups=curve.groups(draws.index))
                    trials, p = len(draws), rank_p(np.zeros(len(draws)), gaps).p
                row |= {column: cost.value, f"{column}_low": cost.low, f"{column}_high": cost.high}
                about[column] = p, trials
            row |= {"p": about["beyond"][0], "trials": about["drop"][1], "random_trials": about["beyond"][1]}
            rows.append(row)
    return pd.DataFrame(rows)


FORMATS = {
    "registrant_name": "name",
    "headquarters_city": "place",
    "headquarters_state": "place",
    "incorporation_state": "place",
    "incorporation_year": "number",
    "employees_count_total": "number",
    "ceo_lastname": "name",
    "holder_record_amount": "number",
}
"""The answer format of every task: the strata of correlations."""
SUBJECTS = {
    "registrant_name": "registrant",
    "headquarters_city": "headquarters",
    "headquarters_state": "headquarters",
    "incorporation_state": "incorporation",
    "incorporation_year": "incorporation",
    "employees_count_total": "employees",
    "ceo_lastname": "chief executive",
    "holder_record_amount": "holders",
}


@dataclass(frozen=True)
class Gap:
    """What related tasks' heads cost beyond unrelated ones', in the metric's unit, with a one-sided p over their orders."""

    gap: Interval[float]
    p: float
    items: int


def relation(tasks: Sequence[str]) -> Bool[np.ndarray, "source target"]:
    """Which pairs of different tasks share an answer format or a subject."""
    return np.array(
        [[a != b and (FORMATS[a] == FORMATS[b] or SUBJECTS[a] == SUBJECTS[b]) for b in tasks] for a in tasks]
    )


def weights(related: Bool[np.ndarray, "source target"]) -> Float[np.ndarray, "source target"] | None:
    """What to multiply drops with, so that their sum is the `gap`; None if the effects of tasks explain the relation."""
    tasks = len(related)
    source, target = np.nonzero(~np.eye(tasks, dtype=bool))
    effects = np.concatenate([np.eye(tasks)[source], np.eye(tasks)[target]], axis=1)
    pairs = related[source, target].astype(float)
    left = pairs - effects @ np.linalg.lstsq(effects, pairs, rcond=None)[0]
    if left @ pairs <= ROUNDING * len(pairs):
        return None
    found = np.zeros((tasks, tasks))
    found[source, target] = left / (left @ pairs)
    return found


def related_gap(matrix: TransferMatrix, k: int) -> Gap:
    """Do related tasks' heads cost a task more than unrelated ones', at one k of the matrix?

    The interval is over the items of every task. All NaN where too few tasks leave nothing to compare.
    """
    rows, tasks = matrix.per_trial, list(matrix.targets)
    found = weights(relation(tasks))
    assert rows is not None
    rows = rows[(rows["k"] == k) & ~rows["method"].isin([NONE, RANDOM])]
    tables, groups, drops = [], [], np.zeros_like(relation(tasks), dtype=float)
    for place, task in enumerate(tasks):
        own = rows[rows["task"] == task]
        values = own.pivot(index="trial", columns="method", values=matrix.metric)[tasks]
        drops[:, place] = -values.mean()  # Effects of targets take out what there is without ablation.
        if found is not None:
            tables.append(torch.from_numpy(-(values.to_numpy() @ found[:, place]))[None])
            groups.append(groups_in(own, values.index, "trial"))
    items = rows["trial"].nunique()
    if found is None:
        return Gap(NOTHING, math.nan, items)
    return Gap(sum_interval(tables, groups), over_orders(drops, found), items)


def over_orders(drops: Float[np.ndarray, "source target"], found: Float[np.ndarray, "source target"]) -> float:
    """The share of the orders of the tasks whose gap is at least as large."""
    orders = np.array(list(itertools.permutations(range(len(drops)))))
    gaps = np.einsum("ost,st->o", found[orders[:, :, None], orders[:, None]], drops)
    return float((gaps >= (found * drops).sum() - ROUNDING * np.abs(gaps).max()).mean())
