"""The claims of the study of capabilities: the rules that judge them. Texts, numbers and thresholds are in `claims.json`."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

import numpy as np
import pandas as pd

from lens_heads.ablation.conditions import Condition
from lens_heads.studies.capability_paper.damage import BEFORE, above_chance, mean_gap
from lens_heads.studies.capability_paper.finding import CapabilityFinding
from lens_heads.studies.capability_paper.presets import LEAD
from lens_heads.studies.capability_paper.stages import kin_of
from lens_heads.studies.claims import DOES_NOT, HOLDS, UNTOLD, Found, above, at_most, published, widened


def claims(finding: CapabilityFinding) -> pd.DataFrame:
    """One row per claim, and per capability if the claim is about the heads of one."""
    rows = [
        found.row(claim, capability=name)
        for claim in published(__name__)["claims"]
        for name, found in RULES[claim["rule"]](finding, claim["threshold"])
    ]
    return pd.DataFrame(rows)


Judged = Iterator[tuple[str, Found]]
"""Capabilities (or "", for a claim about all of them), and what was found."""


def _carries(finding: CapabilityFinding, at: float) -> Judged:
    """The share of right answers above chance that k heads take away; random heads must cost less."""
    table = finding.frames["right_answers"]
    for name in finding.scores:
        mine = {row["k"]: row for row in table[table["capability"] == name].to_dict("records")}
        before, after = mine[0], mine[finding.plan.k]
        text = f"{before['value']:.3f} → {after['value']:.3f}"
        if math.isnan(after["lost"]):
            yield (name, Found.nothing(f"{text}: the unablated model is not above chance ({before['chance']:.2f})"))
            continue
        own = finding.frames["spread"].query("heads == @name and on == 'own'").iloc[0]
        low, high = after["lost_low"], after["lost_high"]
        yield (name, Found(after["lost"], low, high, text, above(low, high, at, own["beyond_random_low"] > 0)))
    for name, reason in finding.reasons.items():
        yield name, Found.nothing(reason)


def _of_others(finding: CapabilityFinding, task: str, metric: str) -> tuple[pd.Series, pd.Series]:
    """A metric of a task's trials: without ablation, and the mean with each unrelated capability's heads ablated."""
    curve, others = finding.generality.curve, [name for name in finding.scores if task not in (name, kin_of(name))]
    before = curve.values(BEFORE, metric, task)
    under = [curve.values(Condition.top(name, finding.plan.k), metric, task) for name in others]
    return before, sum(under[1:], under[0]) / len(under)


def _spared(finding: CapabilityFinding, at: float) -> Judged:
    """Right answers that other capabilities' heads cost, over the tasks that the model does better than chance."""
    if len(finding.scores) < 2:
        yield "", Found.nothing("there is only one capability")
        return
    tasks = [task for task in finding.generality.metrics if not task.endswith(kin_of(""))]
    pairs = {task: _of_others(finding, task, finding.plan.capabilities[task].right) for task in tasks}
    pairs = {task: pair for task, pair in pairs.items() if above_chance(pair[0].tolist(), finding.chances[task])}
    if not pairs:
        yield "", Found.nothing("the unablated model is not above chance on any task")
        return
    found = mean_gap([_row(before - after) for before, after in pairs.values()])
    low, high = widened(*found)
    harmed = bool((finding.frames["spread"].query("on == 'own'")["beyond_random_low"] > 0).any())
    before, after = (float(np.mean([pair[i].mean() for pair in pairs.values()])) for i in (0, 1))
    lost = {task: float((pair[0] - pair[1]).mean()) for task, pair in pairs.items()}
    worst = max(lost, key=lost.__getitem__)
    text = f"{before:.3f} → {after:.3f} of answers right on {len(pairs)} of {len(tasks)} tasks; "
    text += f"{worst} loses most: {lost[worst]:.2f}"
    yield "", Found(found.value, low, high, text, at_most(low, high, at, harmed))


def _row(values: pd.Series) -> np.ndarray:
    return values.dropna().to_numpy(float)[None]


def _gap(values: pd.Series, text: str, at: float) -> Found:
    """The mean over trials, which has to exceed a threshold."""
    found = mean_gap([_row(values)])
    return Found(found.value, found.low, found.high, text, above(found.low, found.high, at))


def _beyond_others(finding: CapabilityFinding, tasks: Mapping[str, str], at: float) -> Judged:
    """Damage by a capability's own heads minus the mean damage by others', paired by trial, in the task's own metric."""
    if len(finding.scores) < 2 or not tasks:
        yield ("a capability", Found.nothing("there is only one capability" if tasks else "there is no other data"))
        return
    for task, name in tasks.items():
        metric = finding.generality.metrics[task]
        before, under = _of_others(finding, task, metric)
        mine = finding.generality.curve.values(Condition.top(name, finding.plan.k), metric, task)
        text = f"damage {(before - mine).mean():.2f}, by others' heads {(before - under).mean():.2f}"
        yield name, _gap(under - mine, text, at)


def _specific(finding: CapabilityFinding, at: float) -> Judged:
    return _beyond_others(finding, {name: name for name in finding.scores}, at)


def _general(finding: CapabilityFinding, at: float) -> Judged:
    kin = {kin_of(name): name for name in finding.scores if kin_of(name) in finding.generality.metrics}
    return _beyond_others(finding, kin, at)


def _universal(finding: CapabilityFinding, at: float) -> Judged:
    found = finding.universal
    if found is None:
        yield "", Found.nothing(f"too few capabilities: {len(finding.scores)}")
        return
    named = ", ".join(f"{head} ({len(found.tasks[head])} of {found.n_tasks})" for head in found.heads) or "none"
    text = f"{named}; {found.expected:.2g} expected by chance, p {finding.luck:.2g}"
    verdict = HOLDS if finding.luck < at else UNTOLD
    yield ("", Found(float(len(found.heads)), math.nan, math.nan, text, verdict, finding.luck))


def _cheaper(finding: CapabilityFinding, at: float) -> Judged:
    """Damage by compressed sensing minus a share of greedy's, on the capability that methods are compared on."""
    used = finding.frames["methods"].set_index("method")["evaluations"]
    if "greedy" not in used:
        yield ("", Found.nothing(f"{used[LEAD]} evaluations; greedy search was not run because it needs too many here"))
        return
    ours, theirs = (_damage(finding, method) for method in (LEAD, "greedy"))
    text = (
        f"damage {ours.mean():.2f} with {used[LEAD]} evaluations, {theirs.mean():.2f} with {used['greedy']} "
        f"({finding.plan.compared})"
    )
    found = _gap(ours - at * theirs, text, 0.0)
    if mean_gap([_row(theirs)]).low <= 0:
        found = replace(found, text=f"{text}: greedy search itself does no clear damage", verdict=UNTOLD)
    elif used[LEAD] >= used["greedy"]:
        found = replace(found, verdict=DOES_NOT)
    yield "", found


def _damage(finding: CapabilityFinding, method: str) -> pd.Series:
    """By trial."""
    curve, task = finding.compared.curve, finding.plan.compared
    metric, here = (finding.compared.metrics[task], Condition.top(method, finding.compared.sizes[method]))
    return curve.values(BEFORE, metric, task) - curve.values(here, metric, task)


RULES: dict[str, Callable[[CapabilityFinding, float], Judged]] = {
    "carries": _carries,
    "spared": _spared,
    "specific": _specific,
    "general": _general,
    "universal": _universal,
    "cheaper": _cheaper,
}
