"""Each headline claim of the paper beside what this model shows: holds, does not, or cannot be told.

The claims, the paper's numbers and the thresholds are data (`claims.json`); here are the rules they are judged by.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from importlib import resources
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats as scipy_stats

from lens_heads.ablation.conditions import Condition
from lens_heads.ablation.curves import AblationCurve
from lens_heads.studies.locos_paper.presets import FACTORIAL
from lens_heads.studies.verdicts import DOES_NOT, HOLDS, UNTOLD, widened

LEAD = "locos"


@dataclass(frozen=True)
class Evidence:
    """What the claims are read from: the curve of every ranking (log-probability), that of judged texts, and at which k.

    `baseline` is the attention method whose heads cost most at this k. `calls` says of each task what was asked.
    """

    curve: AblationCurve
    texts: AblationCurve
    k: int
    baseline: str
    calls: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Found:
    """A number with its interval and a word on it; `sure` is False where the claim cannot hold whatever the interval says."""

    value: float
    low: float
    high: float
    text: str
    sure: bool = True

    @classmethod
    def nothing(cls, text: str) -> Found:
        return cls(math.nan, math.nan, math.nan, text, False)


def claims(evidence: Evidence) -> pd.DataFrame:
    """One row per claim: claim, paper, measured_on, found, value, low, high, verdict, holds_if, metric, k, trials.

    Claims about a task that was not measured are left out.
    """
    data = resources.files("lens_heads.studies.locos_paper") / "claims.json"
    listed = json.loads(data.read_text(encoding="utf-8"))["claims"]
    measured, rows = set(evidence.texts.per_trial["task"]), []
    for claim in (one for one in listed if one["task"] in measured):
        found = RULES[claim["rule"]](evidence, claim)
        rows.append(
            {"id": claim["id"], "claim": claim["claim"], "paper": claim["paper"]}
            | {"measured_on": evidence.calls.get(claim["task"], claim["task"]), "found": found.text}
            | {"value": found.value, "low": found.low, "high": found.high, "verdict": _verdict(claim, found)}
            | {"holds_if": claim["holds"], "metric": claim["metric"], "k": evidence.k}
            | {"trials": len(evidence.texts.values(Condition.none(), "logprob", claim["task"]))}
        )
    return pd.DataFrame(rows)


def _verdict(claim: dict[str, Any], found: Found) -> str:
    """By the whole interval, which the rules make wide enough for few trials."""
    if math.isnan(found.value) or math.isnan(found.low):
        return UNTOLD
    at, low, high = claim["threshold"], found.low, found.high
    if claim["rule"] == "spared":
        return HOLDS if high <= at and found.sure else DOES_NOT if low > at else UNTOLD
    if claim["rule"] == "random_within":
        return HOLDS if -at <= low and high <= at and found.sure else DOES_NOT if low > at or high < -at else UNTOLD
    return HOLDS if low > at and found.sure else DOES_NOT if high < at else UNTOLD


def _pair(evidence: Evidence, claim: dict[str, Any], condition: Condition) -> tuple[np.ndarray, np.ndarray]:
    """The metric of each trial before and after an ablation."""
    task, metric = claim["task"], claim["metric"]
    before, after = (evidence.texts.values(one, metric, task) for one in (Condition.none(), condition))
    both = before.index.intersection(after.index)
    return before[both].to_numpy(float), after[both].to_numpy(float)


def _loses(evidence: Evidence, claim: dict[str, Any]) -> Found:
    """Share of the score that is lost; it has to be more than random heads cost."""
    best = Condition.top(LEAD, evidence.k)
    before, after = _pair(evidence, claim, best)
    if before.mean() <= 0:
        return Found.nothing("the unablated model answers none")
    value, low, high = evidence.texts.relative_loss(best, claim["metric"], claim["task"])
    low, high = widened(value, low, high, int((before > 0).sum()))
    random = _difference(evidence.texts, claim, Condition.random(evidence.k))
    return Found(value, low, high, f"{before.mean():.3f} → {after.mean():.3f}", sure=random["low"] > 0)


def _change(evidence: Evidence, claim: dict[str, Any], condition: Condition) -> Found:
    """What a set of heads costs, in the metric; where the unablated model hardly does the task, there is little to lose."""
    before, after = _pair(evidence, claim, condition)
    if before.mean() <= 0:
        return Found.nothing("the unablated model answers none")
    table = evidence.texts.frame
    mine = {"task": claim["task"], "metric": claim["metric"], **asdict(condition)}
    row = table[(table[list(mine)] == pd.Series(mine)).all(axis=1)].iloc[0]
    low, high = widened(row["drop"], row["drop_low"], row["drop_high"], len(before))
    shown = f"{before.mean():.3f} → {after.mean():.3f}"
    return Found(row["drop"], low, high, shown, sure=before.mean() > 2 * claim["threshold"])


def _spared(evidence: Evidence, claim: dict[str, Any]) -> Found:
    return _change(evidence, claim, Condition.top(LEAD, evidence.k))


def _random_within(evidence: Evidence, claim: dict[str, Any]) -> Found:
    if "random" not in set(evidence.texts.per_trial["set"]):
        return Found.nothing("no random heads were ablated")
    return _change(evidence, claim, Condition.random(evidence.k))


def _difference(curve: AblationCurve, claim: dict[str, Any], against: Condition) -> dict[str, float]:
    """Paired difference other - lead; an interval above zero needs a sign test that agrees."""
    metric, task = claim["metric"], claim["task"]
    table = curve.differences(metric, task, lead=LEAD)
    mine = (table["against"] == against.method) & (table["set"] == against.set) & (table["k"] == against.k)
    if table[mine].empty:
        return {"difference": math.nan, "low": math.nan, "high": math.nan}
    found = {part: float(table[mine].iloc[0][part]) for part in ("difference", "low", "high")}
    best = Condition.top(LEAD, against.k)
    gap = (curve.values(against, metric, task) - curve.values(best, metric, task)).dropna()
    above, below = int((gap > 0).sum()), int((gap < 0).sum())
    if above + below == 0 or scipy_stats.binomtest(above, above + below, alternative="greater").pvalue > 0.025:
        found["low"] = min(found["low"], 0.0)
    if above + below == 0 or scipy_stats.binomtest(below, above + below, alternative="greater").pvalue > 0.025:
        found["high"] = max(found["high"], 0.0)
    return found


def _beats_baseline(evidence: Evidence, claim: dict[str, Any]) -> Found:
    condition = Condition.top(evidence.baseline, evidence.k)
    row, (before, kept) = _difference(evidence.texts, claim, condition), _pair(evidence, claim, condition)
    text = f"{evidence.baseline} keeps {kept.mean():.3f} of {before.mean():.3f}"
    return Found(row["difference"], row["low"], row["high"], text)


def _beats_parts(evidence: Evidence, claim: dict[str, Any]) -> Found:
    """The claim is about all of them: the least lower and upper bound decide, and every part has to have been ablated."""
    others = [name for name in FACTORIAL if name != LEAD]
    missing = [name for name in others if name not in evidence.curve.rankings]
    if missing:
        return Found.nothing(f"{', '.join(missing)} was not ablated")
    rows = {name: _difference(evidence.curve, claim, Condition.top(name, evidence.k)) for name in others}
    value, low, high = (min(row[part] for row in rows.values()) for part in ("difference", "low", "high"))
    every = ", ".join(f"{name} {row['difference']:+.2f}" for name, row in rows.items())
    return Found(value, low, high, f"{every} nats")


RULES: dict[str, Callable[[Evidence, dict[str, Any]], Found]] = {
    "loses": _loses,
    "beats_baseline": _beats_baseline,
    "random_within": _random_within,
    "beats_parts": _beats_parts,
    "spared": _spared,
}
