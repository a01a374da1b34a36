"""The page builder on sections of one line, and the texts of every study: all that they name is there to be shown."""

from __future__ import annotations

import ast
from importlib import import_module
from pathlib import Path
from typing import Any

import pandas as pd
import plotly.graph_objects as go
import pytest

from lens_heads import report
from lens_heads.studies import pages
from lens_heads.studies.pages import Shown
from lens_heads.studies.presets import beside, read_presets

STUDIES = ("locos_paper", "capability_paper", "fragile_paper", "ranking_methods", "two_needles")
FRAME = pd.DataFrame({"drop": [1.0], "drop_low": [0.5], "drop_high": [1.5]})
PAGE: dict[str, Any] = {
    "title": "A title",
    "trials": "{n} trials",
    "facts": {"Shown": "{n}", "Left out": "{nothing}"},
    "first": [{"title": "First of {models}", "text": ["One.", "{n}."], "tables": [{"of": "claims"}]}],
    "models": [
        {"title": "{name}", "figures": [["one", "Of {name}"], ["absent", "Of {no_word}"]], "side_by_side": True},
        {"title": "needs", "needs": "costs", "tables": [{"of": "costs", "caption": "{name}", "intervals": ["drop"]}]},
        {"title": "lacks", "lacks": "costs"},
    ],
}


@pytest.fixture
def page(monkeypatch: pytest.MonkeyPatch) -> report.Page:
    monkeypatch.setattr(pages, "beside", lambda module, file: PAGE)
    tables = {"claims": [report.Table(FRAME, "a"), FRAME]}
    whole = Shown({"models": "a, b", "n": 3, "nothing": ""}, tables, heads=["L0H0"], verdict="Yes.")
    parts = [
        ("models", Shown({"name": "a"}, {"costs": FRAME}, {"one": go.Figure()})),
        ("models", Shown({"name": "b"}, {}, {"one": [go.Figure(), report.Figure(go.Figure(), "its own")]})),
    ]
    return pages.page("a.module", whole, parts)


def test_sections_stand_in_order_with_their_words_filled(page: report.Page) -> None:
    assert [one.title for one in page.sections] == ["First of a, b", "a", "needs", "b", "lacks"]
    assert page.sections[0].text == "One. 3."
    assert (page.title, page.summary.trials, page.summary.facts) == ("A title", "3 trials", {"Shown": "3"})


def test_tables_have_their_intervals_and_made_ones_stay(page: report.Page) -> None:
    assert [table.caption for table in page.sections[0].tables] == ["a", ""]
    (table,) = page.sections[2].tables
    assert (table.caption, table.intervals) == ("a", {"drop": ("drop_low", "drop_high")})


def test_a_name_may_stand_for_several_figures_and_those_without_are_left_out(page: report.Page) -> None:
    assert [[one.caption for one in section.figures] for section in page.sections] == [
        [],
        ["Of a"],
        [],
        ["Of b", "its own"],
        [],
    ]


@pytest.mark.parametrize("study", STUDIES)
def test_every_table_and_figure_of_a_page_is_named_in_its_study(study: str) -> None:
    """A misspelt name would be left out of the page without a word."""
    folder = Path(str(import_module(f"lens_heads.studies.{study}").__file__)).parent
    files = [*folder.glob("*.py"), folder.parent / "runner.py"]  # What all pages show is the runner's.
    trees = [ast.parse(file.read_text(encoding="utf-8")) for file in files]
    nodes = [node for tree in trees for node in ast.walk(tree)]
    known = {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    known |= {node.arg for node in nodes if isinstance(node, ast.keyword) and node.arg}
    made = beside(f"lens_heads.studies.{study}.study", "page.json")
    listed = [one for part in made.values() if isinstance(part, list) for one in part]
    assert listed
    for one in listed:
        named = [name for name, *_ in one.get("figures", ())] + [table["of"] for table in one.get("tables", ())]
        named += [*one.get("texts", ()), *(one[how] for how in ("needs", "lacks") if how in one)]
        assert set(named) <= known, one["title"]


def test_a_preset_has_the_fields_of_the_one_that_it_is_like(monkeypatch: pytest.MonkeyPatch) -> None:
    listed = {"small": {"like": "base", "n": 1}, "base": {"n": 2, "ks": [1, 2], "call": ["task", {"words": ["a"]}]}}
    monkeypatch.setattr("lens_heads.studies.presets.beside", lambda module, file: listed)
    found = read_presets("a.module", dict)
    assert list(found) == ["small", "base"]
    assert found["small"] == {"n": 1, "ks": (1, 2), "call": ("task", {"words": ("a",)})}
