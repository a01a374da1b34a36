"""The LOCOS paper's headline claims: the rules that judge them. Texts, estimands and thresholds are in `claims.json`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pandas as pd

from lens_heads.evidence.curve_results import AblationCurve
from lens_heads.evidence.verdicts import (
    HOLDS,
    UNTOLD,
    Verdict,
    breaks,
    costs_more,
    harms,
    negligible,
    smallest_k,
    spared,
)
from lens_heads.heads.conditions import Condition
from lens_heads.studies.claims import Found, published
from lens_heads.studies.locos_paper.finding import LEAD, LocosFinding
from lens_heads.studies.locos_paper.presets import ATTENTION, PARTS, RIVALS, Preset


def registered(plan: Preset) -> pd.DataFrame:
    """The claims of a preset before anything runs: one row each, with estimand, k rule, number of trials and threshold."""
    whole, calls = published(__name__), plan.described()
    rule = whole["k"].get(plan.k, f"k = {plan.k}")
    rows = [
        {name: claim[name] for name in ("id", "claim", "estimand", "threshold")}
        | {"metric": whole["metric"], "k": rule, "n": calls[claim["task"]], "holds_if": claim["holds"]}
        for claim in whole["claims"]
        if claim["task"] in calls and (plan.rivals or claim.get("other") not in RIVALS)
    ]
    return pd.DataFrame(rows)


def rejudged(tables: Mapping[str, pd.DataFrame], plan: Preset, heads: int) -> pd.DataFrame:
    """The claims again from values per trial, in a model with so many heads.

    `tables` holds "choice_trials" and "headline_trials". k and the baseline are chosen again, and every verdict is judged
    again; nothing else of the run is needed.
    """
    choice, headline = AblationCurve(tables["choice_trials"], {}), tables["headline_trials"]
    curves = {str(task): AblationCurve(rows, {}) for task, rows in headline.groupby("task", sort=False)}
    k = plan.fixed_k(heads) or smallest_k(choice, LEAD)
    nothing: dict[str, Any] = {"model": "", "frames": {}, "scores": {}, "questions": {}, "texts": {}}
    found = LocosFinding(k=k, baseline=best_baseline(choice, k), headline=curves, curve=choice, **nothing)
    return claims(found, plan.described())


def best_baseline(found: AblationCurve, k: int) -> str:
    """The attention method whose k best heads cost most on selection trials; a k that was not run takes the nearest."""
    known = [name for name in ATTENTION if name in found.rankings]
    if not known:
        raise ValueError(f"no attention method was scored: add one of {', '.join(ATTENTION)} to the preset's methods")
    nearest = min({one.k for one in found.conditions() if one.k}, key=lambda size: (abs(size - k), size))
    return min(known, key=lambda name: found.values(Condition.top(name, nearest), "logprob").mean())


def claims(finding: LocosFinding, calls: Mapping[str, str]) -> pd.DataFrame:
    """One row per claim; `calls` describes each task. Claims about a task, or a rival, that was not measured are omitted."""
    rows = []
    for claim in published(__name__)["claims"]:
        # Rivals cost hundreds of runs, so that not every preset has them.
        rival, curve = claim.get("other") in RIVALS, finding.headline.get(claim["task"])
        if curve is None or (rival and claim["other"] not in curve.rankings):
            continue
        verdict = RULES[claim["rule"]](curve, claim, finding)
        cost = verdict.cost
        found = Found(cost.value, cost.low, cost.high, verdict.because, verdict.word, verdict.p)
        share = dict(zip(("share", "share_low", "share_high"), verdict.share, strict=True))
        about = {"measured_on": calls.get(claim["task"], claim["task"]), "metric": "logprob", "k": finding.k}
        more = {"trials": verdict.trials, "would_tell": verdict.would_tell}
        rows.append({**found.row(claim), **share, **about, **more, "sets_would_tell": verdict.sets_would_tell})
    return pd.DataFrame(rows).astype({"would_tell": float, "sets_would_tell": float})


def _beats_parts(curve: AblationCurve, claim: Mapping[str, Any], finding: LocosFinding) -> Verdict:
    """The claim is about every part, so all must be measured, and the one that is told least decides."""
    missing = [name for name in PARTS if name not in curve.rankings]
    if missing:
        return Verdict(claim["claim"], UNTOLD, f"not ablated: {', '.join(missing)}")
    found = {name: costs_more(curve, LEAD, name, finding.k) for name in PARTS}
    every = ", ".join(f"{name} {verdict.cost.value:+.2f}" for name, verdict in found.items())
    worst = min(found.values(), key=lambda verdict: (verdict.word == HOLDS, verdict.cost.low))
    return replace(worst, question=claim["claim"], because=f"{every} nats")


RULES: dict[str, Callable[[AblationCurve, Mapping[str, Any], LocosFinding], Verdict]] = {
    "breaks": lambda curve, claim, found: breaks(curve, claim["ranking"], found.k, share=claim["threshold"]),
    "costs_more": lambda curve, claim, found: costs_more(
        curve, claim["ranking"], found.baseline if claim["other"] == "baseline" else claim["other"], found.k
    ),
    "beats_parts": _beats_parts,
    "negligible": lambda curve, claim, found: negligible(curve, found.k, margin=claim["threshold"]),
    "harms": lambda curve, claim, found: harms(curve, claim["ranking"], found.k),
    "spared": lambda curve, claim, found: spared(curve, claim["ranking"], found.k, margin=claim["threshold"]),
}
