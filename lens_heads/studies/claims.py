"""A paper's claims, each with a verdict from the interval measured here.

Every study keeps its claims, with the published numbers, estimands and thresholds, in `claims.json`, which is written before a
run and printed with it; its `claims.py` holds the rules. Texts are filled with a claim's own fields and the words of a preset.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import pandas as pd

from lens_heads.evidence.areas import areas
from lens_heads.evidence.curve_results import AblationCurve
from lens_heads.evidence.verdicts import DOES_NOT, HOLDS, UNTOLD, Verdict, harms
from lens_heads.heads.conditions import Condition
from lens_heads.stats import Interval, n_to_tell
from lens_heads.studies.presets import beside

Claim = Mapping[str, Any]


def published(module: str) -> dict[str, Any]:
    """The content of the `claims.json` next to a module."""
    return beside(module, "claims.json")


def registered(module: str, claims: Iterable[Claim], words: Mapping[str, Any]) -> pd.DataFrame:
    """The claims before anything runs: one row each, with id, claim, estimand, metric, threshold, k, n and what holds.

    What a claim does not say itself, it shares with all of the file; where the file has several by name, the claim names one.
    """
    whole = published(module)

    def said(claim: Claim, name: str) -> str:
        shared = whole.get(name)
        text = shared[claim[name]] if isinstance(shared, Mapping) else claim.get(name, shared)
        return text.format(**{**claim, **words})

    rows = [
        {"id": claim["id"], "claim": said(claim, "claim"), "estimand": said(claim, "estimand")}
        | {"metric": said(claim, "metric"), "threshold": claim["threshold"]}
        | {"k": said(claim, "k"), "n": said(claim, "n"), "holds_if": said(claim, "holds")}
        for claim in claims
    ]
    return pd.DataFrame(rows)


def row(
    claim: Claim, found: Verdict, by: Interval[float] | None = None, p: float | None = None, **words: Any
) -> dict[str, Any]:
    """A claim and its verdict as a row of a table. `by`: the interval that decided, unless it is that of the cost."""
    texts = {name: claim[name].format(**{**claim, **words}) for name in ("claim", "holds")}
    value, low, high = by or found.cost
    numbers = {"value": value, "low": low, "high": high, "p": found.p if p is None else p}
    about = {"id": claim["id"], "claim": texts["claim"], "paper": claim["paper"], "found": found.because}
    return {**about, **numbers, "verdict": found.word, "holds_if": texts["holds"]}


def shares(found: Verdict) -> dict[str, float]:
    """The share that is lost, as columns of a table."""
    return dict(zip(("share", "share_low", "share_high"), found.share, strict=True))


def margin(claim: Claim, effect: Interval[float]) -> float:
    """The margin of a claim that something costs no more: its `threshold`, and at most the `relative` share of an effect.

    Of the effect's lower bound, so that the margin is no larger than it may be if the effect was measured too large.
    """
    return min(claim["threshold"], claim["relative"] * max(effect.low, 1e-9))  # A margin is above 0.


def nothing(why: str) -> Verdict:
    """Nothing was measured."""
    return Verdict("", UNTOLD, why)


def told(found: Verdict, at: float, possible: bool = True, most: bool = False) -> Verdict:
    """Is the number above a threshold, or with `most` no larger? Its whole interval decides; else how many trials would have.

    Unless it is `possible`, the claim cannot hold.
    """
    value, low, high = found.cost
    holds, fails = (high <= at, low > at) if most else (low > at, high < at)
    word = HOLDS if holds and possible else DOES_NOT if fails else UNTOLD
    open_ended = word == UNTOLD and found.trials and low <= at <= high
    return replace(
        found,
        word=word,
        would_tell=n_to_tell(value, half_width=found.cost.half_width, n=found.trials, at=at) if open_ended else None,
    )


def beyond_random(curves: Mapping[str, AblationCurve], k: Mapping[str, int], metric: str) -> pd.DataFrame:
    """A row per kind of ablation and ranking: the metric intact, and what the ranking's own k heads take beyond random heads."""
    rows = []
    for kind, curve in curves.items():
        intact = float(curve.values(Condition.none(), metric).mean())
        for name in curve.rankings:
            found = harms(curve, name, k[name], metric=metric)
            row = {"kind": kind, "method": name, "k": k[name], "trials": found.trials, "intact": intact, "p": found.p}
            rows.append(row | dict(zip(("cost", "low", "high"), found.cost, strict=True)))
    return pd.DataFrame(rows)


def by_seed(curve: AblationCurve, k: Mapping[str, int], metric: str) -> pd.DataFrame:
    """A row per method and selection seed: what its top heads cost at the method's k and, of several, over log k, and how many of
    them are those of the method's first seed. The curve's rankings are named "method, seed N"."""
    over = areas(curve, metric=metric).set_index("method")["area"] if curve.frame["k"].nunique() > 2 else {}
    first: dict[str, set[str]] = {}
    rows = []
    for name in curve.rankings:
        method, _, seed = name.partition(", seed ")
        own = Condition.top(name, k[method])
        top, cost = curve.heads(own).split(","), curve.difference(Condition.none(), own, metric)
        row: dict[str, Any] = {"method": method, "seed": int(seed), "k": k[method]}
        row |= dict(zip(("cost", "low", "high"), cost, strict=True))
        row |= {"shared": len(first.setdefault(method, set(top)).intersection(top)), "area": over.get(name)}
        rows.append(row | {"heads": ", ".join(top)})
    return pd.DataFrame(rows).sort_values(["method", "seed"], kind="stable", ignore_index=True)
