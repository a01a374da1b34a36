"""What the study of capabilities finds and claims: the finding, and the rules, on values per trial, of a run or stored.

Texts, estimands and thresholds are in `claims.json`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pandas as pd

from lens_heads.compare import overlap_by_depth
from lens_heads.compare.universal import Universal
from lens_heads.evidence.curve_results import AblationCurve
from lens_heads.evidence.verdicts import DOES_NOT, HOLDS, UNTOLD, Verdict, bound, judged_break, judged_spared
from lens_heads.evidence.words import ranged
from lens_heads.heads.conditions import Condition
from lens_heads.heads.head import Head
from lens_heads.stats import Interval, difference
from lens_heads.studies.capability_paper import damage
from lens_heads.studies.capability_paper.damage import (
    BEFORE,
    above_chance,
    drops,
    gap,
    lost,
    mean_cost,
    over_trials,
    rank,
)
from lens_heads.studies.capability_paper.presets import LEAD, Preset, Repeated, kin_of, owner
from lens_heads.studies.claims import Claim, margin, nothing, published, row, shares, told
from lens_heads.studies.finding import Finding


@dataclass(frozen=True, eq=False, kw_only=True)
class CapabilityFinding(Finding):
    """What the study found in one model.

    `scores` are by capability and draw of masks, "<capability>, other data" among them; `reasons` says why one has none.
    `curve` has every set of k heads on every task, `metrics` each task's metric, `chances` the share of answers that are right
    without the question. `luck` is the p-value of as many `universal` heads, None with too few capabilities; `shared` are the
    candidates, with the capabilities and draws that have them. `methods` is by method, on the capability `plan.compared`, and
    `compared` ablates their heads.
    """

    plan: Preset
    parameters: int
    scores: Repeated
    reasons: dict[str, str]
    curve: AblationCurve
    metrics: dict[str, str]
    chances: dict[str, float]
    universal: Universal | None
    luck: float
    shared: dict[Head, list[tuple[str, int]]]
    methods: Repeated
    compared: AblationCurve

    @property
    def own(self) -> list[str]:
        """The capabilities that have heads."""
        return [name for name in self.scores if name == owner(name)]

    def able(self, task: str) -> bool:
        """Whether the unablated model does a task better than chance. What it cannot do, no heads carry."""
        return able(self.curve, self.plan, self.chances, task)

    def notes(self) -> dict[str, Any]:
        return {"parameters": self.parameters, "reasons": self.reasons, "chances": self.chances}


@dataclass(frozen=True)
class TaskMap:
    """Every capability's heads on every task, for a map: `frame` has a row per source and task, `metrics` are by task."""

    frame: pd.DataFrame
    metrics: dict[str, str]

    def matrix(self, column: str) -> pd.DataFrame:
        """A column of the frame as a table of sources by tasks."""
        wide = self.frame.pivot(index="source", columns="task", values=column)
        return wide.loc[list(dict.fromkeys(self.frame["source"])), list(self.metrics)]


def able(curve: AblationCurve, plan: Preset, chances: dict[str, float], task: str) -> bool:
    """Whether the unablated model does a task better than chance."""
    right = plan.capabilities[owner(task)].right
    return above_chance(curve.values(BEFORE, right, task=task).tolist(), chances[task])


def beside(findings: Sequence[CapabilityFinding]) -> pd.DataFrame:
    """One row per capability and model, and the paper's: parameters, heads, base, damage and share lost by the k heads.

    `lost` is the share of right answers above chance that is lost; NaN if there are none. `agreement` is the mean Jaccard of
    the draws of masks, `expected` that of random heads.
    """
    rows: list[dict[str, Any]] = []
    for each in findings:
        spread, agreement, claims = (each.frames[name] for name in ("spread", "agreement", "claims"))
        lost = claims[claims["id"] == "carries"].set_index("capability")
        for name in each.own:
            damage = spread[(spread["heads"] == name) & (spread["on"] == "own")].iloc[0]
            same = agreement[(agreement["a"] == name) & agreement["same"]]
            row = {"capability": name, "model": each.name, "parameters": each.parameters, "k": each.plan.k}
            row |= {"heads": len(each.scores[name][0].flat), "metric": each.metrics[name]}
            row |= {"base": float(each.curve.values(BEFORE, each.metrics[name], task=name).mean())}
            row |= {part: damage[part] for part in ("damage", "damage_low", "damage_high")}
            row |= {f"lost{end}": lost.loc[name, f"share{end}"] for end in ("", "_low", "_high")}
            row |= {"agreement": same["jaccard"].mean(), "expected": same["expected_jaccard"].mean()}
            rows.append(row | {"evaluations": sum(found.evaluations for found in each.scores[name])})
    for point in published(__name__)["scale"]:
        row = {name: point[name] for name in ("capability", "model", "parameters", "heads", "k")}
        rows.append(row | {"lost": 1 - point["after"] / point["before"]})
    return pd.DataFrame(rows).sort_values(["capability", "parameters"], kind="stable", ignore_index=True)


def depths(findings: Sequence[CapabilityFinding], k: int) -> pd.DataFrame:
    """One row per capability and pair of models: do its top k heads by the first draw of masks sit at the same depth?"""
    rows: list[dict[str, Any]] = []
    for a, b in itertools.combinations(findings, 2):
        for name in [name for name in a.own if name in b.own]:
            one, other = a.scores[name][0], b.scores[name][0]
            found = overlap_by_depth(one, other, k=k, bins=min(10, one.n_layers, other.n_layers))
            row = {"overlap": found.overlap, "expected": found.expected, "p_value": found.p_value}
            rows.append({"capability": name, "models": f"{a.name} and {b.name}", **row})
    return pd.DataFrame(rows)


CURVES = {"curve": "damage", "alone": "alone", "compared": "methods"}
"""The curves that claims are judged by, and the tables of trials that they are stored as."""
UNABLE = "the unablated model is not above chance"
Judged = Iterator[tuple[str, Verdict]]
"""Capabilities (or "", for a claim about all of them), and what was found."""


def asked_claims(plan: Preset) -> list[Claim]:
    """The claims, with their thresholds in the unit of a preset's metrics: nats, or right answers."""
    return [{**claim, "threshold": threshold(claim, plan)} for claim in published(__name__)["claims"]]


def claim_words(plan: Preset) -> dict[str, Any]:
    """What fills the texts of the claims."""
    counts = {"tests": plan.most_trials, "selects": plan.n_select, "few": plan.random_trials}
    unit = "nats" if _in_nats(plan) else "right answers"
    return {**vars(plan), **counts, "capability": "a capability", "unit": unit}


def threshold(claim: Claim, plan: Preset) -> float:
    """A claim's threshold in the unit of the preset's metrics: nats, or right answers."""
    return claim["threshold"] if _in_nats(plan) else claim.get("threshold_answers", claim["threshold"])


def _in_nats(plan: Preset) -> bool:
    return all(one.metric.endswith("logprob") for one in plan.localized.values())


def claims(finding: CapabilityFinding) -> pd.DataFrame:
    """One row per claim, and per capability if the claim is about the heads of one."""
    plan, rows = finding.plan, []
    for claim in asked_claims(plan):
        at = margin(claim, _own_effect(finding)) if "relative" in claim else claim["threshold"]
        for name, found in RULES[claim["rule"]](finding, at):
            if found.would_tell:  # Trials and draws of masks narrow an interval only together.
                draws = math.ceil(plan.mask_draws * found.would_tell / found.trials)
                text = f"{found.because}; about {ranged(found.would_tell)} trials and {ranged(draws)} draws of masks would tell"
                found = replace(found, because=text)
            by = found.share if claim["rule"] == "carries" else None
            about = {"capability": name, "trials": found.trials, "would_tell": found.would_tell}
            rows.append({**row(claim, found, by, capability=name, at_least=plan.at_least), **shares(found), **about})
    return pd.DataFrame(rows).astype({"would_tell": float})


def _carries(finding: CapabilityFinding, at: float) -> Judged:
    """The share of right answers above chance that k heads take away; random heads must cost less."""
    curve, k = finding.curve, finding.plan.k
    for name in finding.own:
        here, metric, right = Condition.top(name, k), finding.metrics[name], finding.plan.capabilities[name].right
        before, after = (curve.values(one, right, task=name) for one in (BEFORE, here))
        text = f"{before.mean():.3f} → {after.mean():.3f}"
        if not finding.able(name):
            yield name, nothing(f"{text}: {UNABLE} ({finding.chances[name]:.2f})")
            continue
        cost = mean_cost(curve, {name: [here]}, finding.metrics)
        controls = [Condition.random(k), Condition.random_like(name, k)]
        beyond = {one: difference(cost, mean_cost(curve, {name: [one]}, finding.metrics)) for one in controls}
        ranks = {one.set: rank(curve, here, one, metric, name) for one in controls}
        hardest = min(beyond.values(), key=lambda one: one.low)
        share = lost(curve, here, right, name, finding.chances[name])
        text += f", {hardest.value:.2f} [{hardest.low:.2f}, {hardest.high:.2f}] beyond random heads"
        yield name, judged_break(Verdict("", UNTOLD, text, hardest, share, ranks, len(before)), share=at)
    for name, reason in finding.reasons.items():
        if name == owner(name):
            yield name, nothing(reason)


def _own_effect(finding: CapabilityFinding) -> Interval[float]:
    """What own heads cost their capabilities beyond random heads, of those that the model has: the margin is a share of it."""
    curve, k, able = finding.curve, finding.plan.k, [name for name in finding.own if finding.able(name)]
    if not able:
        return Interval(0.0, 0.0, 0.0)
    own, random = (
        mean_cost(curve, {name: [of(name)] for name in able}, finding.metrics)
        for of in (lambda name: Condition.top(name, k), lambda name: Condition.random(k))
    )
    return difference(own, random)


def _others(finding: CapabilityFinding, task: str) -> list[Condition]:
    """The heads of each unrelated capability."""
    return [Condition.top(name, finding.plan.k) for name in finding.own if name != owner(task)]


def _spared(finding: CapabilityFinding, at: float) -> Judged:
    """What other capabilities' heads cost beyond random heads, over the tasks that the model does better than chance."""
    curve, plan = finding.curve, finding.plan
    if len(finding.own) < 2:
        yield "", nothing("there is only one capability")
        return
    tasks = [task for task in plan.capabilities if finding.able(task)]
    if not tasks:
        yield "", nothing(f"{UNABLE} on any task")
        return
    theirs, random = (
        {task: _others(finding, task) for task in tasks},
        {task: [Condition.random(plan.k)] for task in tasks},
    )
    found, narrow = (
        difference(mean_cost(curve, theirs, finding.metrics, level), mean_cost(curve, random, finding.metrics, level))
        for level in (0.95, 0.9)
    )
    lost_most = {task: mean_cost(curve, {task: theirs[task]}, finding.metrics).value for task in tasks}
    worst = max(lost_most, key=lost_most.__getitem__)
    text = f"{found.value:.2f} beyond random heads{bound(narrow.high)}, on {len(tasks)} of "
    text += f"{len(plan.capabilities)} tasks; {worst} loses most: {lost_most[worst]:.2f}"
    trials = min(len(drops(curve, theirs[task], finding.metrics[task], task)) for task in tasks)
    verdict = judged_spared(Verdict("", UNTOLD, text, found, trials=trials), narrow.high, margin=at)
    harmed = (finding.frames["spread"].query("on == 'own'")["beyond_random_low"] > 0).any()
    if verdict.word == HOLDS and not harmed:
        verdict = replace(
            verdict, word=UNTOLD, because=f"{text}; no heads cost their own capability more than random ones"
        )
    yield "", verdict


def _told(found: Interval[float], text: str, trials: int, at: float = 0.0) -> Verdict:
    """Whether a number is above a threshold: its whole interval decides."""
    if math.isnan(found.half_width):
        text += " (no interval below five trials, groups of trials or draws of masks)"
    return told(Verdict("", UNTOLD, text, found, trials=trials), at)


def _beyond_others(finding: CapabilityFinding, at: float, which: str) -> Judged:
    """Damage by heads minus the mean damage by other capabilities' heads, on a task: `which` heads on which task."""
    curve, k, own = finding.curve, finding.plan.k, finding.own
    pairs = {
        "specific": {name: name for name in own},
        "general": {kin_of(name): name for name in own if kin_of(name) in finding.metrics},
        "returns": {name: kin_of(name) for name in own if kin_of(name) in finding.scores},
    }[which]
    if len(finding.own) < 2 or not pairs:
        yield "a capability", nothing("there is only one capability" if pairs else "there is no other data")
        return
    for task, source in pairs.items():
        metric, here = finding.metrics[task], Condition.top(source, k)
        if not finding.able(task):
            yield owner(task), nothing(f"{UNABLE} ({finding.chances[task]:.2f})")
            continue
        mine = mean_cost(curve, {task: [here]}, finding.metrics)
        theirs = mean_cost(curve, {task: _others(finding, task)}, finding.metrics)
        text = f"damage {mine.value:.2f}, by others' heads {theirs.value:.2f}"
        trials = len(drops(curve, [here], metric, task))
        yield owner(task), _told(gap(curve, here, _others(finding, task), metric, task), text, trials, at)


def _universal(finding: CapabilityFinding, at: float) -> Judged:
    """By the mean over draws of masks: in a single draw, few heads are in the right place."""
    if finding.universal is None:
        able = sum(finding.able(name) for name in finding.own)
        yield "", nothing(f"too few capabilities that the model has: {able}")
        return
    found, p = finding.universal, finding.luck
    listed = ", ".join(map(str, found.heads)) or "none"
    text = f"{listed}; {found.expected:.2g} expected by chance, p {p:.2g}"
    yield "", Verdict("", HOLDS if p < at else UNTOLD, text, Interval(len(found.heads), math.nan, math.nan))


def _alone(finding: CapabilityFinding, at: float) -> Judged:
    """The candidate that costs the most capabilities more than the threshold."""
    table, least = finding.frames["alone"], finding.plan.at_least
    table = table[table["own"] & table["task"].map({task: finding.able(task) for task in finding.plan.capabilities})]
    if table["task"].nunique() < least:
        yield "", nothing(f"too few capabilities that the model has: {table['task'].nunique()}")
        return
    told = table.assign(costly=table["low"] > at, may=~(table["high"] < at)).groupby("head")[["costly", "may"]].sum()
    best = told["costly"].idxmax()
    listed = ", ".join(f"{row['task']} {row['damage']:.2f}" for row in table[table["head"] == best].to_dict("records"))
    many = int(told.loc[best, "costly"])  # type: ignore[arg-type]  # a count
    word = HOLDS if many >= least else DOES_NOT if told["may"].max() < least else UNTOLD
    yield "", Verdict("", word, f"{best}: {listed}", Interval(many, math.nan, math.nan))


def _cheaper(finding: CapabilityFinding, at: float) -> Judged:
    """Damage by compressed sensing minus a share of greedy's, on the capability that methods are compared on."""
    used, curve, task = (
        finding.frames["methods"].set_index("method")["evaluations"],
        finding.compared,
        finding.plan.compared,
    )
    if "greedy" not in used or not finding.able(task):
        why = f"{UNABLE} on {task}" if "greedy" in used else "greedy search was not run because it needs too many here"
        yield "", nothing(f"{used[LEAD]} evaluations; {why}")
        return
    ours, theirs = (
        drops(curve, [Condition.top(one, finding.plan.k)], finding.metrics[task], task) for one in (LEAD, "greedy")
    )
    text = f"damage {ours.to_numpy().mean():.2f} with {used[LEAD]} evaluations, {theirs.to_numpy().mean():.2f} with "
    text += f"{used['greedy']} ({task})"
    ours, theirs = ours.loc[ours.index.intersection(theirs.index)], theirs[0]
    found = _told(over_trials(curve, ours.sub(at * theirs, axis=0).dropna(), task), text, len(ours))
    if not over_trials(curve, theirs.to_frame(), task).low > 0:
        found = replace(
            found, word=UNTOLD, because=f"{text}: greedy search itself does no clear damage", would_tell=None
        )
    elif used[LEAD] >= used["greedy"]:
        found = replace(found, word=DOES_NOT, would_tell=None)
    yield "", found


RULES: dict[str, Callable[[CapabilityFinding, float], Judged]] = {
    "carries": _carries,
    "spared": _spared,
    "specific": partial(_beyond_others, which="specific"),
    "general": partial(_beyond_others, which="general"),
    "returns": partial(_beyond_others, which="returns"),
    "universal": _universal,
    "alone": _alone,
    "cheaper": _cheaper,
}


def judged(
    model: str,
    plan: Preset,
    *,
    scores: Repeated,
    chances: dict[str, float],
    curves: Mapping[str, AblationCurve],
    evaluations: Mapping[str, int],
    **more: Any,
) -> CapabilityFinding:
    """The finding, with its claims, the tables that they read, and those from which claims can be judged again.

    Of the `curves`, "curve" has the heads of every capability on every task, "alone" the candidates for universal heads one by
    one, "compared" the heads of every method, which took so many `evaluations`. `more` are further fields of the finding.
    """
    curve, alone, compared = (curves[name] for name in CURVES)
    mine = {name: draws for name, draws in scores.items() if name == owner(name)}
    metrics = {task: plan.capabilities[owner(task)].metric for task in chances}
    shared = damage.shared(mine, plan.k, plan.candidates)
    universal = damage.universal(mine, [name for name in mine if able(curve, plan, chances, name)], plan)
    ranked = [
        one.ranked.assign(capability=name, draw=draw)
        for name, draws in scores.items()
        for draw, one in enumerate(draws)
    ]
    finding = CapabilityFinding(
        model=model,
        frames={
            "spread": damage.spread(curve, plan, metrics, list(scores)),
            "alone": damage.alone(alone, plan, metrics, shared),
            "methods": damage.methods(compared, plan, metrics, evaluations),
        },
        trials={
            **{f"{CURVES[name]}_trials": one.per_trial for name, one in curves.items()},
            "scores": pd.concat(ranked, ignore_index=True),
        },
        plan=plan,
        scores=scores,
        curve=curve,
        metrics=metrics,
        chances=chances,
        universal=universal,
        luck=math.nan if universal is None else damage.by_luck(universal),
        shared=shared,
        compared=compared,
        **more,
    )
    finding.frames["claims"] = claims(finding)
    return finding
