"""Scores made for a figure, and what reads a figure back."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from lens_heads.heads.scores import HeadScores


def make(values: list[list[float]], method: str = "locos", trials: int = 6) -> HeadScores:
    """Trials that scatter evenly around the given means."""
    mean = torch.tensor(values)
    offsets = torch.linspace(-1, 1, trials) if trials > 1 else torch.zeros(1)
    per_trial = mean + offsets[:, None, None] * mean.abs() / 2
    return HeadScores(method, mean, per_trial, tuple(f"t{i}" for i in range(trials)))


def observed(condition: tuple[str, str, int, int], task: str, trial: int, metrics: dict[str, float]) -> dict[str, Any]:
    """A row of `AblationCurve.per_trial`; the condition is (method, set, k, seed)."""
    given = dict(zip(("method", "set", "k", "draw"), condition, strict=True))
    return {**given, "heads": "", "task": task, "trial": f"t{trial}", "answer": "x", "text": "x", **metrics}


def trace(figure: Any, name: str) -> Any:
    found = [t for t in figure.data if t.name == name]
    assert len(found) == 1, [t.name for t in figure.data]
    return found[0]


def assert_whiskers(values: Any, drawn: Any, table: Any) -> None:
    """The error bars end where the table's intervals do."""
    np.testing.assert_allclose(np.array(values) + np.array(drawn.array), table["high"], atol=1e-6)
    np.testing.assert_allclose(np.array(values) - np.array(drawn.arrayminus), table["low"], atol=1e-6)
