"""Names and texts full of markup and control characters: tables, warnings and pages show them as plain text."""

from __future__ import annotations

import io
import re
import warnings
from html.parser import HTMLParser
from typing import Any

import pandas as pd
import plotly.graph_objects as go
import pytest
import torch
from rich.console import Console
from rich.table import Table

from lens_heads import report
from lens_heads.heads.conditions import Condition
from lens_heads.heads.scores import HeadScores
from lens_heads.model.check import Check, CheckReport
from lens_heads.model.geometry import head_geometry
from lens_heads.plots import draw, theme
from lens_heads.report import parts, tables
from lens_heads.runs.showing import one_line, shown, visible
from tests.commands import run
from tests.conftest import tiny
from tests.curves import curve_of, row

NASTY = {
    "colour": "[red]x",
    "unopened": "[/]x",
    "unopened colour": "x[/red]",
    "link": "[link=http://evil.example]x[/link]",
    "emoji": ":smile: x",
    "backslash": "x\\",
    "backslashes": "\\[red]x\\",
    "screen": "\x1b[2J\x1b[31mx",
    "title": "\x1b]0;x\x07",
    "bell": "x\x07",
    "return": "good\rbad",
    "backspace": "bad\x08\x08\x08good",
    "c1": "\x9b31mx",
    "override": "\u202egnp.exe",
    "isolate": "\u2066x\u2069",
    "line": "first\nsecond",
    "separator": "first\u2028second",
    "nul": "x\0y",
    "half": "x\ud800y",
    "mark": "\ufeffx",
    "script": "<script>alert(1)</script>",
    "attribute": "\" onload='alert(1)' x=\"",
    "image": "<img src=x onerror=alert(1)>",
    "entity": "&lt;b&gt;",
    "comment": "<!-- x",
    "end": "</style></script></td>",
}
CONTROL = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufeff\u2028\u2029]")

every = pytest.mark.parametrize("text", NASTY.values(), ids=NASTY.keys())

FRAMES = {name: text for name, text in NASTY.items() if name != "half"}
whole = pytest.mark.parametrize("text", FRAMES.values(), ids=FRAMES.keys())  # pandas holds no half characters.


def printed(table: Table) -> str:
    console = Console(file=io.StringIO(), width=400, force_terminal=True, color_system=None, emoji=False)
    console.print(table)
    return console.file.getvalue()  # type: ignore[attr-defined]  # it is a StringIO


def shows(table: Table, text: str) -> None:
    said = printed(table)
    assert visible(text) in said
    assert not CONTROL.search(re.sub(r"\x1b\[[\d;]*m", "", said))


def scores(method: str) -> HeadScores:
    return HeadScores.from_trials(method, torch.arange(8.0).reshape(2, 2, 2), ["a", "b"])


def curve(task: str, method: str = "locos", text: str = "x") -> Any:
    seen = [
        {**row(Condition(name, set_, k), task, str(i), {"logprob": -1.0 - k - i}), "text": text, "answer": text}
        for name, set_, k in (("none", "none", 0), (method, "top", 1))
        for i in range(6)
    ]
    return curve_of(seen)


@every
def test_tables_show_names_as_they_are(text: str) -> None:
    shows(tables.top_heads({text: scores("locos")}), text)
    shows(tables.top_heads({"locos": scores("locos")}, title=text), text)
    shows(tables.ranking(scores(text), 1, 0), text)
    failed = Check(text, 1.0, 0.1, text)
    shows(tables.checks(CheckReport(text, head_geometry(tiny("llama-gqa")), (failed,))), text)


@whole
def test_tables_of_frames_show_names_as_they_are(text: str) -> None:
    shows(tables.curve(curve(text)), text)
    shows(tables.curve(curve("task", text)), text)
    claim = dict.fromkeys(("claim", "paper", "found", "holds_if", "verdict"), text)
    shows(tables.claims(pd.DataFrame([{**claim, "value": 1.0, "low": 0.0, "high": 2.0}]), text), text)


@every
def test_a_table_prints_no_emoji_and_no_colours_of_names(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    tables.show(tables.ranking(scores(text), 1, 0))
    said = capsys.readouterr().out
    assert not CONTROL.search(said)
    assert "\N{SMILING FACE WITH OPEN MOUTH AND SMILING EYES}" not in said


@every
def test_warnings_are_one_plain_line(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LENS_HEADS_DEBUG", raising=False)
    run("--help", monkeypatch=monkeypatch)
    line = warnings.formatwarning(text, UserWarning, "file.py", 7)
    assert line == f"warning: {one_line(text)}\n"
    assert not CONTROL.search(line)
    assert line.count("\n") == 1


class Elements(HTMLParser):
    """The elements of a page that could do something, and all attributes."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in ("script", "img", "link", "iframe", "object", "b", "a"):
            self.found.append(tag)
        self.found += [name for name, _ in attrs if name.startswith("on")]

    def handle_comment(self, data: str) -> None:
        self.found.append("comment")


def page(text: str) -> str:
    examples = [parts.Example(text, text, text, text, True, False)]
    figure = parts.Figure(go.Figure(layout={"title": {"text": "t"}}), text)
    table = parts.Table(pd.DataFrame({text: [text], "n": [1.0]}), text)
    card = parts.Card(text, text, note=text)
    section = parts.Section(text, text, [card], [figure], [table], [parts.Texts(examples, text)])
    summary = parts.Summary(text, text, [text], text, [card], {text: text})
    provenance = parts.Provenance({text: text}, text, text, {text: text})
    return report.html.page(text, summary, [section], provenance)


def body(text: str) -> str:
    """The page without plotly's own script."""
    return re.sub(r"<script>.*?</script>\n", "", page(text), flags=re.DOTALL)


@pytest.fixture(scope="module")
def harmless() -> list[str]:
    elements = Elements()
    elements.feed(body("x"))
    return elements.found


@whole
def test_a_page_shows_texts_and_runs_none(text: str, harmless: list[str]) -> None:
    made = body(text)
    elements = Elements()
    elements.feed(made)
    assert elements.found == harmless
    assert not CONTROL.search(made.replace("\t", ""))
    page(text).encode()


@every
def test_figures_take_tags_in_names_as_text(text: str) -> None:
    unit = HeadScores.from_trials("own", torch.ones(2, 2, 2), ["a", "b"], score_unit=text)
    for label in (theme.method_style(text).label, theme.style_of(unit).axis, theme.wrapped(text).replace("<br>", "")):
        assert not re.search(r"<\w", label)
    assert draw.figure_of("t", 100, [])


@pytest.mark.parametrize(
    ("value", "most"),
    [("x" * 10**6, 140), (["x" * 10**6] * 10**4, 1300), ({i: i for i in range(10**5)}, 200), (10**400, 140)],
    ids=["text", "list", "object", "number"],
)
def test_a_long_value_is_shortened_in_errors(value: Any, most: int) -> None:
    assert len(shown(value)) <= most


def test_a_short_value_is_shown_as_python_writes_it() -> None:
    for value in ("a", ["a", "b"], None, True, 4, {"text": ["a"]}, 0.5):
        assert shown(value) == repr(value)
