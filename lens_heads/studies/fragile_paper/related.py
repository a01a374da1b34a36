"""Which of the eight tasks are related, by answer format and subject, and whether related tasks' heads cost a task more.

drop[s, t] = effect of source s + effect of target t + `gap` * related(s, t), by least squares over s != t: that some tasks are
fragile, and some tasks' heads disruptive, counts for nothing. p is over all orders of the tasks, applied to s and t together
(Mantel, "The detection of disease clustering", 1967; as a regression: Krackhardt, "Predicting with networks", 1988).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float

from lens_heads.evidence.transfer_cells import NONE, RANDOM
from lens_heads.evidence.transfer_results import TransferMatrix
from lens_heads.heads.grouping import groups_in
from lens_heads.stats import Interval, sum_interval
from lens_heads.stats.correlation import ROUNDING
from lens_heads.stats.intervals import NOTHING

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

    gap: Interval
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
    rows, tasks = matrix.per_item, list(matrix.targets)
    found = weights(relation(tasks))
    assert rows is not None
    rows = rows[(rows["k"] == k) & ~rows["source"].isin([NONE, RANDOM])]
    tables, groups, drops = [], [], np.zeros_like(relation(tasks), dtype=float)
    for place, task in enumerate(tasks):
        own = rows[rows["target"] == task]
        values = own.pivot(index="item", columns="source", values=matrix.metric)[tasks]
        drops[:, place] = -values.mean()  # Effects of targets take out what there is without ablation.
        if found is not None:
            tables.append(torch.from_numpy(-(values.to_numpy() @ found[:, place]))[None])
            groups.append(groups_in(own, values.index, "item"))
    items = rows["item"].nunique()
    if found is None:
        return Gap(NOTHING, math.nan, items)
    return Gap(sum_interval(tables, groups), over_orders(drops, found), items)


def over_orders(drops: Float[np.ndarray, "source target"], found: Float[np.ndarray, "source target"]) -> float:
    """The share of the orders of the tasks whose gap is at least as large."""
    orders = np.array(list(itertools.permutations(range(len(drops)))))
    gaps = np.einsum("ost,st->o", found[orders[:, :, None], orders[:, None]], drops)
    return float((gaps >= (found * drops).sum() - ROUNDING * np.abs(gaps).max()).mean())
