"""Rankings compared over all numbers of heads: at one k, the rule that chose it decides which one looks best."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import reduce

import pandas as pd

from lens_heads.evidence import estimates as statistics
from lens_heads.evidence.curve_results import AblationCurve
from lens_heads.evidence.estimates import Draws
from lens_heads.evidence.faithfulness_results import trapezoid_weights
from lens_heads.evidence.words import HALF
from lens_heads.heads.conditions import Condition
from lens_heads.runs import checks
from lens_heads.runs.typed import typed

RANDOM = "random"


@typed
def areas(
    curve: AblationCurve,
    *,
    metric: str = "logprob",
    task: str | None = None,
    lead: str | None = None,
    share: float = HALF,
    level: float = 0.95,
) -> pd.DataFrame:
    """What each ranking's heads cost on average over log k, and how few of them take half of what there is to lose.

    The area of a ranking is the mean of none - top k over log k by the trapezoid rule, in the metric's unit, trial by trial, so
    that rankings are compared on the same trials. Random heads are a row of their own if every k has the same draws.

    Args:
        curve: with several k, the same for every ranking.
        metric, task: what of the curve. lead: compared with every other ranking; by default the curve's first.
        share: the share to lose for `heads`.
        level: of the intervals.

    Returns:
        One row per ranking: method, area, low, high, ahead (the lead's area minus this one's, paired), ahead_low, ahead_high,
        heads (the number at which the mean loss reaches `share` of the benefit, `AblationCurve.benefit_lost`: between two k by
        a line over log k, below the smallest k that k, infinite if no k reaches it; NaN where the benefit was not measured).

    ValueError for a curve with rankings of different k, or a metric or task that was not measured.

    Example:
        >>> found = lh.evidence.areas(curve)
        >>> float(found.set_index("method").loc["chance", "ahead_low"]) > 0
        True
    """
    checks.share("share", share, "0.5")
    lead, task = lead or curve.rankings[0], task or curve.main_task
    measured = {name: ks_of(curve, name, "top", task) for name in curve.rankings}
    if lead not in measured:
        raise ValueError(f"lead={lead!r} was not ablated: use {', '.join(measured)}")
    other = next((name for name, ks in measured.items() if ks != measured[lead]), None)
    if other is not None:
        raise ValueError(
            f"{other} ran at k = {measured[other]}, but {lead} at {measured[lead]}: run them at the same k"
        )
    ks = measured[lead]
    tables = {name: over_log_k(curve, [Condition.top(name, k) for k in ks], metric, task) for name in measured}
    if ks_of(curve, "any", "random", task) == ks:
        tables[RANDOM] = over_log_k(curve, [Condition.random(k) for k in ks], metric, task)
    told = metric.endswith("margin") or Condition.no_needle() in curve.conditions(task=task)
    rows = []
    for name, table in tables.items():
        area = statistics.mean(table, curve.groups(table.index, task=task), level)
        both = table.index.intersection(tables[lead].index)
        ahead = statistics.paired(tables[lead].loc[both], table.loc[both], curve.groups(both, task=task), level)
        row = {"method": name, "area": area.value, "low": area.low, "high": area.high}
        row |= {"ahead": ahead.value, "ahead_low": ahead.low, "ahead_high": ahead.high}
        heads = math.nan if name == RANDOM or not told else heads_to_lose(curve, name, share, metric, task)
        rows.append({**row, "heads": heads})
    return pd.DataFrame(rows)


def ks_of(curve: AblationCurve, ranking: str, which: str, task: str) -> list[int]:
    """The numbers of heads that a ranking's set ran at, in ascending order."""
    return sorted({one.k for one in curve.conditions(task=task) if (one.method, one.set) == (ranking, which)})


def heads_to_lose(curve: AblationCurve, ranking: str, share: float, metric: str, task: str) -> float:
    """The number of heads, between two k by a line over log k, at which the mean loss reaches a share of the benefit."""
    before = None
    for k in ks_of(curve, ranking, "top", task):
        lost = curve.benefit_lost(Condition.top(ranking, k), metric, task=task).value
        if lost >= share:
            if before is None:
                return float(k)
            part = (share - before[1]) / (lost - before[1])
            return float(math.exp(math.log(before[0]) + part * math.log(k / before[0])))
        before = k, lost
    return math.inf


def over_log_k(curve: AblationCurve, conditions: Sequence[Condition], metric: str, task: str | None = None) -> Draws:
    """What conditions of ascending k take from the metric, mean over log k: one row per trial, a column per draw."""
    none = curve.values(Condition.none(), metric, task=task)
    costs = [curve.draws(one, metric, task=task).dropna().rsub(none, axis=0).dropna() for one in conditions]
    weights = trapezoid_weights([one.k for one in conditions], "log")
    parts = [weight * cost for weight, cost in zip(weights, costs, strict=True)]
    return reduce(pd.DataFrame.add, parts).dropna(axis=1, how="all").dropna()
