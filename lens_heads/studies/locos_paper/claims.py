"""The LOCOS paper's headline claims: the rules that judge them. Texts, numbers and thresholds are in `claims.json`."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
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
    _, least, _ = _difference(finding.texts, claim, Condition.random(finding.k))
    verdict = above(low, high, claim["threshold"], least > 0)
    return Found(value, low, high, f"{before.mean():.3f} → {after.mean():.3f}", verdict)


def _change(finding: LocosFinding, claim: dict[str, Any], condition: Condition, judge: Callable[..., str]) -> Found:
    """What a set of heads costs. The claim cannot hold if the unablated model has little to lose."""
    before, after = _before_after(finding, claim, condition)
    if before.mean() <= 0:
        return Found.nothing("the unablated model answers nothing correctly")
    drop, low, high = finding.texts.difference(Condition.none(), condition, claim["metric"], claim["task"])
    low, high = widened(drop, low, high, len(before))
    verdict = judge(low, high, claim["threshold"], before.mean() > 2 * claim["threshold"])
    return Found(drop, low, high, f"{before.mean():.3f} → {after.mean():.3f}", verdict)


def _spared(finding: LocosFinding, claim: dict[str, Any]) -> Found:
    return _change(finding, claim, Condition.top(LEAD, finding.k), at_most)


def _random_within(finding: LocosFinding, claim: dict[str, Any]) -> Found:
    if "random" not in set(finding.texts.per_trial["set"]):
        return Found.nothing("no random heads were ablated")
    return _change(finding, claim, Condition.random(finding.k), within)


def _difference(curve: AblationCurve, claim: dict[str, Any], against: Condition) -> tuple[float, float, float]:
    """The paired difference other - lead, NaN if it was not measured. The interval excludes zero only if a sign test agrees."""
    metric, task, best = claim["metric"], claim["task"], Condition.top(LEAD, against.k)
    if against not in curve.conditions(task):
        return math.nan, math.nan, math.nan
    value, low, high = curve.difference(against, best, metric, task)
    gap = (curve.values(against, metric, task) - curve.values(best, metric, task)).dropna()
    more, less = int((gap > 0).sum()), int((gap < 0).sum())
    return value, low if _mostly(more, less) else min(low, 0.0), high if _mostly(less, more) else max(high, 0.0)


def _mostly(these: int, others: int) -> bool:
    """Whether a sign test at 0.025 finds more of these than of the others."""
    n = these + others
    return n > 0 and scipy_stats.binomtest(these, n, alternative="greater").pvalue <= 0.025


def _beats_baseline(finding: LocosFinding, claim: dict[str, Any]) -> Found:
    condition = Condition.top(finding.baseline, finding.k)
    value, low, high = _difference(finding.texts, claim, condition)
    before, kept = _before_after(finding, claim, condition)
    text = f"{finding.baseline} keeps {kept.mean():.3f} of {before.mean():.3f}"
    return Found(value, low, high, text, above(low, high, claim["threshold"]))


def _beats_parts(finding: LocosFinding, claim: dict[str, Any]) -> Found:
    """The claim is about every part, so all must be measured and the smallest bounds decide."""
    others = [name for name in FACTORIAL if name != LEAD]
    missing = [name for name in others if name not in finding.curve.rankings]
    if missing:
        return Found.nothing(f"not ablated: {', '.join(missing)}")
    found = {name: _difference(finding.curve, claim, Condition.top(name, finding.k)) for name in others}
    # NumPy's minimum is NaN if any part is, Python's is not.
    value, low, high = map(float, np.min([*found.values()], axis=0))
    every = ", ".join(f"{name} {difference:+.2f}" for name, (difference, _, _) in found.items())
    return Found(value, low, high, f"{every} nats", above(low, high, claim["threshold"]))


RULES: dict[str, Callable[[LocosFinding, dict[str, Any]], Found]] = {
    "loses": _loses,
    "beats_baseline": _beats_baseline,
    "random_within": _random_within,
    "beats_parts": _beats_parts,
    "spared": _spared,
}
