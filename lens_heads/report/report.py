"""One HTML file that tells a study: opens from disk, loads nothing from anywhere, prints.

Values in, page out: a `Summary` for the first screen, `Section`s made of text, `Card`s, `Figure`s, `Table`s and
`Texts`. Everything written is escaped, since texts come from models; the page's own policy forbids any other script and
any request. Drawing is in `plots`, what a study says in its caller.
"""

from __future__ import annotations

import importlib.metadata
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas as pd
import plotly.graph_objects as go

from lens_heads.ablation.curves import MAIN_TASK, AblationCurve
from lens_heads.heads.head import Head
from lens_heads.runs.store import running_command, versions, write_atomic


@dataclass(frozen=True)
class Card:
    """A key number: its value, what it is, and its interval. Numbers are shown with `digits` decimals."""

    label: str
    value: float | str
    low: float | None = None
    high: float | None = None
    note: str = ""
    digits: int = 2


@dataclass(frozen=True)
class Figure:
    """A plotly figure with its caption."""

    figure: go.Figure
    caption: str = ""


@dataclass(frozen=True)
class Table:
    """A DataFrame (its index is not shown).

    Floats get `digits` decimals, or the format of their column in `formats` ({"p": ".1e"}). `intervals` folds columns
    into one: {"value": ("low", "high")} shows "0.42 [0.35, 0.50]".
    """

    frame: pd.DataFrame
    caption: str = ""
    digits: int = 3
    formats: Mapping[str, str] = field(default_factory=dict)
    intervals: Mapping[str, tuple[str, str]] = field(default_factory=dict)


@dataclass(frozen=True)
class Example:
    """One question with the text before and after an ablation, and whether each was judged right."""

    question: str
    expected: str
    before: str
    after: str
    right_before: bool
    right_after: bool


@dataclass(frozen=True)
class Texts:
    """Texts before and after. All of them are counted; the first `shown` are laid out, the rest fold away."""

    examples: Sequence[Example]
    caption: str = ""
    shown: int = 8

    @classmethod
    def from_curve(
        cls,
        curve: AblationCurve,
        k: int,
        method: str | None = None,
        set: str = "top",
        seed: int = 0,
        metric: str = "contains",
        threshold: float = 0.5,
        task: str = MAIN_TASK,
        questions: Mapping[str, str] | None = None,
        caption: str | None = None,
        shown: int = 8,
    ) -> Texts:
        """Every trial's text without ablation beside its text under one condition; changed judgements come first.

        A text is right when its `metric` is above `threshold`. `questions` by trial id; else the id stands there.
        """
        method = method or str(curve.meta["rankings"][0])
        table = curve.per_trial[curve.per_trial["task"] == task].set_index("trial")
        before = table[table["set"] == "none"]
        same = (table["method"] == method) & (table["set"] == set) & (table["k"] == k) & (table["seed"] == seed)
        after = table[same]
        if metric not in table.columns or after.empty:
            raise ValueError(f"no {metric!r} for {method} {set} k={k} seed={seed} on {task!r}: see curve.per_trial")
        examples = [
            Example(
                question=(questions or {}).get(str(trial), str(trial)),
                expected=str(before.at[trial, "answer"]),
                before=str(before.at[trial, "text"]),
                after=str(after.at[trial, "text"]),
                right_before=_above(before, trial, metric, threshold),
                right_after=_above(after, trial, metric, threshold),
            )
            for trial in before.index
            if trial in after.index
        ]
        examples.sort(key=lambda e: (e.right_before == e.right_after, not e.right_before))
        if caption is None:
            caption = (
                f"Ablated: {set} {k} of {method}. Right: {metric} above {threshold:g}. Changed judgements come first."
            )
        return cls(examples, caption, shown)


def _above(table: pd.DataFrame, trial: Any, metric: str, threshold: float) -> bool:
    return float(str(table.at[trial, metric])) > threshold


@dataclass(frozen=True)
class Section:
    """A part of the page under one heading; a blank line in `text` starts a new paragraph."""

    title: str
    text: str = ""
    cards: Sequence[Card] = ()
    figures: Sequence[Figure | go.Figure] = ()
    tables: Sequence[Table | pd.DataFrame] = ()
    texts: Sequence[Texts] = ()


@dataclass(frozen=True)
class Summary:
    """The first screen: which model, how many trials, which heads, who was right.

    `verdict` is the caller's sentence; `facts` are further lines ({"Ablation": "mean over trials"}).
    """

    model: str
    trials: str | int
    heads: Sequence[Head | str]
    verdict: str
    cards: Sequence[Card] = ()
    facts: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Provenance:
    """What is needed to make the page again."""

    settings: Mapping[str, Any]
    command: str
    date: str
    versions: Mapping[str, str]

    @classmethod
    def now(cls, settings: Mapping[str, Any] | None = None, command: str | None = None) -> Provenance:
        """This moment, these package versions, and the running command unless another is given."""
        packages = versions() | {"plotly": importlib.metadata.version("plotly"), "python": platform.python_version()}
        return cls(
            settings or {}, command or running_command(), datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"), packages
        )


def write_report(
    path: str | Path,
    title: str,
    summary: Summary,
    sections: Sequence[Section],
    provenance: Provenance | None = None,
) -> Path:
    """Write the page and return its path; a reader never sees half of it."""
    from lens_heads.report.page import page

    path = Path(path)
    write_atomic(path, page(title, summary, sections, provenance or Provenance.now()))
    return path
