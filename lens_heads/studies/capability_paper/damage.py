"""What the heads found are and what ablating them costs, as tables with intervals, from scores and one long table of trials."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch
from scipy.stats import binomtest

from lens_heads.compare import overlap
from lens_heads.compare.universal import Universal, universal_heads
from lens_heads.evidence import estimates as statistics
from lens_heads.evidence.curve_results import AblationCurve
from lens_heads.heads.conditions import Condition
from lens_heads.heads.head import Head
from lens_heads.heads.scores import HeadScores
from lens_heads.stats import Interval, RandomRank, crossed_interval, difference, rank_p, sum_interval, wilson
from lens_heads.stats.intervals import NOTHING
from lens_heads.studies.capability_paper.presets import Preset, Repeated, kin_of, owner

BEFORE = Condition.none()
Places = Mapping[str, Sequence[Condition]]
"""By task: the conditions whose costs are averaged."""


def drops(curve: AblationCurve, conditions: Sequence[Condition], metric: str, task: str) -> pd.DataFrame:
    """What ablation costs each trial, averaged over conditions: a row per trial, a column per draw that all of them have."""
    costs = []
    for condition in conditions:
        before, after = curve.pair(BEFORE, condition, metric, task=task)
        costs.append(-after.sub(before.iloc[:, 0], axis=0))
    draws = min(len(table.columns) for table in costs)
    trials = pd.concat(costs, axis=1, join="inner").index
    mean = np.mean([table.loc[trials].iloc[:, :draws].to_numpy(float) for table in costs], axis=0)
    return pd.DataFrame(mean, index=trials)


def mean_cost(curve: AblationCurve, places: Places, metrics: Mapping[str, str], level: float = 0.95) -> Interval[float]:
    """The mean over tasks of what ablation costs, in each task's metric; trials are those of the task, draws those of all.

    Right answers are never told better than their score intervals tell them. All NaN without tasks.
    """
    if not places:
        return NOTHING
    tables = {task: drops(curve, conditions, metrics[task], task) for task, conditions in places.items()}
    draws = min(len(table.columns) for table in tables.values())
    arrays = [_tensor(table.iloc[:, :draws] / len(tables)) for table in tables.values()]
    groups = [curve.groups(table.index, task=task) for task, table in tables.items()]
    value, low, high = sum_interval(arrays, groups, level=level)
    down, up = 0.0, 0.0
    for task, conditions in places.items():
        if not metrics[task].endswith("logprob"):
            alone = [curve.difference(BEFORE, one, metrics[task], task=task, level=level) for one in conditions]
            down += float(np.mean([one.value - one.low for one in alone]) / len(tables)) ** 2
            up += float(np.mean([one.high - one.value for one in alone]) / len(tables)) ** 2
    low, high = np.minimum(low, value - math.sqrt(down)), np.maximum(high, value + math.sqrt(up))
    return Interval(value, float(low), float(high))


def gap(curve: AblationCurve, more: Condition, less: Sequence[Condition], metric: str, task: str) -> Interval[float]:
    """What heads cost beyond the mean of other sets, paired by trial, over draws of masks and trials."""
    a, b = drops(curve, [more], metric, task), drops(curve, less, metric, task)
    trials, draws = a.index.intersection(b.index), min(len(a.columns), len(b.columns))
    return over_trials(curve, a.loc[trials].iloc[:, :draws] - b.loc[trials].iloc[:, :draws], task)


def over_trials(curve: AblationCurve, costs: pd.DataFrame, task: str) -> Interval[float]:
    """The mean of a table of trials by draws of masks, with an interval for the luck of both."""
    return crossed_interval(_tensor(costs), groups=curve.groups(costs.index, task=task))


def within_heads(curve: AblationCurve, here: Condition, metric: str, task: str) -> Interval[float]:
    """The damage given these heads: averaged over the draws of masks, over trials alone, because more trials narrow only this."""
    return over_trials(curve, drops(curve, [here], metric, task).mean(axis=1).to_frame(), task)


def rank(curve: AblationCurve, here: Condition, control: Condition, metric: str, task: str) -> RandomRank:
    """The rank of the heads, averaged over their draws of masks, among random sets on the same trials.

    A mean of several random sets varies no more than a single one, so the p of random heads holds its level, whether or not
    the draws of masks agree.
    """
    random, mine = curve.pair(control, here, metric, task=task)
    return rank_p(mine.mean(axis=1).to_numpy(float), random.to_numpy(float).T)


def above_chance(right: Sequence[float], chance: float) -> bool:
    """Whether a binomial test at 0.025 finds more right answers (0 or 1 each) than by chance. Only these can be lost.

    If chance is 0, one right answer is enough.
    """
    return bool(binomtest(round(sum(right)), len(right), chance, alternative="greater").pvalue < 0.025)


def lost(curve: AblationCurve, here: Condition, right: str, task: str, chance: float) -> Interval[float]:
    """The share of right answers above chance that is lost: all NaN unless there are any above chance.

    Never narrower than Wilson's interval on as many trials as were right.
    """
    before, after = curve.pair(BEFORE, here, right, task=task)
    if not above_chance(curve.values(BEFORE, right, task=task).tolist(), chance):
        return NOTHING
    luck = pd.DataFrame(chance, index=before.index, columns=before.columns)
    value, low, high = statistics.share_lost(before, after, luck, groups=curve.groups(before.index, task=task))
    _, least, most = wilson(min(max(value, 0.0), 1.0), max(float(before.to_numpy().sum()), 1.0))
    return Interval(value, float(np.minimum(low, least)), float(np.maximum(high, most)))


def columns(name: str, found: Interval[float]) -> dict[str, float]:
    """An interval as three columns of a table."""
    return {name: found.value, f"{name}_low": found.low, f"{name}_high": found.high}


def _tensor(trials: pd.DataFrame) -> torch.Tensor:
    return torch.from_numpy(trials.to_numpy(float).T.copy())


def spread(curve: AblationCurve, plan: Preset, metrics: Mapping[str, str], sources: Sequence[str]) -> pd.DataFrame:
    """One row per set of heads and kind of task: damage, that of as many random heads, and the rank among them.

    The mean over tasks, each in its own metric. Both ways: heads of a capability on other data, heads of other data on it.
    """
    rows: list[dict[str, Any]] = []
    for source in sources:
        name, here, random = owner(source), Condition.top(source, plan.k), Condition.random(plan.k)
        unrelated = [task for task in plan.capabilities if task != name]
        for where, tasks in {"own": [name], "other data": [kin_of(name)], "unrelated": unrelated}.items():
            measured = [task for task in tasks if task in metrics and here in curve.conditions(task=task)]
            if not measured or len(measured) < len(tasks):
                continue
            cost = mean_cost(curve, {task: [here] for task in tasks}, metrics)
            row = {"heads": source, "k": plan.k, "on": where, "tasks": len(tasks), **columns("damage", cost)}
            if all(random in curve.conditions(task=task) for task in tasks):
                chance = mean_cost(curve, {task: [random] for task in tasks}, metrics)
                row |= columns("random", chance) | columns("beyond_random", difference(cost, chance))
            if where == "own":
                row["p"] = rank(curve, here, random, metrics[name], name).p
            rows.append(row)
    return pd.DataFrame(rows).reindex(columns=SPREAD)


SPREAD = ["heads", "k", "on", "tasks", "damage", "damage_low", "damage_high", "random", "random_low", "random_high"]
SPREAD += ["beyond_random", "beyond_random_low", "beyond_random_high", "p"]


def everywhere(curve: AblationCurve, plan: Preset, metrics: Mapping[str, str], sources: Sequence[str]) -> pd.DataFrame:
    """One row per capability's heads (source) and task: metric, base, value, and damage = base - value with its interval."""
    rows: list[dict[str, Any]] = []
    for source in sources:
        for task, metric in metrics.items():
            here, base = Condition.top(source, plan.k), float(curve.values(BEFORE, metric, task=task).mean())
            cost, low, high = mean_cost(curve, {task: [here]}, metrics)
            row = {"source": source, "task": task, "k": plan.k, "metric": metric, "base": base, "value": base - cost}
            rows.append({**row, "damage": cost, "low": low, "high": high})
    return pd.DataFrame(rows)


def right_answers(
    curve: AblationCurve, plan: Preset, names: Sequence[str], chances: Mapping[str, float]
) -> pd.DataFrame:
    """One row per capability and number of heads: right answers, those with random heads, and the share above chance lost."""
    rows: list[dict[str, Any]] = []
    for name in names:
        right = plan.capabilities[name].right
        for k in (0, *plan.ks):
            here, random = (Condition.top(name, k), Condition.random(k)) if k else (BEFORE, BEFORE)
            row = {"capability": name, "right": right, "k": k, "chance": chances[name]}
            row |= {"value": curve.values(here, right, task=name).mean()}
            row |= {"random": curve.values(random, right, task=name).mean()}
            row |= columns("lost", lost(curve, here, right, name, chances[name])) if k else {}
            rows.append(row)
    return pd.DataFrame(rows)


def growing(curve: AblationCurve, plan: Preset, metrics: Mapping[str, str], names: Sequence[str]) -> pd.DataFrame:
    """One row per capability, number of heads and set ("top" or "random"): damage on the capability's own trials."""
    rows = [
        {"capability": name, "set": here.set, "k": k, **columns("damage", mean_cost(curve, {name: [here]}, metrics))}
        for name in names
        for k in plan.ks
        for here in (Condition.top(name, k), Condition.random(k))
    ]
    return pd.DataFrame(rows)


def additivity(curve: AblationCurve, plan: Preset, metrics: Mapping[str, str], scores: Repeated) -> pd.DataFrame:
    """One row per capability: damage by the k heads together, the sum of each one's alone, and what is over or missing."""
    rows: list[dict[str, Any]] = []
    for name, draws in scores.items():
        metric, together = metrics[name], Condition.top(name, plan.k)
        alone = {
            one.method: drops(curve, [one], metric, name)[0]
            for one in curve.conditions(task=name)
            if one.set == "given"
        }
        sums = pd.DataFrame(
            {at: sum(alone[str(head)] for head in found.ranking()[: plan.k]) for at, found in enumerate(draws)}
        )
        whole = drops(curve, [together], metric, name)
        whole, sums = whole.align(sums, join="inner")
        row: dict[str, Any] = {"capability": name, "k": plan.k, **columns("together", over_trials(curve, whole, name))}
        row |= columns("each_alone", over_trials(curve, sums, name)) | columns(
            "excess", over_trials(curve, whole - sums, name)
        )
        rows.append(row)
    return pd.DataFrame(rows)


def alone(
    curve: AblationCurve, plan: Preset, metrics: Mapping[str, str], heads: Mapping[Head, list[tuple[str, int]]]
) -> pd.DataFrame:
    """One row per candidate, task and metric: what ablating that head alone costs, and how often it was found.

    The task's own metric first ("own" is True), then those of the best choice. `found_in` capabilities have it among their
    k heads by any draw of masks, `found` counts capabilities and draws. "low" and "high" hold for all candidates and tasks
    together (Bonferroni).
    """
    rows: list[dict[str, Any]] = []
    level = 1 - 0.05 / (len(heads) * len(plan.capabilities))
    for head, found in heads.items():
        here = Condition.given(str(head), 1)
        about = {"head": str(head), "found_in": len({name for name, _ in found}), "found": len(found)}
        for task in plan.capabilities:
            for metric in dict.fromkeys((metrics[task], "choice", "choice_logprob")):
                if curve.draws(BEFORE, metric, task=task).isna().all(axis=None):
                    continue
                value, low, high = curve.difference(BEFORE, here, metric, task=task, level=level)
                row = {**about, "task": task, "metric": metric, "own": metric == metrics[task]}
                rows.append({**row, "damage": value, "low": low, "high": high})
    return pd.DataFrame(rows)


def methods(
    curve: AblationCurve, plan: Preset, metrics: Mapping[str, str], evaluations: Mapping[str, int]
) -> pd.DataFrame:
    """One row per method: its heads, its evaluations, and what its heads cost their own capability and others."""
    own, others, random = plan.compared, [task for task in plan.capabilities if task != plan.compared], Condition.random
    rows: list[dict[str, Any]] = []
    chance = mean_cost(curve, {own: [random(plan.k)]}, metrics)
    for method, count in evaluations.items():
        here = Condition.top(method, plan.k)
        cost = mean_cost(curve, {own: [here]}, metrics)
        row: dict[str, Any] = {"method": method, "heads": curve.heads(here).replace(",", ", "), "evaluations": count}
        row |= columns("damage", cost) | columns("random", chance)
        row |= columns("beyond_random", difference(cost, chance))
        rows.append(row | columns("others", mean_cost(curve, {task: [here] for task in others}, metrics)))
    return pd.DataFrame(rows)


def fits(scores: Repeated, costs: dict[str, list[float]]) -> pd.DataFrame:
    """One row per capability and draw of masks: how well few heads explain the effect of the masks, and their damage."""
    return pd.DataFrame(
        [
            {"capability": name, "draw": draw, "metric": found.settings["metric"], "trials": found.meta["n_trials"]}
            | {"base": found.base, "evaluations": found.evaluations}
            | {"chosen_heads": len(found.fit["heads"])}
            | {part: found.fit[part] for part in ("r2", "held_out_r2", "alpha")}
            | {"damage": costs[name][draw] if name in costs else np.nan}
            for name, draws in scores.items()
            for draw, found in enumerate(draws)
        ]
    )


def by_draw(curve: AblationCurve, scores: Repeated, plan: Preset, metrics: dict[str, str]) -> dict[str, list[float]]:
    """What the heads of each draw of masks cost their capability."""
    tops = {name: [Condition.top(name, plan.k)] for name in scores if name in metrics}
    return {name: drops(curve, here, metrics[name], name).mean().tolist() for name, here in tops.items()}


def best_heads(scores: Repeated, k: int) -> pd.DataFrame:
    """One row per capability and head among the top k by any draw of masks: by how many draws, mean coefficient, mean rank."""
    rows: list[dict[str, Any]] = []
    for name, draws in scores.items():
        ranks = [{head: place for place, head in enumerate(found.ranking(), 1)} for found in draws]
        found = sorted({head for each in draws for head in each.ranking()[:k]})
        rows += [
            {"capability": name, "head": str(head), "draws": sum(head in each.ranking()[:k] for each in draws)}
            | {"coefficient": float(np.mean([each[head] for each in draws]))}
            | {"mean_rank": float(np.mean([each[head] for each in ranks]))}
            for head in sorted(found, key=lambda head: sum(each[head] for each in ranks))
        ]
    return pd.DataFrame(rows)


def agreement(scores: Repeated, k: int) -> pd.DataFrame:
    """How far top k heads agree, by Jaccard: one row per capability (its draws of masks) and pair of capabilities.

    Means over all pairs of draws, beside the hypergeometric expectation of random heads; `p` is the largest of the pairs.
    Capabilities with a single draw have no row of their own.
    """
    rows: list[dict[str, Any]] = []
    for a, b in itertools.combinations_with_replacement(scores, 2):
        pairs = itertools.combinations(scores[a], 2) if a == b else itertools.product(scores[a], scores[b])
        found = [overlap(one, other, k=k) for one, other in pairs]
        if found:
            means = {
                part: float(np.mean([getattr(one, part) for one in found])) for part in ("jaccard", "expected_jaccard")
            }
            p = max(one.p_value for one in found)
            rows.append({"a": a, "b": b, "same": a == b, "pairs": len(found), **means, "p": p})
    return pd.DataFrame(rows, columns=["a", "b", "same", "pairs", "jaccard", "expected_jaccard", "p"])


def shared(scores: Repeated, k: int, most: int) -> dict[Head, list[tuple[str, int]]]:
    """The heads in the top k of the most capabilities, then draws of masks: each with the capabilities and draws."""
    found: dict[Head, list[tuple[str, int]]] = defaultdict(list)
    for name, draws in scores.items():
        for draw, each in enumerate(draws):
            for head in each.ranking()[:k]:
                found[head].append((name, draw))
    order = sorted(found, key=lambda head: (-len({name for name, _ in found[head]}), -len(found[head]), head))
    return {head: found[head] for head in order[:most]}


def universal(scores: Repeated, names: Sequence[str], plan: Preset) -> Universal | None:
    """The universal heads of the named capabilities, each by its mean over draws of masks; None with fewer than it takes."""
    if len(names) < plan.at_least:
        return None
    return universal_heads({name: pooled(scores[name]) for name in names}, k=plan.k, at_least=plan.at_least)


def pooled(draws: Sequence[HeadScores]) -> HeadScores:
    """A capability's heads by the mean coefficient over draws of masks."""
    values = torch.stack([one.values for one in draws])
    about: dict[str, Any] = {"best": draws[0].best, "model": draws[0].model}
    return HeadScores.from_trials(draws[0].method, values, [f"draw {at}" for at in range(len(draws))], **about)


def by_luck(found: Universal, n: int = 2000, seed: int = 0) -> float:
    """P(at least as many universal heads) if every capability drew its k heads at random: (hits + 1) / (n + 1)."""
    drawn = np.random.default_rng(seed).random((n, found.n_tasks, found.n_heads)).argsort(-1) < found.k
    hits = ((drawn.sum(1) >= found.at_least).sum(-1) >= len(found.heads)).sum()
    return float((hits + 1) / (n + 1))
