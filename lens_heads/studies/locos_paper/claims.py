"""The LOCOS paper's headline claims: the rules that judge them. Texts, numbers and thresholds are in `claims.json`."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats as scipy_stats

from lens_heads.ablation.conditions import Condition
from lens_heads.ablation.curves import AblationCurve
from lens_heads.studies.claims import Found, above, at_most, published, widened, within
from lens_heads.studies.locos_paper.finding import LEAD, LocosFinding
from lens_heads.studies.locos_paper.presets import FACTORIAL


def claims(finding: LocosFinding, calls: Mapping[str, str]) -> pd.DataFrame:
    """One row per claim; `calls` describes each task. Claims about a task that was not measured are omitted."""
    measured, rows = set(finding.texts.per_trial["task"]), []
    for claim in published(__name__)["claims"]:
        task = claim["task"]
        if task in measured:
            about = {"measured_on": calls.get(task, task), "metric": claim["metric"], "k": finding.k}
            about["trials"] = len(finding.texts.values(Condition.none(), "logprob", task))
            rows.append({**RULES[claim["rule"]](finding, claim).row(claim), **about})
    return pd.DataFrame(rows).drop(columns="p")


def _before_after(finding: LocosFinding, claim: dict[str, Any], condition: Condition) -> tuple[np.ndarray, np.ndarray]:
    """The metric of each trial before and after an ablation."""
    task, metric = claim["task"], claim["metric"]
    before, after = (finding.texts.values(one, metric, task) for one in (Condition.none(), condition))
    both = before.index.intersection(after.index)
    return before[both].to_numpy(float), after[both].to_numpy(float)


def _loses(finding: LocosFinding, claim: dict[str, Any]) -> Found:
    """The share of the score that is lost; it must exceed what random heads cost."""
    best = Condition.top(LEAD, finding.k)
    before, after = _before_after(finding, claim, best)
    if before.mean() <= 0:
        return Found.nothing("the unablated model answers nothing correctly")
    value, low, high = finding.texts.relative_loss(best, claim["metric"], claim["task"])
    low, high = widened(value, low, high, int((before > 0).sum()))
    beyond_random = _difference(finding.texts, claim, Condition.random(finding.k))["low"] > 0
    verdict = above(low, high, claim["threshold"], beyond_random)
    return Found(value, low, high, f"{before.mean():.3f} → {after.mean():.3f}", verdict)


def _change(finding: LocosFinding, claim: dict[str, Any], condition: Condition, judge: Callable[..., str]) -> Found:
    """What a set of heads costs. The claim cannot hold if the unablated model has little to lose."""
    before, after = _before_after(finding, claim, condition)
    if before.mean() <= 0:
        return Found.nothing("the unablated model answers nothing correctly")
    table = finding.texts.frame
    mine = {"task": claim["task"], "metric": claim["metric"], **asdict(condition)}
    row = table[(table[list(mine)] == pd.Series(mine)).all(axis=1)].iloc[0]
    low, high = widened(row["drop"], row["drop_low"], row["drop_high"], len(before))
    verdict = judge(low, high, claim["threshold"], before.mean() > 2 * claim["threshold"])
    return Found(row["drop"], low, high, f"{before.mean():.3f} → {after.mean():.3f}", verdict)


def _spared(finding: LocosFinding, claim: dict[str, Any]) -> Found:
    return _change(finding, claim, Condition.top(LEAD, finding.k), at_most)


def _random_within(finding: LocosFinding, claim: dict[str, Any]) -> Found:
    if "random" not in set(finding.texts.per_trial["set"]):
        return Found.nothing("no random heads were ablated")
    return _change(finding, claim, Condition.random(finding.k), within)


def _difference(curve: AblationCurve, claim: dict[str, Any], against: Condition) -> dict[str, float]:
    """The paired difference other - lead. The interval excludes zero only if a sign test agrees."""
    metric, task = claim["metric"], claim["task"]
    table = curve.differences(metric, task, lead=LEAD)
    mine = (table["against"] == against.method) & (table["set"] == against.set) & (table["k"] == against.k)
    if table[mine].empty:
        return {"difference": math.nan, "low": math.nan, "high": math.nan}
    found = {part: float(table[mine].iloc[0][part]) for part in ("difference", "low", "high")}
    best = Condition.top(LEAD, against.k)
    gap = (curve.values(against, metric, task) - curve.values(best, metric, task)).dropna()
    more, less = int((gap > 0).sum()), int((gap < 0).sum())
    if not _mostly(more, less):
        found["low"] = min(found["low"], 0.0)
    if not _mostly(less, more):
        found["high"] = max(found["high"], 0.0)
    return found


def _mostly(these: int, others: int) -> bool:
    """Whether a sign test at 0.025 finds more of these than of the others."""
    n = these + others
    return n > 0 and scipy_stats.binomtest(these, n, alternative="greater").pvalue <= 0.025


def _beats_baseline(finding: LocosFinding, claim: dict[str, Any]) -> Found:
    condition = Condition.top(finding.baseline, finding.k)
    row, (before, kept) = (_difference(finding.texts, claim, condition), _before_after(finding, claim, condition))
    text = f"{finding.baseline} keeps {kept.mean():.3f} of {before.mean():.3f}"
    return Found(row["difference"], row["low"], row["high"], text, above(row["low"], row["high"], claim["threshold"]))


def _beats_parts(finding: LocosFinding, claim: dict[str, Any]) -> Found:
    """The claim is about every part, so all must be measured and the smallest bounds decide."""
    others = [name for name in FACTORIAL if name != LEAD]
    missing = [name for name in others if name not in finding.curve.rankings]
    if missing:
        return Found.nothing(f"not ablated: {', '.join(missing)}")
    rows = {name: _difference(finding.curve, claim, Condition.top(name, finding.k)) for name in others}
    # NumPy's minimum is NaN if any part is, Python's is not.
    value, low, high = (float(np.min([row[part] for row in rows.values()])) for part in ("difference", "low", "high"))
    every = ", ".join(f"{name} {row['difference']:+.2f}" for name, row in rows.items())
    return Found(value, low, high, f"{every} nats", above(low, high, claim["threshold"]))


RULES: dict[str, Callable[[LocosFinding, dict[str, Any]], Found]] = {
    "loses": _loses,
    "beats_baseline": _beats_baseline,
    "random_within": _random_within,
    "beats_parts": _beats_parts,
    "spared": _spared,
}
