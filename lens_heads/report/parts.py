"""What a page is made of: a `Summary` for the first screen, `Section`s of text, `Card`s, `Figure`s, `Table`s and `Texts`.

Plain values. Drawing is in `plots`, laying out in `html.py`, what a study says in its caller.
"""

from __future__ import annotations

import importlib.metadata
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pandas as pd
import plotly.graph_objects as go

from lens_heads.ablation.conditions import Condition
from lens_heads.ablation.curves import AblationCurve
from lens_heads.heads.head import Head
from lens_heads.runs.store import running_command, versions


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
        condition: Condition,
        metric: str = "contains",
        task: str | None = None,
        draw: int = 0,
        threshold: float = 0.5,
        questions: Mapping[str, str] | None = None,
        shown: int = 8,
    ) -> Texts:
        """Every trial's text without ablation beside its text under one condition; changed judgements come first.

        A text is right when its `metric` is above `threshold`. `questions` by trial id; else the id stands there.
        """
        task = task or curve.main_task
        table = curve.per_trial[curve.per_trial["task"] == task].set_index("trial")
        before, after = table[table["set"] == "none"], table[table["seed"] == draw]
        for column in ("method", "set", "k"):
            after = after[after[column] == getattr(condition, column)]
        if metric not in table.columns or after.empty:
            raise ValueError(f"no {metric!r} for {condition}, draw {draw}, on {task!r}: see curve.per_trial")
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
        heads = str(after["heads"].iloc[0]).replace(",", ", ")
        right = f"Right: {metric} above {threshold:g}. Changed judgements come first."
        return cls(examples, f"Ablated: {condition} ({heads}). {right}", shown)

    @property
    def right(self) -> tuple[int, int]:
        """How many texts are right before, and after."""
        return sum(one.right_before for one in self.examples), sum(one.right_after for one in self.examples)


def _above(table: pd.DataFrame, trial: Any, metric: str, threshold: float) -> bool:
    return float(str(table.at[trial, metric])) > threshold


@dataclass(frozen=True)
class Section:
    """A part of the page under one heading; a blank line in `text` starts a new paragraph.

    `side_by_side` puts figures beside each other where the page is wide enough; `folded` hides tables and texts until asked.
    """

    title: str
    text: str = ""
    cards: Sequence[Card] = ()
    figures: Sequence[Figure | go.Figure] = ()
    tables: Sequence[Table | pd.DataFrame] = ()
    texts: Sequence[Texts] = ()
    side_by_side: bool = False
    folded: bool = False


@dataclass(frozen=True)
class Summary:
    """The first screen: the answer in a sentence and in figures; folded, what was run.

    `verdict` is the caller's sentence, `figures` show it; `facts` are further lines ({"Ablation": "mean over trials"}).
    """

    model: str
    trials: str | int
    heads: Sequence[Head | str]
    verdict: str
    cards: Sequence[Card] = ()
    facts: Mapping[str, str] = field(default_factory=dict)
    figures: Sequence[Figure | go.Figure] = ()


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


@dataclass(frozen=True)
class Page:
    """A whole page but for its provenance."""

    title: str
    summary: Summary
    sections: Sequence[Section]
