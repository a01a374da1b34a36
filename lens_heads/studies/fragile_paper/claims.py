"""The claims of the study of fragile tasks: the rules that judge them. Texts and published numbers are in `claims.json`.

The published R² are of Llama-3.1-8B and Qwen-2.5-7B, of Llama and Mistral-7B, and of Qwen and Mistral; those of fragility are
computed from the authors' data.
"""

from __future__ import annotations

import math
from typing import Any

import pandas as pd

from lens_heads import compare
from lens_heads.studies.claims import DOES_NOT, HOLDS, UNTOLD, Found, published

COLUMNS = ["claim", "models", "metric", "paper", "found", "value", "low", "high", "p", "verdict", "holds_if"]


def claims_of_model(model: str, metric: str, table: pd.DataFrame) -> pd.DataFrame:
    """Do heads transfer between tasks? One row per claim (`COLUMNS`); `table` holds the model's statistics."""
    rows: list[dict[str, Any]] = []
    means = table[(table["task"] == "mean") & ~table["relative"] & (table["metric"] == metric)]
    for claim in published(__name__)["model"]:
        k = table["k"].agg(claim["k"])
        for row in means[(means["statistic"] == claim["statistic"]) & (means["k"] == k)].to_dict("records"):
            value, low, high = row["value"], row["low"], row["high"]
            if claim["rule"] == "positive":
                verdict = HOLDS if low > 0 else DOES_NOT if high <= 0 else UNTOLD
            else:
                verdict = DOES_NOT if low > 0 else UNTOLD
            found = Found(value, low, high, f"{value:.3g}", verdict)
            rows.append({**found.row(claim, k=k), "models": model, "metric": metric})
    return pd.DataFrame(rows, columns=COLUMNS)


def claims_of_pair(names: tuple[str, str], correlations: dict[str, compare.Correlation]) -> pd.DataFrame:
    """Are the same tasks fragile, and the same tasks' heads disruptive, in both models? One row per claim and metric."""
    rows: list[dict[str, Any]] = []
    for claim in published(__name__)["pair"]:
        for label, one in correlations.items():
            metric, statistic = label.split(": ")
            if statistic == claim["statistic"]:
                low, high = one.interval or (math.nan, math.nan)
                if_sure = HOLDS if claim["rule"] == "correlated" else DOES_NOT
                verdict = if_sure if one.p < 0.05 else UNTOLD
                found = Found(one.r2, low, high, f"R² {one.r2:.2f}, p {one.p:.2g}", verdict, one.p)
                rows.append({**found.row(claim), "models": " and ".join(names), "metric": metric})
    return pd.DataFrame(rows, columns=COLUMNS)
