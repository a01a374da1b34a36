"""The study's claims beside its numbers and these models': holds, does not, or cannot be told."""

from __future__ import annotations

from typing import Any

import pandas as pd

from lens_heads import compare
from lens_heads.studies.verdicts import DOES_NOT, HOLDS, UNTOLD

COLUMNS = ["claim", "models", "metric", "paper", "found", "value", "low", "high", "p", "verdict", "holds_if"]

PUBLISHED = {"fragility": ".183, .472, .593", "disruptivity": ".018, .039, .153"}
"""R^2 of Llama-3.1-8B and Qwen-2.5-7B, Llama and Mistral-7B, Qwen and Mistral (the R^2 of fragility as its data give them)."""


RULES = {
    "disruptivity": "drop of the other tasks",
    "beyond_random": "drop by other tasks' heads less that by random heads outside every task's best",
    "specificity": "drop of a task by its own heads less the drop these cost the others",
}


def claims_of_model(model: str, metric: str, table: pd.DataFrame) -> pd.DataFrame:
    """Heads transfer: at the largest k the heads of other tasks do harm, beyond random ones; do own heads do more?

    One row per claim: claim, models, metric, paper, found, value, low, high, p, verdict, holds_if.
    """
    rows: list[dict[str, Any]] = []
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
        row = {"claim": claim, "models": model, "metric": metric, "paper": paper, "found": f"{value:.3g}"}
        rows.append(row | {"value": value, "low": low, "high": high, "verdict": verdict, "holds_if": rule})
    return pd.DataFrame(rows, columns=COLUMNS)


def claims_of_pair(names: tuple[str, str], correlations: dict[str, compare.Correlation]) -> pd.DataFrame:
    """Which tasks are fragile, and which tasks' heads disrupt, in two models; columns as `claims_of_model`."""
    rows: list[dict[str, Any]] = []
    for claim, name in (
        ("The same tasks are fragile in both models", "fragility"),
        ("Which tasks' heads disrupt others differs between models", "disruptivity"),
    ):
        for label, found in correlations.items():
            metric, statistic = label.split(": ")
            if statistic == name:
                low, high = found.interval or (None, None)
                row = {"claim": claim, "models": " and ".join(names), "metric": metric}
                row |= {"paper": f"R² {PUBLISHED[name]}", "found": f"R² {found.r2:.2f}, p {found.p:.2g}"}
                row |= {"value": found.r2, "low": low, "high": high, "p": found.p}
                sure = found.p < 0.05
                verdict = UNTOLD if not sure else HOLDS if name == "fragility" else DOES_NOT
                rule = "r > 0 with p < 0.05 over orders of the tasks"
                rule = rule if name == "fragility" else f"refuted where {rule}; that they differ cannot be shown so"
                rows.append(row | {"verdict": verdict, "holds_if": rule})
    return pd.DataFrame(rows, columns=COLUMNS)
