"""The claims of the study of choices: the rules that judge them. Texts, estimands and thresholds are in `claims.json`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pandas as pd

from lens_heads.evidence.areas import areas
from lens_heads.evidence.curve_results import AblationCurve
from lens_heads.evidence.verdicts import DOES_NOT, HOLDS, UNTOLD, harms
from lens_heads.heads.conditions import Condition
from lens_heads.stats import Interval
from lens_heads.studies.claims import Found, above, published
from lens_heads.studies.two_needles.finding import COUNTERFACTUAL, ChoosingFinding, ability_of, by_kind
from lens_heads.studies.two_needles.presets import EVERYWHERE, LEAD, METRIC, Preset

Claim = Mapping[str, Any]


def registered(plan: Preset) -> pd.DataFrame:
    """The claims of a preset before anything runs: one row each, with estimand, metric, k rule, trials and threshold."""
    whole = published(__name__)
    n = f"at most {plan.max_trials} questions"
    rows = [
        {name: claim[name] for name in ("id", "claim", "estimand", "threshold", "metric")}
        | {"k": whole["k"][claim["at"]], "n": n, "holds_if": claim["holds"]}
        for claim in whole["claims"]
    ]
    return pd.DataFrame(rows)


def claims(found: ChoosingFinding) -> pd.DataFrame:
    """One row per claim. Of a model that does not do the task, nothing but that is told."""
    rows = []
    for claim in published(__name__)["claims"]:
        lacking = [name for name in (claim.get("ranking"), claim.get("other")) if name and name not in found.scores]
        if claim["rule"] != "ability" and not found.curves:
            told = Found.nothing("the model does not do this task")
        elif claim["rule"] != "ability" and lacking:
            told = Found.nothing(f"{lacking[0]} ranked nothing")
        else:
            told = RULES[claim["rule"]](found, claim)
        about = {"metric": claim["metric"], "k": found.k.get(claim.get("ranking", ""), None)}
        rows.append(told.row(claim) | about | {"trials": _trials(found)})
    return pd.DataFrame(rows).astype({"k": float, "p": float})


def _trials(found: ChoosingFinding) -> int:
    """The questions that judge."""
    return len(found.curves["mean"].values(Condition.none(), METRIC)) if found.curves else 0


def _ability(found: ChoosingFinding, claim: Claim) -> Found:
    choice = found.able.choice()
    return Found.by(choice, str(found.able), above(choice.low, choice.high, found.able.chance))


def _carries(found: ChoosingFinding, claim: Claim) -> Found:
    """Under the first kind the heads cost more than random ones and take more than the threshold; under all they cost more."""
    name = claim["ranking"]
    told = {kind: harms(curve, name, found.k[name], METRIC) for kind, curve in kinds(found).items()}
    first = told["mean"]
    share = found.curves["mean"].benefit_lost(Condition.top(name, found.k[name]), METRIC)
    word = first.word
    if word == HOLDS:
        word = above(share.low, share.high, claim["threshold"])
    if word == HOLDS and not all(one.cost.value > 0 for one in told.values()):
        word = UNTOLD
    each = ", ".join(f"{kind} {one.cost.value:+.2f}" for kind, one in told.items())
    text = f"{share.value:.0%} [{share.low:.0%}, {share.high:.0%}] of the choice; beyond random heads, {each} nats"
    return Found.by(first.cost, text, word, first.p)


def _ahead(found: ChoosingFinding, claim: Claim) -> Found:
    """By area over log k: the interval under the first kind decides, and the sign must be the same under all."""
    gaps = {kind: _gap(curve, claim) for kind, curve in kinds(found).items()}
    first = gaps["mean"]
    word = above(first.low, first.high, claim["threshold"])
    sign = {HOLDS: 1, DOES_NOT: -1}.get(word, 0)
    if sign and not all(gap.value * sign > 0 for gap in gaps.values()):
        word = UNTOLD
    each = ", ".join(f"{kind} {gap.value:+.2f}" for kind, gap in gaps.items())
    return Found.by(first, f"{each} nats, mean over log k", word)


def _gap(curve: AblationCurve, claim: Claim) -> Interval[float]:
    table = areas(curve, claim["metric"], lead=claim["ranking"]).set_index("method")
    value, low, high = (float(table.loc[claim["other"], name]) for name in ("ahead", "ahead_low", "ahead_high"))  # type: ignore[arg-type]  # a cell
    return Interval(value, low, high)


def _turns(found: ChoosingFinding, claim: Claim) -> Found:
    """With what the heads write if the other needle is asked for, the model prefers the other answer."""
    curve, name = found.curves[COUNTERFACTUAL], claim["ranking"]
    rows = curve.frame[(curve.frame["metric"] == METRIC) & (curve.frame["set"] == "top")]
    row = rows[(rows["method"] == name) & (rows["k"] == found.k[name])].iloc[0]
    turned = Interval(-row["value"], -row["high"], -row["low"])
    text = f"margin {row['value']:.2f} [{row['low']:.2f}, {row['high']:.2f}] nats with the other question's heads"
    return Found.by(turned, text, above(turned.low, turned.high, claim["threshold"]))


def kinds(found: ChoosingFinding) -> dict[str, AblationCurve]:
    """The curves at the row where the answer begins, by kind."""
    return {kind: curve for kind, curve in found.curves.items() if kind != EVERYWHERE}


RULES: dict[str, Callable[[ChoosingFinding, Claim], Found]] = {
    "ability": _ability,
    "carries": _carries,
    "ahead": _ahead,
    "turns": _turns,
}


def rejudged(tables: Mapping[str, pd.DataFrame], summary: Mapping[str, Any]) -> dict[str, pd.DataFrame]:
    """The claims and areas again from stored values per trial: "ability_trials", and "judged_trials" if it does the task.

    `summary`: the model's part of the study's JSON, for what was chosen on selection questions.
    """
    judged = tables.get("judged_trials", pd.DataFrame({"kind": []})).groupby("kind", sort=False)
    curves = {str(kind): AblationCurve(rows.drop(columns="kind"), {}) for kind, rows in judged}
    able = ability_of(tables["ability_trials"], summary["chance"])
    chosen: dict[str, Any] = {"k": summary["k"], "scores": dict.fromkeys(summary["methods"])}
    about: dict[str, Any] = {"model": "", "frames": {}, "question": "", "passages": {}}
    found = {"claims": claims(ChoosingFinding(able=able, curves=curves, **chosen, **about)), "ability": able.frame}
    if curves:
        found |= {"areas": by_kind(curves, METRIC, LEAD), "answer_areas": by_kind(curves, "logprob", LEAD)}
    return found
