"""Ablation curves made up by hand, row by row of their long table."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pandas as pd

from lens_heads.evidence.curve_results import AblationCurve
from lens_heads.heads.conditions import Condition


def row(condition: Condition, task: str, trial: str, metrics: dict[str, float], **more: Any) -> dict[str, Any]:
    """One trial under one draw of a condition; `more`: draw, heads, answer, text."""
    named = {"method": condition.method, "set": condition.set, "k": condition.k, "draw": 0, "heads": ""}
    return {**named, "task": task, "trial": trial, "answer": "", "text": "", **more, **metrics}


def curve_of(rows: Iterable[dict[str, Any]]) -> AblationCurve:
    """The curve whose long table has these rows."""
    return AblationCurve(pd.DataFrame(list(rows)), {})
