"""The study's claims beside its numbers and these models': holds, does not, or cannot be told."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pandas as pd

from lens_heads.studies.running import DOES_NOT, HOLDS, UNTOLD

if TYPE_CHECKING:
    from lens_heads.studies.fragile_paper.pairs import Pair
    from lens_heads.studies.fragile_paper.study import Finding

PUBLISHED = {"fragility": ".183, .472, .593", "disruptivity": ".018, .039, .153"}
"""R^2 of Llama-3.1-8B and Qwen-2.5-7B, Llama and Mistral-7B, Qwen and Mistral (the R^2 of fragility as its data give them)."""


RULES = {
    "disruptivity": "drop of the other tasks",
    "beyond_random": "drop by other tasks' heads less that by random heads outside every task's best",
    "specificity": "drop of a task by its own heads less the drop these cost the others",
}


def claims(findings: Sequence[Finding], found: Sequence[Pair]) -> pd.DataFrame:
    """One row per claim and model, or two models: claim, models, metric, paper, found, low, high, p, verdict, holds if."""
    rows = [row for each in findings for row in _of_model(each)] + [row for each in found for row in _of_pair(each)]
    return pd.DataFrame(rows)


def _of_model(each: Finding) -> list[dict[str, Any]]:
    """Heads transfer: at the largest k the heads of other tasks do harm, beyond random ones; do own heads do more?"""
    table = each.frames["statistics"]
    metric, rows = each.matrix.metric, []
    means = table[(table["task"] == "mean") & ~table["relative"] & (table["metric"] == metric)]
    means = means.set_index(["statistic", "k"])
    for claim, name, paper, holds in (
        ("Heads of one task break other tasks", "disruptivity", "accuracy falls to near 0 at large K", True),
        ("... more than random heads do", "beyond_random", "random heads do little at small K", True),
        ("A task's own heads break it no more than others'", "specificity", "heads transfer across tasks", False),
    ):
        k = table["k"].min() if name == "beyond_random" else table["k"].max()
        if (name, k) not in means.index:
            continue
        value, low, high = (float(means.loc[(name, k), column]) for column in ("value", "low", "high"))  # type: ignore[arg-type]
        verdict = (
            (HOLDS if low > 0 else DOES_NOT if high <= 0 else UNTOLD) if holds else DOES_NOT if low > 0 else UNTOLD
        )
        rule = f"mean {RULES[name]} at k = {k} of 1,024 is above 0"
        rule = rule if holds else f"refuted where the {rule}; an interval alone cannot show that there is none"
        row = {"claim": claim, "models": each.model, "metric": metric, "paper": paper, "found": value, "low": low}
        rows.append(row | {"high": high, "p": None, "verdict": verdict, "holds if": rule})
    return rows


def _of_pair(each: Pair) -> list[dict[str, Any]]:
    rows = []
    for claim, name in (
        ("The same tasks are fragile in both models", "fragility"),
        ("Which tasks' heads disrupt others differs between models", "disruptivity"),
    ):
        for label, found in each.correlations.items():
            metric, statistic = label.split(": ")
            if statistic == name:
                low, high = found.interval or (None, None)
                row = {"claim": claim, "models": " and ".join(each.names), "metric": metric}
                row |= {"paper": f"R² {PUBLISHED[name]}", "found": found.r2, "low": low, "high": high, "p": found.p}
                sure = found.p < 0.05
                verdict = UNTOLD if not sure else HOLDS if name == "fragility" else DOES_NOT
                rule = "r > 0 with p < 0.05 over orders of the tasks"
                rule = rule if name == "fragility" else f"refuted where {rule}; that they differ cannot be shown so"
                rows.append(row | {"verdict": verdict, "holds if": rule})
    return rows
