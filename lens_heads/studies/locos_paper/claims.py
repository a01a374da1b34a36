"""Each headline claim of the paper beside what this model shows: holds, does not, or cannot be told.

The claims, the paper's numbers and the thresholds are data (`claims.json`); here are the rules they are judged by.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from importlib import resources
from typing import Any

import pandas as pd

from lens_heads.curves import AblationCurve
from lens_heads.studies.locos_paper.presets import FACTORIAL

HOLDS, DOES_NOT, UNTOLD = "holds", "does not hold", "cannot be told"
LEAD = "locos"


@dataclass(frozen=True)
class Evidence:
    """What the claims are read from: the curve of every ranking (log-probability), that of judged texts, and at which k.

    `baseline` is the attention method whose heads cost most at this k.
    """

    curve: AblationCurve
    texts: AblationCurve
    k: int
    baseline: str


Found = tuple[float, float, float, str]
"""A number with its interval, and a word on it."""


def claims(evidence: Evidence) -> pd.DataFrame:
    """One row per claim: claim, paper, found, value, low, high, verdict, holds_if, metric, k, trials.

    Claims about a task that was not measured are left out.
    """
    listed = json.loads(
        (resources.files("lens_heads.studies.locos_paper") / "claims.json").read_text(encoding="utf-8")
    )["claims"]
    measured, rows = set(evidence.texts.per_trial["task"]), []
    for claim in (one for one in listed if one["task"] in measured):
        value, low, high, found = RULES[claim["rule"]](evidence, claim)
        rows.append(
            {"id": claim["id"], "claim": claim["claim"], "paper": claim["paper"], "found": found}
            | {"value": value, "low": low, "high": high, "verdict": _verdict(claim, value, low, high)}
            | {"holds_if": claim["holds"], "metric": claim["metric"], "k": evidence.k}
            | {"trials": len(evidence.texts.values("none", "none", 0, "logprob", claim["task"]))}
        )
    return pd.DataFrame(rows)


def _verdict(claim: dict[str, Any], value: float, low: float, high: float) -> str:
    """By the whole interval, so that a few trials cannot decide what they do not show."""
    if math.isnan(value) or math.isnan(low):
        return UNTOLD
    at = claim["threshold"]
    if claim["rule"] in ("spared", "random_within"):
        within = high <= at and (claim["rule"] == "spared" or low >= -at)
        return HOLDS if within else DOES_NOT if low > at or (claim["rule"] != "spared" and high < -at) else UNTOLD
    return HOLDS if low > at else DOES_NOT if high < at else UNTOLD


def _means(evidence: Evidence, claim: dict[str, Any]) -> tuple[float, float]:
    task, metric = claim["task"], claim["metric"]
    before = evidence.texts.values("none", "none", 0, metric, task).mean()
    after = evidence.texts.values(LEAD, "top", evidence.k, metric, task).mean()
    return float(before), float(after)


def _loses(evidence: Evidence, claim: dict[str, Any]) -> Found:
    before, after = _means(evidence, claim)
    if before <= 0:
        return math.nan, math.nan, math.nan, "the unablated model answers none"
    value, low, high = evidence.texts.relative_loss(LEAD, "top", evidence.k, claim["metric"], claim["task"])
    return value, low, high, f"{before:.3f} → {after:.3f}"


def _row(curve: AblationCurve, claim: dict[str, Any], method: str, set: str, k: int) -> pd.Series:
    table = curve.frame
    mine = (table["task"] == claim["task"]) & (table["metric"] == claim["metric"]) & (table["k"] == k)
    return table[mine & (table["method"] == method) & (table["set"] == set)].iloc[0]


def _spared(evidence: Evidence, claim: dict[str, Any]) -> Found:
    before, after = _means(evidence, claim)
    if before <= 0:
        return math.nan, math.nan, math.nan, "the unablated model answers none"
    row = _row(evidence.texts, claim, LEAD, "top", evidence.k)
    return row["drop"], row["drop_low"], row["drop_high"], f"{before:.3f} → {after:.3f}"


def _random_within(evidence: Evidence, claim: dict[str, Any]) -> Found:
    row = _row(evidence.texts, claim, "any", "random", evidence.k)
    return row["drop"], row["drop_low"], row["drop_high"], f"change {-row['drop']:+.3f}"


def _difference(curve: AblationCurve, claim: dict[str, Any], against: str, k: int) -> pd.Series:
    table = curve.differences(claim["metric"], claim["task"], lead=LEAD)
    return table[(table["against"] == against) & (table["set"] == "top") & (table["k"] == k)].iloc[0]


def _beats_baseline(evidence: Evidence, claim: dict[str, Any]) -> Found:
    row = _difference(evidence.texts, claim, evidence.baseline, evidence.k)
    before = evidence.texts.values("none", "none", 0, claim["metric"], claim["task"]).mean()
    kept = evidence.texts.values(evidence.baseline, "top", evidence.k, claim["metric"], claim["task"]).mean()
    return row["difference"], row["low"], row["high"], f"{evidence.baseline} keeps {kept:.3f} of {before:.3f}"


def _beats_parts(evidence: Evidence, claim: dict[str, Any]) -> Found:
    """The claim is about all of them: the least lower and upper bound decide, and every part has to have been ablated."""
    rows = {
        other: _difference(evidence.curve, claim, other, evidence.k)
        for other in FACTORIAL
        if other != LEAD and other in evidence.curve.meta["rankings"]
    }
    missing = [name for name in FACTORIAL if name != LEAD and name not in rows]
    if missing:
        return math.nan, math.nan, math.nan, f"{', '.join(missing)} was not ablated"
    value, low, high = (min(float(row[part]) for row in rows.values()) for part in ("difference", "low", "high"))
    every = ", ".join(f"{name} {found['difference']:+.2f}" for name, found in rows.items())
    return value, low, high, f"{every} nats"


RULES: dict[str, Callable[[Evidence, dict[str, Any]], Found]] = {
    "loses": _loses,
    "beats_baseline": _beats_baseline,
    "random_within": _random_within,
    "beats_parts": _beats_parts,
    "spared": _spared,
}
