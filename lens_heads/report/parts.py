"""What a page is made of: a `Summary` for the first screen, `Section`s of text, `Card`s, `Figure`s, `Table`s and `Texts`.

All are plain values. `plots` draws, `page.html` lays out, and the caller decides what a study says.
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

from lens_heads.evidence.curve_results import AblationCurve
from lens_heads.heads.conditions import Condition
from lens_heads.heads.head import Head
from lens_heads.runs.store import running_command, versions


@dataclass(frozen=True)
class Card:
    """A key number with its label and interval. Floats are shown with `digits` decimals.

    `value`, `low`, `high`: the number and its bounds. `note`: below it.

    Example:
        >>> lh.report.Card("cost", 2.5, 1.5, 3.5, note="nats").label
        'cost'
    """

    label: str
    value: float | str
    low: float | None = None
    high: float | None = None
    note: str = ""
    digits: int = 2


@dataclass(frozen=True)
class Figure:
    """A plotly figure with its caption.

    Example:
        >>> lh.report.Figure(lh.plots.head_map(scores), "All heads.").caption
        'All heads.'
    """

    figure: go.Figure
    caption: str = ""


@dataclass(frozen=True)
class Table:
    """A DataFrame, shown without its index.

    Floats are shown with `digits` decimals, or in the format that `formats` gives for their column ({"p": ".1e"}).
    `intervals` merges columns: {"value": ("low", "high")} shows "0.42 [0.35, 0.50]".

    `frame`: what it shows. `caption`: below it.

    Example:
        >>> lh.report.Table(planted.frame, "The truth.", digits=2).caption
        'The truth.'
    """

    frame: pd.DataFrame
    caption: str = ""
    digits: int = 3
    formats: Mapping[str, str] = field(default_factory=dict)
    intervals: Mapping[str, tuple[str, str]] = field(default_factory=dict)


@dataclass(frozen=True)
class Example:
    """One question with the text generated before and after an ablation, and whether each text was judged right.

    `expected`: the answer. `right_before`, `right_after`: whether each text was right.

    Example:
        >>> lh.report.Example("Who?", "Ann", before="Ann", after="Bob", right_before=True, right_after=False).after
        'Bob'
    """

    question: str
    expected: str
    before: str
    after: str
    right_before: bool
    right_after: bool


@dataclass(frozen=True)
class Texts:
    """Texts before and after an ablation. All of them are counted; those after the first `shown` are folded.

    `examples`: of kind `Example`. `caption`: below them.

    Example:
        >>> one = lh.report.Example("Who?", "Ann", before="Ann", after="Bob", right_before=True, right_after=False)
        >>> lh.report.Texts([one], "One text.").examples[0].question
        'Who?'
    """

    examples: Sequence[Example]
    caption: str = ""
    shown: int = 8

    @classmethod
    def from_curve(
        cls,
        curve: AblationCurve,
        condition: Condition,
        *,
        metric: str,
        task: str | None = None,
        draw: int = 0,
        threshold: float = 0.5,
        questions: Mapping[str, str] | None = None,
        shown: int = 8,
    ) -> Texts:
        """Pair every trial's text without ablation with its text under one condition; changed judgements come first.

        A text is right if its `metric` is above `threshold`. `questions` are by trial id; without one, the id is shown.
        """
        task = task or curve.main_task
        table = curve.per_trial[curve.per_trial["task"] == task].set_index("trial")
        before, after = table[table["set"] == "none"], table[table["draw"] == draw]
        for column in ("method", "set", "k"):
            after = after[after[column] == getattr(condition, column)]
        if metric not in table.columns or after.empty:
            where = f"{condition}, draw {draw}, on {task!r}"
            raise ValueError(
                f"metric {metric!r} was not measured for {where}. See curve.per_trial for what was measured."
            )
        pairs = before.join(after, rsuffix="_after", how="inner").reset_index()
        examples = [
            Example(
                question=(questions or {}).get(str(row["trial"]), str(row["trial"])),
                expected=str(row["answer"]),
                before=str(row["text"]),
                after=str(row["text_after"]),
                right_before=row[metric] > threshold,
                right_after=row[f"{metric}_after"] > threshold,
            )
            for row in pairs.to_dict("records")
        ]
        examples.sort(key=lambda e: (e.right_before == e.right_after, not e.right_before))
        heads = str(after["heads"].iloc[0]).replace(",", ", ")
        right = f"Right: {metric} above {threshold:g}. Changed judgements come first."
        return cls(examples, f"Ablated: {condition} ({heads}). {right}", shown)


@dataclass(frozen=True)
class Section:
    """A part of the page with its own heading; a blank line in `text` starts a new paragraph.

    `side_by_side` places figures next to each other where the page is wide enough. `folded` hides tables and texts until the
    reader opens them. `explorer`: data of `inspection.explorer.recorded.record`, shown as an interactive view of heads.

    `title`: its heading. `cards`, `figures`, `tables`, `texts`: what it shows.

    Example:
        >>> lh.report.Section("Truth", tables=[lh.report.Table(planted.frame, "All heads.")]).title
        'Truth'
    """

    title: str
    text: str = ""
    cards: Sequence[Card] = ()
    figures: Sequence[Figure | go.Figure] = ()
    tables: Sequence[Table | pd.DataFrame] = ()
    texts: Sequence[Texts] = ()
    side_by_side: bool = False
    folded: bool = False
    explorer: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Summary:
    """The first screen: the answer as a sentence and as figures, with a folded list of what was run.

    `verdict` is the sentence, and `figures` show it. `facts` are further lines of the list ({"Ablation": "mean over trials"}).

    `model`, `trials`: what was run. `heads`: those found. `cards`: key numbers.

    Example:
        >>> lh.report.Summary("planted", trials=8, heads=heads, verdict="Two heads write it.").verdict
        'Two heads write it.'
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
    """What is needed to reproduce the page.

    `settings`, `command`, `date`, `versions`: of the run.

    Example:
        >>> lh.report.Provenance({"k": 2}, command="study.py", date="2026-01-31", versions={"torch": "2.6"}).command
        'study.py'
    """

    settings: Mapping[str, Any]
    command: str
    date: str
    versions: Mapping[str, str]

    @classmethod
    def now(cls, *, settings: Mapping[str, Any] | None = None, command: str | None = None) -> Provenance:
        """The current time and package versions, and the running command unless another is given."""
        packages = versions() | {"plotly": importlib.metadata.version("plotly"), "python": platform.python_version()}
        date = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
        return cls(settings or {}, command or running_command(), date, packages)


@dataclass(frozen=True)
class Page:
    """A whole page, except for its provenance.

    `title`, `summary`, `sections`: as in `write_report`.

    Example:
        >>> summary = lh.report.Summary("planted", trials=8, heads=heads, verdict="Two heads write it.")
        >>> lh.report.Page("Planted heads", summary, []).title
        'Planted heads'
    """

    title: str
    summary: Summary
    sections: Sequence[Section]
