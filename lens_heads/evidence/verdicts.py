"""Verdicts on an ablation curve: do a ranking's heads break a task, is a task spared, does one ranking cost more than another?

Each is judged by what the k heads cost beyond k random heads, in nats per answer token, and comes with the numbers behind it.
Thresholds and k belong to the question and are set before the numbers are seen.
"""

from __future__ import annotations

import warnings
from dataclasses import replace

from lens_heads.evidence.curve_results import AblationCurve
from lens_heads.evidence.words import (
    ALPHA,
    DOES_NOT,
    HALF,
    HOLDS,
    MARGIN,
    UNTOLD,
    Verdict,
    benefit,
    bound,
    in_nats,
    judged_break,
    judged_spared,
    nats,
    ranked,
    untold,
    verdict_table,
)
from lens_heads.heads.conditions import Condition
from lens_heads.runs import checks
from lens_heads.runs.typed import typed
from lens_heads.runs.warned import users_line
from lens_heads.stats import Interval, RandomRank, rank_p

__all__ = [
    "DOES_NOT",
    "HALF",
    "HOLDS",
    "MARGIN",
    "UNTOLD",
    "Verdict",
    "breaks",
    "costs_more",
    "harms",
    "judge",
    "judged_break",
    "judged_spared",
    "negligible",
    "smallest_k",
    "spared",
    "verdict_table",
]
__dir__ = __all__.copy

CONTROLLED = 'Controls(("random", "random_like", "no_needle", "top_no_needle"), draws=40, of="all")'
"""What a curve needs so that every verdict can be given."""


@typed
def breaks(
    curve: AblationCurve,
    ranking: str | None = None,
    k: int | None = None,
    *,
    metric: str = "logprob",
    task: str | None = None,
    share: float = HALF,
) -> Verdict:
    """Do a ranking's top k heads break the task?

    Holds if they cost more than k random heads, uniform and layer-matched (interval above 0, and p <= 0.05 by rank), and if at
    least `share` of what the needle adds to the unablated model is lost (whole interval). Does not hold if the whole interval
    of the share lies below `share`, or that of the cost below 0.

    Args:
        curve: with `Controls(("random", "random_like", "no_needle", "top_no_needle"), draws=40)`; layer-matched heads may be
            missing, and without "top_no_needle" the share counts what ablation does to any prompt.
        ranking: by default the lead. k: by default the curve's only one.

    Raises ValueError for a ranking, k, metric or task that was not measured, and without random or no-needle controls.

    Example:
        >>> found = lh.verdicts.breaks(curve, k=2)  # Of eight heads, random ones are often these.
        >>> found.word, found.share.low > 0.5
        ('cannot be told', True)
    """
    checks.share("share", share, "0.5")
    lead = _condition(curve, ranking, k)
    task = task or curve.main_task
    cost, ranks, against, sets = _beyond_random(curve, lead, metric, task)
    _check(curve, [Condition.no_needle()], task)
    lost, trials = curve.share_lost(lead, metric, task=task), len(curve.values(lead, metric, task=task))
    text = f"{nats(cost, metric)} beyond {against}{benefit(lost)}"
    question = f"{lead.method}'s top {lead.k} heads break {task}"
    return judged_break(Verdict(question, UNTOLD, text, cost, lost, ranks, trials, sets=sets), share=share)


@typed
def harms(
    curve: AblationCurve,
    ranking: str | None = None,
    k: int | None = None,
    *,
    metric: str = "logprob",
    task: str | None = None,
) -> Verdict:
    """Do a ranking's top k heads cost a task more than k random heads? For tasks without a needle to compare with.

    Holds if the interval of the cost lies above 0 and p <= 0.05 by rank among random sets; does not hold if it lies below 0.
    Raises ValueError as `breaks` does.

    `curve`: with random heads as controls. `metric`: in whose unit the cost is.

    Example:
        >>> found = lh.verdicts.harms(curve, k=2)  # Of eight heads, random ones are often these.
        >>> found.word, found.cost.low > 0
        ('cannot be told', True)
    """
    lead = _condition(curve, ranking, k)
    task = task or curve.main_task
    cost, ranks, against, sets = _beyond_random(curve, lead, metric, task)
    question, trials = (
        f"{lead.method}'s top {lead.k} heads cost {task} more than random heads",
        len(curve.values(lead, metric, task=task)),
    )
    found = Verdict(
        question, UNTOLD, f"{nats(cost, metric)} beyond {against}", cost, ranks=ranks, trials=trials, sets=sets
    )
    if cost.high < 0:
        return replace(found, word=DOES_NOT)
    return ranked(found) if cost.low > 0 else untold(found, cost, 0.0)


@typed
def negligible(
    curve: AblationCurve, k: int, *, metric: str = "logprob", task: str | None = None, margin: float = MARGIN
) -> Verdict:
    """Do k random heads cost a task next to nothing? Equivalence as in `spared`, against no ablation.

    `curve`, `metric`, `margin`: as there.

    Example:
        >>> lh.verdicts.negligible(curve, k=2).word
        'does not hold'
    """
    _check_margin(margin, metric)
    checks.whole_number("k", k)
    task, random, none = task or curve.main_task, Condition.random(k), Condition.none()
    _check(curve, [none, random], task)
    cost = curve.difference(none, random, metric, task=task)
    upper = curve.difference(none, random, metric, task=task, level=1 - 2 * ALPHA).high
    text = f"{nats(cost, metric)}{bound(upper)}, margin {margin:g}"
    trials, sets = curve.draws(random, metric, task=task).shape
    question = f"{k} random heads cost {task} next to nothing"
    if _at_floor(curve, metric, task):
        return Verdict(question, UNTOLD, f"{text}; {NOTHING_RIGHT}", cost, trials=trials, sets=sets)
    return judged_spared(Verdict(question, UNTOLD, text, cost, trials=trials, sets=sets), upper, margin=margin)


@typed
def spared(
    curve: AblationCurve,
    ranking: str | None = None,
    k: int | None = None,
    *,
    metric: str = "logprob",
    task: str | None = None,
    margin: float = MARGIN,
) -> Verdict:
    """Is a task spared by a ranking's top k heads? A test of equivalence, on one side.

    Holds if they cost less than `margin` (in the metric's unit) beyond k uniform random heads: the upper end of the one-sided
    95 % interval. Does not hold if the lower end of the two-sided 95 % interval lies above the margin. Raises ValueError as
    `breaks` does.

    `curve`: with the task among its `specificity`.

    Example:
        >>> lh.verdicts.spared(curve, "chance", k=2).word
        'holds'
    """
    lead, task = _condition(curve, ranking, k), task or curve.main_task
    _check_margin(margin, metric)
    random = Condition.random(lead.k)
    _check(curve, [lead, random, Condition.none()], task)
    cost = curve.difference(random, lead, metric, task=task)
    upper = curve.difference(random, lead, metric, task=task, level=1 - 2 * ALPHA).high
    text = f"{nats(cost, metric)} beyond random heads{bound(upper)}, margin {margin:g}"
    question, trials = (
        f"{task} is spared by {lead.method}'s top {lead.k} heads",
        len(curve.values(lead, metric, task=task)),
    )
    sets = curve.draws(random, metric, task=task).shape[1]
    if _at_floor(curve, metric, task):
        return Verdict(question, UNTOLD, f"{text}; {NOTHING_RIGHT}", cost, trials=trials, sets=sets)
    return judged_spared(Verdict(question, UNTOLD, text, cost, trials=trials, sets=sets), upper, margin=margin)


NOTHING_RIGHT = "no trial is right without ablation, so nothing can be lost"


def _at_floor(curve: AblationCurve, metric: str, task: str) -> bool:
    """Whether a share of right answers is 0 before anything is ablated."""
    return not in_nats(metric) and not curve.values(Condition.none(), metric, task=task).any()


def _check_margin(margin: float, metric: str) -> None:
    """ValueError for a margin that is none, or that no share can exceed."""
    if checks.finite("margin", margin, 0) >= 1 and not in_nats(metric):
        raise ValueError(
            f"margin={margin!r}: {metric} is a share from 0 to 1, of which no loss is that large: use e.g. 0.05"
        )


@typed
def costs_more(
    curve: AblationCurve,
    ranking: str,
    other: str,
    k: int | None = None,
    *,
    metric: str = "logprob",
    task: str | None = None,
) -> Verdict:
    """Do a ranking's top k heads cost more than another's? The paired difference decides; the same heads, in any order, do not.

    Raises ValueError as `breaks` does.

    `curve`: of both rankings. `ranking`, `other`: their names. `metric`, `task`: what of the curve decides.

    Example:
        >>> lh.verdicts.costs_more(curve, "locos", "chance", k=2).word
        'holds'
    """
    lead, task = _condition(curve, ranking, k), task or curve.main_task
    against = Condition.top(other, lead.k)
    _check(curve, [lead, against], task)
    cost = curve.difference(against, lead, metric, task=task)
    question, trials = (
        f"{ranking}'s top {lead.k} heads cost {task} more than {other}'s",
        len(curve.values(lead, metric, task=task)),
    )
    verdict = Verdict(question, UNTOLD, nats(cost, metric), cost, trials=trials)
    mine, theirs = (set(curve.heads(one).split(",")) for one in (lead, against))
    if mine == theirs:
        return replace(verdict, word=DOES_NOT, because="they are the same heads")
    if cost.low > 0 or cost.high < 0:
        return replace(verdict, word=HOLDS if cost.low > 0 else DOES_NOT)
    return untold(verdict, cost, 0.0)


def _beyond_random(
    curve: AblationCurve, lead: Condition, metric: str, task: str
) -> tuple[Interval[float], dict[str, RandomRank], str, int]:
    """The cost beyond the random control that leaves the least of it, the rank among each control's draws, its name and draws."""
    uniform, like = Condition.random(lead.k), Condition.random_like(lead.method, lead.k)
    _check(curve, [Condition.none(), lead, uniform], task)
    controls = [uniform, *([like] if like in curve.conditions(task=task) else [])]
    costs = {control: curve.difference(control, lead, metric, task=task) for control in controls}
    ranks = {}
    for control in controls:
        draws, mine = curve.pair(control, lead, metric, task=task)
        ranks[control.set] = rank_p(mine.to_numpy(float)[:, 0], draws.to_numpy(float).T)
    hardest = min(controls, key=lambda control: costs[control].low)
    name = "random heads" if hardest.set == "random" else "random heads of the same layers"
    return costs[hardest], ranks, name, ranks[hardest.set].draws


def _condition(curve: AblationCurve, ranking: str | None, k: int | None) -> Condition:
    """The top k of a ranking. ValueError if the curve has no such ranking or number."""
    if curve.selecting:
        raise ValueError("this curve's trials selected something, so it proves nothing: run one on other trials")
    name = curve.rankings[0] if ranking is None else ranking
    sizes = _sizes(curve, name)
    if k is None and len(sizes) > 1:
        raise ValueError(f"the curve has k = {', '.join(map(str, sizes))}: say which, e.g. k={sizes[0]}")
    if k is not None and checks.whole(k) not in sizes:
        raise ValueError(f"k={k!r} was not measured for {name}: use {', '.join(map(str, sizes))}")
    return Condition.top(name, sizes[0] if k is None else k)


def _sizes(curve: AblationCurve, ranking: str) -> list[int]:
    """The numbers of a ranking's heads that were ablated. ValueError for none."""
    sizes = sorted({one.k for one in curve.conditions() if one.set == "top" and one.method == ranking})
    if not sizes:
        raise ValueError(f"ranking {ranking!r} was not ablated: use {', '.join(curve.rankings)}")
    return sizes


def _check(curve: AblationCurve, conditions: list[Condition], task: str) -> None:
    """ValueError unless the task was measured under every condition."""
    if task not in curve.tasks:
        raise ValueError(f"task {task!r} was not measured: use {', '.join(curve.tasks)}")
    measured = curve.conditions(task=task)
    missing = next((one for one in conditions if one not in measured), None)
    if missing is None:
        return
    alike = [one for one in measured if one.set == missing.set]
    ks = sorted({one.k for one in alike if one.method == missing.method})
    if ks:
        remedy = f"use k = {', '.join(map(str, ks))}"
    elif missing.set == "top":
        remedy = f"use {', '.join(dict.fromkeys(one.method for one in alike))}"
    else:
        remedy = f"run the curve with controls={CONTROLLED}"
    raise ValueError(f"nothing was measured for {missing} on {task!r}: {remedy}")


@typed
def judge(
    curve: AblationCurve, ranking: str | None = None, k: int | None = None, *, metric: str = "logprob"
) -> list[Verdict]:
    """Every verdict on a ranking's top k heads that a curve allows.

    Its task `breaks`, or `harms` where nothing was measured without the needle; the heads `costs_more` than those of every
    other ranking; every other task is `spared`. Raises ValueError as `breaks` does.

    `metric`: in whose unit the costs are.

    Example:
        >>> for one in lh.verdicts.judge(curve, k=2):
        ...     print(one.question, "->", one.word)
        locos's top 2 heads break main -> cannot be told
        locos's top 2 heads cost main more than chance's -> holds
        same is spared by locos's top 2 heads -> does not hold
    """
    lead = _condition(curve, ranking, k)
    first = breaks if Condition.no_needle() in curve.conditions() else harms
    alike = [one.method for one in curve.conditions() if (one.set, one.k) == (lead.set, lead.k) and one != lead]
    return [
        first(curve, lead.method, lead.k, metric=metric),
        *(costs_more(curve, lead.method, other, lead.k, metric=metric) for other in alike),
        *(spared(curve, lead.method, lead.k, metric=metric, task=task) for task in curve.tasks[1:]),
    ]


@typed
def smallest_k(curve: AblationCurve, ranking: str, *, share: float = HALF, metric: str = "logprob") -> int:
    """The smallest k at which a ranking's heads remove `share` of the benefit (`benefit_lost`); the largest, if none does.

    A rule for choosing k before a verdict, on a curve of selection trials (`ablation_curve(..., selecting=True)`).

    `metric`: of which the benefit is.

    Example:
        >>> lh.verdicts.smallest_k(curve, "locos")
        2
    """
    checks.share("share", share, "0.5")
    if not curve.selecting:
        warnings.warn(
            "smallest_k: a k that is chosen on the trials of a verdict flatters the ranking: choose it on a curve of others "
            "(ablation_curve(selecting=True))",
            stacklevel=users_line(),
        )
    sizes = _sizes(curve, ranking)
    lost = {k: curve.benefit_lost(Condition.top(ranking, k), metric).value for k in sizes}
    return next((k for k in sizes if lost[k] >= share), sizes[-1])
