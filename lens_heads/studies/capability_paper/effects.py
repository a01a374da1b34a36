"""What ablating heads costs, from one long table of trials: means over tasks, draws of masks and trials, with intervals."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
import torch
from scipy.stats import binomtest

from lens_heads.evidence import estimates as statistics
from lens_heads.evidence.curve_results import AblationCurve
from lens_heads.heads.conditions import Condition
from lens_heads.stats import Interval, RandomRank, crossed_interval, rank_p, sum_interval, wilson
from lens_heads.stats.intervals import NOTHING

BEFORE = Condition.none()
Places = Mapping[str, Sequence[Condition]]
"""By task: the conditions whose costs are averaged."""


def drops(curve: AblationCurve, conditions: Sequence[Condition], metric: str, task: str) -> pd.DataFrame:
    """What ablation costs each trial, averaged over conditions: a row per trial, a column per draw that all of them have."""
    costs = []
    for condition in conditions:
        before, after = curve.pair(BEFORE, condition, metric, task)
        costs.append(-after.sub(before.iloc[:, 0], axis=0))
    draws = min(len(table.columns) for table in costs)
    trials = pd.concat(costs, axis=1, join="inner").index
    mean = np.mean([table.loc[trials].iloc[:, :draws].to_numpy(float) for table in costs], axis=0)
    return pd.DataFrame(mean, index=trials)


def mean_cost(curve: AblationCurve, places: Places, metrics: Mapping[str, str], level: float = 0.95) -> Interval:
    """The mean over tasks of what ablation costs, in each task's metric; trials are those of the task, draws those of all.

    Right answers are never told better than their score intervals tell them. All NaN without tasks.
    """
    if not places:
        return NOTHING
    tables = {task: drops(curve, conditions, metrics[task], task) for task, conditions in places.items()}
    draws = min(len(table.columns) for table in tables.values())
    arrays = [_tensor(table.iloc[:, :draws] / len(tables)) for table in tables.values()]
    groups = [curve.groups(table.index, task) for task, table in tables.items()]
    value, low, high = sum_interval(arrays, groups, level=level)
    down, up = 0.0, 0.0
    for task, conditions in places.items():
        if not metrics[task].endswith("logprob"):
            alone = [curve.difference(BEFORE, one, metrics[task], task, level) for one in conditions]
            down += float(np.mean([one.value - one.low for one in alone]) / len(tables)) ** 2
            up += float(np.mean([one.high - one.value for one in alone]) / len(tables)) ** 2
    low, high = np.minimum(low, value - math.sqrt(down)), np.maximum(high, value + math.sqrt(up))
    return Interval(value, float(low), float(high))


def gap(curve: AblationCurve, more: Condition, less: Sequence[Condition], metric: str, task: str) -> Interval:
    """What heads cost beyond the mean of other sets, paired by trial, over draws of masks and trials."""
    a, b = drops(curve, [more], metric, task), drops(curve, less, metric, task)
    trials, draws = a.index.intersection(b.index), min(len(a.columns), len(b.columns))
    return over_trials(curve, a.loc[trials].iloc[:, :draws] - b.loc[trials].iloc[:, :draws], task)


def over_trials(curve: AblationCurve, costs: pd.DataFrame, task: str) -> Interval:
    """The mean of a table of trials by draws of masks, with an interval for the luck of both."""
    return crossed_interval(_tensor(costs), groups=curve.groups(costs.index, task))


def within_heads(curve: AblationCurve, here: Condition, metric: str, task: str) -> Interval:
    """The damage given these heads: averaged over the draws of masks, over trials alone, because more trials narrow only this."""
    return over_trials(curve, drops(curve, [here], metric, task).mean(axis=1).to_frame(), task)


def rank(curve: AblationCurve, here: Condition, control: Condition, metric: str, task: str) -> RandomRank:
    """The rank of the heads, averaged over their draws of masks, among random sets on the same trials.

    A mean of several random sets varies no more than a single one, so the p of random heads holds its level, whether or not
    the draws of masks agree.
    """
    random, mine = curve.pair(control, here, metric, task)
    return rank_p(mine.mean(axis=1).to_numpy(float), random.to_numpy(float).T)


def above_chance(right: Sequence[float], chance: float) -> bool:
    """Whether a binomial test at 0.025 finds more right answers (0 or 1 each) than by chance. Only these can be lost.

    If chance is 0, one right answer is enough.
    """
    return bool(binomtest(round(sum(right)), len(right), chance, alternative="greater").pvalue < 0.025)


def lost(curve: AblationCurve, here: Condition, right: str, task: str, chance: float) -> Interval:
    """The share of right answers above chance that is lost: all NaN unless there are any above chance.

    Never narrower than Wilson's interval on as many trials as were right.
    """
    before, after = curve.pair(BEFORE, here, right, task)
    if not above_chance(curve.values(BEFORE, right, task).tolist(), chance):
        return NOTHING
    luck = pd.DataFrame(chance, index=before.index, columns=before.columns)
    value, low, high = statistics.share_lost(before, after, luck, curve.groups(before.index, task))
    least, most = wilson(min(max(value, 0.0), 1.0), max(float(before.to_numpy().sum()), 1.0))
    return Interval(value, float(np.minimum(low, least)), float(np.maximum(high, most)))


def columns(name: str, found: Interval) -> dict[str, float]:
    """An interval as three columns of a table."""
    return {name: found.value, f"{name}_low": found.low, f"{name}_high": found.high}


def _tensor(trials: pd.DataFrame) -> torch.Tensor:
    return torch.from_numpy(trials.to_numpy(float).T.copy())
