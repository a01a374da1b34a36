"""What different sources of heads cost the trials of all tasks: a task's own, other tasks', the pooled and a foreign ranking's.

All are compared trial by trial with the same random sets of all heads.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch

from lens_heads.evidence.curve_results import AblationCurve
from lens_heads.evidence.transfer_cells import NONE, RANDOM
from lens_heads.evidence.transfer_results import TransferMatrix
from lens_heads.heads.conditions import Condition
from lens_heads.stats import Interval, crossed_interval, rank_p
from lens_heads.stats.intervals import NOTHING
from lens_heads.studies.fragile_paper.finding import ALL
from lens_heads.studies.fragile_paper.presets import METRIC

OWN, OTHERS = "the task's own heads", "other tasks' heads"


def sources(matrix: TransferMatrix, curve: AblationCurve, k: int) -> pd.DataFrame:
    """One row per source and task, and per source over all tasks (`ALL`).

    Columns: source, task; drop: nats per answer token that the source costs, with drop_low, drop_high; trials; beyond: the same
    beyond random heads, with its bounds, on `random_trials` of the trials, and p of the source's rank among the random sets; for
    rankings that random heads with their layers were drawn for, beyond_layers with its bounds. Several tasks' heads are ranked as
    one set, which is on the safe side. `k` is that of the matrix; the curve has a single one.
    """
    (size,) = {one.k for one in curve.conditions() if one.k}
    targets = _targets(matrix)
    values = _of_tasks(matrix, k) | {name: curve.values(Condition.top(name, size), METRIC) for name in curve.rankings}
    measured, rows = curve.conditions(), []
    for name, found in values.items():
        for task in (*matrix.targets, ALL):
            own = found[found.index.map(targets) == task] if task != ALL else found
            controls = {"drop": Condition.none(), "beyond": Condition.random(size)}
            controls["beyond_layers"] = Condition.random_like(name, size)
            costs = {
                column: _cost(curve, own, condition) if condition in measured else UNMEASURED
                for column, condition in controls.items()
            }
            rows.append({"source": name, "task": task} | _columns(costs))
    return pd.DataFrame(rows)


class Cost(NamedTuple):
    """What a source costs beyond a condition, on how many trials, and p of its rank among the condition's draws."""

    cost: Interval
    trials: int
    p: float


UNMEASURED = Cost(NOTHING, 0, math.nan)


def _columns(costs: Mapping[str, Cost]) -> dict[str, Any]:
    """Every cost with its bounds; trials of the drop, and of the cost beyond random heads."""
    bounds = {
        f"{name}{end}": getattr(found.cost, at)
        for name, found in costs.items()
        for end, at in (("", "value"), ("_low", "low"), ("_high", "high"))
    }
    beyond = costs["beyond"]
    return bounds | {"p": beyond.p, "trials": costs["drop"].trials, "random_trials": beyond.trials}


def _cost(curve: AblationCurve, values: pd.Series, against: Condition) -> Cost:
    """What a source costs beyond a condition of the curve, on the trials that both have."""
    draws = curve.draws(against, METRIC).dropna()
    draws = draws.loc[draws.index.intersection(values.index)]
    if draws.empty:
        return UNMEASURED
    gaps = draws.sub(values.loc[draws.index], axis=0).to_numpy().T.copy()
    rank = rank_p(np.zeros(len(draws)), gaps)
    return Cost(crossed_interval(torch.from_numpy(gaps), groups=curve.groups(draws.index)), len(draws), rank.p)


def _targets(matrix: TransferMatrix) -> dict[str, str]:
    """The task of every item."""
    return {item: task for task in matrix.targets for item in matrix.items(task) or ()}


def _of_tasks(matrix: TransferMatrix, k: int) -> dict[str, pd.Series]:
    """The metric of every item with its own task's heads ablated, and with another task's, mean over the others."""
    rows = matrix.per_item
    assert rows is not None
    rows = rows[(rows["k"] == k) & ~rows["source"].isin([NONE, RANDOM])]
    own = rows["source"] == rows["target"]
    return {name: rows[mine].groupby("item")[METRIC].mean() for name, mine in ((OWN, own), (OTHERS, ~own))}
