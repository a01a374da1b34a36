"""Each claim of the paper beside what this model shows: holds, does not, or cannot be told.

The claims, the paper's numbers and the thresholds are data (`claims.json`); here are the rules they are judged by.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib import resources
from typing import Any

import numpy as np
import pandas as pd

from lens_heads.ablation.conditions import Condition
from lens_heads.localize import Generality, Universal
from lens_heads.studies.capability_paper.damage import BEFORE, above_chance, mean_gap
from lens_heads.studies.capability_paper.presets import LEAD
from lens_heads.studies.capability_paper.stages import kin_of
from lens_heads.studies.verdicts import DOES_NOT, HOLDS, UNTOLD, widened


@dataclass(frozen=True)
class Evidence:
    """What the claims are read from.

    `spread`, `right_answers`: tables of `damage`. `everywhere`: every set of heads on every task. `right`: by task, the metric
    that says which answers are right. `methods`: the heads of every method on the tasks, those of one capability,
    `compared`; `evaluations` by method. `chances`: right answers without the question, by task. `luck`: p of as many
    universal heads.
    """

    k: int
    spread: pd.DataFrame
    right_answers: pd.DataFrame
    everywhere: Generality
    right: Mapping[str, str]
    methods: Generality
    compared: str
    evaluations: Mapping[str, int]
    chances: Mapping[str, float]
    universal: Universal | None = None
    luck: float = math.nan
    reasons: Mapping[str, str] = field(default_factory=dict)

    @property
    def capabilities(self) -> list[str]:
        return [name for name in self.everywhere.sizes if name in self.everywhere.metrics]


@dataclass(frozen=True)
class Found:
    """A number with its interval (or its p), a word on it, and the verdict."""

    value: float
    low: float
    high: float
    text: str
    verdict: str
    p: float = math.nan

    @classmethod
    def nothing(cls, text: str) -> Found:
        return cls(math.nan, math.nan, math.nan, text, UNTOLD)


def published() -> dict[str, Any]:
    """The paper's claims and numbers."""
    data = resources.files("lens_heads.studies.capability_paper") / "claims.json"
    return json.loads(data.read_text(encoding="utf-8"))


def claims(evidence: Evidence) -> pd.DataFrame:
    """One row per claim, where it is of a capability's heads per capability: claim, paper, found, value, low, high, p, verdict,
    holds_if.
    """
    rows = []
    for claim in published()["claims"]:
        for name, found in RULES[claim["rule"]](evidence, claim["threshold"]):
            row = {"id": claim["id"], "claim": claim["claim"].format(capability=name), "paper": claim["paper"]}
            row |= {"found": found.text, "value": found.value, "low": found.low, "high": found.high, "p": found.p}
            rows.append(row | {"verdict": found.verdict, "holds_if": claim["holds"]})
    return pd.DataFrame(rows)


def _judged(value: float, low: float, high: float, text: str, at: float, sure: bool = True) -> Found:
    """By the whole interval: above the threshold, or below it."""
    if math.isnan(low) or math.isnan(high):
        return Found(value, low, high, text, UNTOLD)
    return Found(value, low, high, text, HOLDS if low > at and sure else DOES_NOT if high < at else UNTOLD)


Judged = Iterator[tuple[str, Found]]


def _carries(evidence: Evidence, at: float) -> Judged:
    """Share of the right answers above chance that k heads take away; they have to cost more than random ones."""
    table = evidence.right_answers
    for name in evidence.capabilities:
        mine = {row["k"]: row for row in table[table["capability"] == name].to_dict("records")}
        before, after = mine[0], mine[evidence.k]
        text = f"{before['value']:.3f} → {after['value']:.3f}"
        if math.isnan(after["lost"]):
            yield name, Found.nothing(f"{text}: the unablated model is not above chance ({before['chance']:.2f})")
            continue
        own = evidence.spread.query("heads == @name and on == 'own'").iloc[0]
        sure = own["beyond_random_low"] > 0
        yield name, _judged(after["lost"], after["lost_low"], after["lost_high"], text, at, sure)
    for name, reason in evidence.reasons.items():
        yield name, Found.nothing(reason)


def _unrelated(evidence: Evidence, task: str) -> list[str]:
    """The capabilities whose heads are not those of a task, nor of the task that it is other data of."""
    return [name for name in evidence.capabilities if task not in (name, kin_of(name))]


def _of_others(evidence: Evidence, task: str, metric: str) -> tuple[pd.Series, pd.Series]:
    """A metric of a task's trials: without ablation, and on the mean under every unrelated capability's heads."""
    curve, others = evidence.everywhere.curve, _unrelated(evidence, task)
    before = curve.values(BEFORE, metric, task)
    under = [curve.values(Condition.top(name, evidence.k), metric, task) for name in others]
    return before, sum(under[1:], under[0]) / len(under)


def _spared(evidence: Evidence, at: float) -> Judged:
    """Right answers that other capabilities' heads cost a task, over the tasks that the model can do at all."""
    if len(evidence.capabilities) < 2:
        yield "", Found.nothing("there is a single capability")
        return
    tasks = [task for task in evidence.everywhere.metrics if not task.endswith(kin_of(""))]
    pairs = {task: _of_others(evidence, task, evidence.right[task]) for task in tasks}
    pairs = {task: pair for task, pair in pairs.items() if above_chance(pair[0].tolist(), evidence.chances[task])}
    if not pairs:
        yield "", Found.nothing("the unablated model is not above chance on any task")
        return
    found = mean_gap([_row(before - after) for before, after in pairs.values()])
    low, high = widened(*found)
    harmed = bool((evidence.spread.query("on == 'own'")["beyond_random_low"] > 0).any())
    before, after = (float(np.mean([pair[i].mean() for pair in pairs.values()])) for i in (0, 1))
    lost = {task: float((pair[0] - pair[1]).mean()) for task, pair in pairs.items()}
    worst = max(lost, key=lost.__getitem__)
    text = f"{before:.3f} → {after:.3f} of answers right, {len(pairs)} of {len(tasks)} tasks; {worst} most: {lost[worst]:.2f}"
    verdict = UNTOLD if math.isnan(low) else DOES_NOT if low > at else HOLDS if high <= at and harmed else UNTOLD
    yield "", Found(found.value, low, high, text, verdict)


def _row(values: pd.Series) -> np.ndarray:
    return values.dropna().to_numpy(float)[None]


def _beyond_others(evidence: Evidence, tasks: Mapping[str, str], at: float) -> Judged:
    """A task's trials under its capability's heads, against the mean under others', paired; each task in its own metric."""
    if len(evidence.capabilities) < 2 or not tasks:
        yield "the capability", Found.nothing("there is nothing to compare with" if tasks else "there is no other data")
        return
    for task, name in tasks.items():
        metric = evidence.everywhere.metrics[task]
        before, under = _of_others(evidence, task, metric)
        mine = evidence.everywhere.curve.values(Condition.top(name, evidence.k), metric, task)
        text = f"damage {(before - mine).mean():.2f}, by others' {(before - under).mean():.2f}"
        found = mean_gap([_row(under - mine)])
        yield name, _judged(found.value, found.low, found.high, text, at)


def _specific(evidence: Evidence, at: float) -> Judged:
    return _beyond_others(evidence, {name: name for name in evidence.capabilities}, at)


def _general(evidence: Evidence, at: float) -> Judged:
    kin = {kin_of(name): name for name in evidence.capabilities if kin_of(name) in evidence.everywhere.metrics}
    return _beyond_others(evidence, kin, at)


def _universal(evidence: Evidence, at: float) -> Judged:
    found = evidence.universal
    if found is None:
        yield "", Found.nothing(f"there are {len(evidence.capabilities)} capabilities")
        return
    named = ", ".join(f"{head} ({len(found.tasks[head])} of {found.n_tasks})" for head in found.heads) or "none"
    text = f"{named}; {found.expected:.2g} by chance, p {evidence.luck:.2g}"
    verdict = HOLDS if evidence.luck < at else UNTOLD
    yield "", Found(float(len(found.heads)), math.nan, math.nan, text, verdict, evidence.luck)


def _cheaper(evidence: Evidence, at: float) -> Judged:
    """Damage by compressed sensing less a share of greedy's, on the capability that methods are compared on."""
    used = evidence.evaluations
    if "greedy" not in used:
        yield "", Found.nothing(f"{used[LEAD]} evaluations; greedy search asks for too many here, and was not run")
        return
    ours, theirs = (_damage(evidence, method) for method in (LEAD, "greedy"))
    found = mean_gap([_row(ours - at * theirs)])
    text = f"damage {ours.mean():.2f} with {used[LEAD]} evaluations, {theirs.mean():.2f} with {used['greedy']}"
    text += f" ({evidence.compared})"
    judged = _judged(found.value, found.low, found.high, text, 0.0)
    if mean_gap([_row(theirs)]).low <= 0:
        yield (
            "",
            Found(judged.value, judged.low, judged.high, f"{text}: greedy search itself does no sure damage", UNTOLD),
        )
        return
    dearer = used[LEAD] >= used["greedy"]
    yield "", Found(judged.value, judged.low, judged.high, text, DOES_NOT if dearer else judged.verdict)


def _damage(evidence: Evidence, method: str) -> pd.Series:
    """Of every trial that ran."""
    curve, task = evidence.methods.curve, evidence.compared
    metric, here = evidence.methods.metrics[task], Condition.top(method, evidence.methods.sizes[method])
    return curve.values(BEFORE, metric, task) - curve.values(here, metric, task)


RULES: dict[str, Callable[[Evidence, float], Judged]] = {
    "carries": _carries,
    "spared": _spared,
    "specific": _specific,
    "general": _general,
    "universal": _universal,
    "cheaper": _cheaper,
}
