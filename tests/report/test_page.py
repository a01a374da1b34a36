"""The page: everything in it once, nothing of it live that a model wrote, nothing fetched."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go
import pytest

from lens_heads import report
from lens_heads.evidence.curve_results import AblationCurve
from lens_heads.heads.conditions import Condition
from lens_heads.heads.head import Head
from lens_heads.report import Card, Example, Figure, Provenance, Section, Summary, Table, Texts
from lens_heads.report import html as html_page
from tests import curves

ATTACK = "</td></script><script>alert(1)</script><img src=x onerror=alert(2)>\"'&"
SUMMARY = Summary("tiny-model", 40, [Head(12, 1), "L3H0"], "LOCOS was right.", [Card("left", 0.125, 0.05, 0.25)])
MADE = Provenance({"ks": [1, 5]}, "lens-heads study", "2026-01-02", {"torch": "2.13"})


class Page(HTMLParser):
    """Tags with attributes, scripts by content, and the text a reader sees."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[tuple[dict[str, str | None], str]] = []
        self.text = ""
        self._open = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._open = tag
        if tag == "script":
            self.scripts.append((dict(attrs), ""))

    def handle_endtag(self, tag: str) -> None:
        self._open = ""

    def handle_data(self, data: str) -> None:
        if self._open == "script":
            self.scripts[-1] = (self.scripts[-1][0], self.scripts[-1][1] + data)
        elif self._open != "style":
            self.text += data

    def named(self, tag: str) -> list[dict[str, str | None]]:
        return [attrs for name, attrs in self.tags if name == tag]


def render(*sections: Section, summary: Summary = SUMMARY, title: str = "A study") -> str:
    return html_page.page(title, summary, sections, MADE)


def heat(value: float, title: str = "") -> go.Figure:
    return go.Figure(go.Heatmap(z=[[value]]), layout={"title": {"text": title}, "height": 300, "width": 500})


def drawn(page: Page) -> dict[str, Any]:
    """The figures' data by the id of their place."""
    return {str(a["data-figure"]): json.loads(text) for a, text in page.scripts if a.get("type") == "application/json"}


@pytest.fixture(scope="module")
def full() -> str:
    example = Example(ATTACK, ATTACK, ATTACK, ATTACK, True, False)
    frame = pd.DataFrame({ATTACK: [ATTACK, "plain"], "value": [1.0, 2.0]})
    section = Section(
        f"heading {ATTACK}",
        f"text {ATTACK}",
        [Card(ATTACK, ATTACK, note=ATTACK)],
        [Figure(heat(1, ATTACK), f"caption {ATTACK}"), heat(2)],
        [Table(frame, ATTACK)],
        [Texts([example, example], ATTACK, shown=1)],
        side_by_side=True,
        folded=True,
    )
    first = Figure(heat(0, ATTACK), f"caption {ATTACK}")
    summary = Summary(ATTACK, ATTACK, [ATTACK], ATTACK, [Card(ATTACK, ATTACK)], {ATTACK: ATTACK}, [first])
    made = Provenance({ATTACK: ATTACK}, ATTACK, ATTACK, {ATTACK: ATTACK})
    return html_page.page(ATTACK, summary, [section, Section("second", figures=[heat(3)])], made)


def test_the_first_screen_answers_which_model_trials_heads_and_who_was_right() -> None:
    header = render().split("</header>")[0].split("<header>")[1]
    assert re.search(r"<dt>Model</dt><dd>tiny-model</dd>", header)
    assert re.search(r"<dt>Trials</dt><dd>40</dd>", header)
    assert re.findall(r'<span class="head">(.*?)</span>', header) == ["L12H1", "L3H0"]
    assert '<p class="verdict">LOCOS was right.</p>' in header
    assert "0.12" in header, "the key number"
    assert "[0.05, 0.25]" in header


def test_nothing_a_model_wrote_becomes_markup_or_script(full: str) -> None:
    page = Page(full)
    assert not page.named("img")
    assert not [attrs for _, attrs in page.tags if any(name.startswith("on") for name in attrs)]
    live = [content for attrs, content in page.scripts if attrs.get("type") != "application/json"]
    assert len(live) == 2, "plotly.js and the page's own script"
    assert not [content for content in live if "alert(2)" in content]
    # Title, heading, text, cards, captions, table head and cell, four texts twice, facts, provenance: all there, as text.
    assert page.text.count(ATTACK) >= 23
    details = Page("".join(full.split("<details>")[1:]).split("<footer>")[0])
    assert details.text.count(ATTACK) >= 12, "folded facts, table and texts"


def test_an_unescaped_page_would_be_caught(full: str) -> None:
    broken = full.replace("&lt;img src=x onerror=alert(2)&gt;", "<img src=x onerror=alert(2)>", 1)
    assert Page(broken).named("img")


def test_the_page_fetches_nothing(full: str) -> None:
    for tag, attrs in Page(full).tags:
        assert tag not in ("link", "iframe", "object", "embed", "base")
        assert "src" not in attrs, (tag, attrs)
        assert tag != "a" or (attrs["href"] or "").startswith("#")
    style = full.split("<style>")[1].split("</style>")[0]
    assert "url(" not in style
    assert "@import" not in style


def test_the_policy_allows_exactly_the_two_scripts_of_the_page(full: str) -> None:
    page = Page(full)
    policy = next(a["content"] for a in page.named("meta") if a.get("http-equiv") == "Content-Security-Policy")
    assert policy is not None
    assert "default-src 'none'" in policy
    live = [content for attrs, content in page.scripts if not attrs]
    hashes = [f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}" for text in live]
    assert re.findall(r"'(sha256-[^']+)'", policy) == hashes
    assert "script-src 'unsafe" not in policy


def test_plotly_is_inlined_once_and_only_when_there_is_a_figure(full: str) -> None:
    assert sum("Plotly.newPlot(source" in content for _, content in Page(full).scripts) == 1
    assert sum(len(content) > 1_000_000 for _, content in Page(full).scripts) == 1
    plain = Page(render(Section("no figures", "text")))
    assert not plain.scripts
    assert len(render(Section("no figures"))) < 30_000


def test_every_figure_is_there_once_with_its_data_and_its_place(full: str) -> None:
    page = Page(full)
    data = drawn(page)
    assert list(data) == ["figure-1", "figure-2", "figure-3", "figure-4"]
    for i, name in enumerate(data):
        z = data[name]["data"][0]["z"]
        assert z == [[i]], "the numbers of the figure, in the order of the page"
        assert [a["id"] for a in page.named("div") if a.get("id") == name] == [name]
    assert data["figure-1"]["layout"]["title"]["text"] == ATTACK


def test_a_figure_keeps_its_height_and_at_most_its_width() -> None:
    figure = heat(1)
    page = Page(render(Section("one", figures=[figure])))
    place = next(a for a in page.named("div") if a.get("class") == "figure")
    assert place["style"] == "height:300px;max-width:500px"
    spec = json.loads(page.scripts[0][1])
    assert "width" not in spec["layout"]
    assert figure.layout.width == 500, "the caller's figure is left as it was"


def test_the_first_screen_shows_sentence_cards_figures_and_folded_facts_in_this_order() -> None:
    summary = dataclasses.replace(SUMMARY, figures=[heat(1), Figure(heat(2), "the second")], facts={"Ablation": "mean"})
    html = render(Section("one", figures=[heat(3)]), summary=summary)
    header = html.split("<header>")[1].split("</header>")[0]
    parts = ("<h1>A study</h1>", 'class="verdict"', 'class="cards"', 'class="side"', "<summary>What was run</summary>")
    assert sorted(parts, key=header.index) == list(parts)
    assert header.index("<summary>What was run") < header.index("<dt>Ablation</dt><dd>mean</dd>")
    assert re.findall(r'class="figure" id="(.*?)"', header) == ["figure-1", "figure-2"]
    assert "<figcaption>the second</figcaption>" in header
    values = {name: spec["data"][0]["z"] for name, spec in drawn(Page(html)).items()}
    assert values == {"figure-1": [[1]], "figure-2": [[2]], "figure-3": [[3]]}


def test_a_tall_figure_fits_on_the_first_screen_and_keeps_its_height_elsewhere() -> None:
    tall = heat(1).update_layout(height=900)
    html = render(Section("one", figures=[tall]), summary=dataclasses.replace(SUMMARY, figures=[tall, heat(2)]))
    heights = [int(h) for h in re.findall(r'class="figure"[^>]*style="height:(\d+)px', html)]
    assert heights == [html_page.FIRST_SCREEN, 300, 900]
    assert [spec["layout"]["height"] for spec in drawn(Page(html)).values()] == heights
    assert tall.layout.height == 900, "the caller's figure is left as it was"


def test_figures_side_by_side_stand_in_one_grid_whose_columns_decide_their_width() -> None:
    html = render(Section("one", figures=[heat(1), Figure(heat(2)), heat(3)], side_by_side=True))
    assert html.count('<div class="side">') == 1
    assert len(Page(html.split('<div class="side">')[1].split("</section>")[0]).named("figure")) == 3
    assert "max-width:500px" not in html
    for alone in (Section("one", figures=[heat(1)], side_by_side=True), Section("one", figures=[heat(1), heat(2)])):
        html = render(alone)
        assert '<div class="side">' not in html
        assert html.count("max-width:500px") == len(alone.figures)


@pytest.mark.parametrize(("parts", "title"), [("tables", "Tables"), ("texts", "Texts"), ("both", "Tables and texts")])
def test_folded_tables_and_texts_are_in_details_but_cards_and_figures_are_not(parts: str, title: str) -> None:
    tables = [pd.DataFrame({"column": ["in a table"]})] if parts != "texts" else []
    texts = [Texts([Example("in a text", "gold", "gold", "no", True, False)])] if parts != "tables" else []
    shown = {
        "text": "a paragraph",
        "cards": [Card("a card", 1)],
        "figures": [heat(1)],
        "tables": tables,
        "texts": texts,
    }
    section = render(Section("one", **shown, folded=True)).split("<section")[1].split("</section>")[0]
    before, inside = section.split(f"<details><summary>{title}</summary>")
    assert inside.endswith("</details>")
    for said in ("a paragraph", "a card", 'id="figure-1"'):
        assert said in before
    assert ("in a table" in inside, "in a text" in inside) == (parts != "texts", parts != "tables")
    assert "in a t" not in before
    assert "<details><summary>T" not in render(Section("one", **shown))


def test_a_folded_section_with_nothing_to_fold_has_no_details() -> None:
    section = render(Section("one", "text", figures=[heat(1)], folded=True)).split("<section")[1]
    assert "<details>" not in section.split("</section>")[0]


def test_contents_lead_to_the_sections(full: str) -> None:
    page = Page(full)
    assert [a["href"] for a in page.named("a")] == [f"#{a['id']}" for a in page.named("section")]
    assert len(page.named("section")) == 2


def test_blank_lines_make_paragraphs() -> None:
    html = render(Section("one", "first\nline\n\nsecond"))
    assert "<p>first\nline</p>" in html
    assert "<p>second</p>" in html


@pytest.mark.parametrize(
    ("value", "digits", "form", "shown"),
    [
        (0.12345, 3, None, "0.123"),
        (12, 3, None, "12"),
        (np.int64(7), 3, None, "7"),
        (np.float32(0.5), 2, None, "0.50"),
        (float("nan"), 3, None, "–"),
        (None, 3, None, "–"),
        (pd.NA, 3, None, "–"),
        (True, 3, None, "yes"),
        (np.bool_(False), 3, None, "no"),
        ("True", 3, None, "True"),
        (0.000123, 3, ".1e", "1.2e-04"),
        (float("nan"), 3, ".1e", "–"),
        (Head(1, 2), 3, None, "L1H2"),
    ],
)
def test_numbers_as_a_reader_wants_them(value: Any, digits: int, form: str | None, shown: str) -> None:
    assert html_page.number(value, digits, form) == shown


def cells(html: str) -> list[list[str]]:
    body = html.split("<tbody>")[1].split("</tbody>")[0]
    return [re.findall(r"<td[^>]*>(.*?)</td>", row) for row in body.strip().split("</tr>") if row.strip()]


def test_a_table_shows_every_row_and_folds_intervals_into_their_value() -> None:
    frame = pd.DataFrame(
        {
            "head": ["L1H2", "L3H4"],
            "k": [1, 20],
            "drop": [0.5, -0.25],
            "low": [0.4, float("nan")],
            "high": [0.6, 0.1],
            "p": [0.0001, 0.5],
        }
    )
    html = render(
        Section("t", tables=[Table(frame, digits=2, formats={"p": ".0e"}, intervals={"drop": ("low", "high")})])
    )
    assert cells(html) == [
        ["L1H2", "1", "0.50 [0.40, 0.60]", "1e-04"],
        ["L3H4", "20", "-0.25 [–, 0.10]", "5e-01"],
    ]
    assert re.findall(r"<th\b[^>]*>(.*?)</th>", html) == ["head", "k", "drop", "p"]
    assert html.count('class="number"') == 3 * 3, "numbers stand right, in the head and both rows"


def test_a_bare_frame_with_repeated_index_is_a_table() -> None:
    frame = pd.DataFrame({"a": [1, 2]}, index=[5, 5])
    assert cells(render(Section("t", tables=[frame]))) == [["1"], ["2"]]


def test_only_columns_of_long_texts_wrap() -> None:
    frame = pd.DataFrame({"short": ["0.4 → 0.02"], "long": ["a claim that is as long as a sentence"], "n": [3]})
    html = render(Section("t", tables=[frame]))
    assert re.findall(r"<td([^>]*)>", html) == ["", ' class="prose"', ' class="number"']


def test_a_card_without_interval_shows_none() -> None:
    html = render(Section("c", cards=[Card("heads", 37), Card("share", 0.5, 0.25, 0.75, digits=1, note="of all")]))
    section = html.split("<section")[1]
    assert re.findall(r'class="value">(.*?)<', section) == ["37", "0.5"]
    assert re.findall(r'class="interval"[^>]*>(.*?)<', section) == ["[0.2, 0.8]"]
    assert re.findall(r'class="note">(.*?)<', section) == ["of all"]


def test_texts_are_coloured_by_judgement_counted_and_folded() -> None:
    outcomes = [(True, False), (True, False), (True, True), (False, True), (False, False), (True, True)]
    examples = [Example(f"q{i}", "gold", f"before{i}", f"after{i}", *pair) for i, pair in enumerate(outcomes)]
    html = render(Section("texts", texts=[Texts(examples, "how", shown=2)]))
    for i, pair in enumerate(outcomes):
        for text, right in zip((f"before{i}", f"after{i}"), pair, strict=True):
            kind, sign = ("right", "✓") if right else ("wrong", "✗")
            assert re.search(rf'<td class="{kind}"><span class="sign"[^>]*>{sign}</span> {text}</td>', html)
    tally = html.split('class="tally">')[1].split("</ul>")[0]
    assert re.findall(r"<b>(\d+)</b>", tally) == ["6", "2", "2", "1", "1"]
    shown, folded = html.split("<details><summary>Show 4 more</summary>")
    assert "q1</td>" in shown
    assert "q2</td>" in folded
    assert "q2</td>" not in shown


def test_an_empty_text_is_said_to_be_empty() -> None:
    html = render(Section("texts", texts=[Texts([Example("q", "gold", "gold", " ", True, False)])]))
    assert "<i>(empty)</i>" in html


def study() -> AblationCurve:
    """Before: right, right, wrong. After k=5: right, wrong, right. Another seed and task must not leak in."""
    rows = []
    for condition, draw, right in (
        (Condition.none(), 0, (1, 1, 0)),
        (Condition.top("locos", 5), 0, (1, 0, 1)),
        (Condition.random_like("locos", 5), 0, (1, 1, 1)),
        (Condition.random_like("locos", 5), 1, (0, 0, 0)),
    ):
        for task in ("retrieval", "parametric"):
            for i, value in enumerate(right):
                told = {"draw": draw, "answer": f"gold{i}", "text": f"{task} {condition.set}{draw} {i}"}
                rows.append(curves.row(condition, task, f"t{i}", {"contains": float(value)}, heads="L1H2", **told))
    return curves.curve_of(rows)


def test_texts_from_a_curve_pair_the_same_trial_and_put_changes_first() -> None:
    texts = Texts.from_curve(study(), Condition.top("locos", 5), metric="contains", questions={"t1": "Which word?"})
    assert list(texts.examples) == [
        Example("Which word?", "gold1", "retrieval none0 1", "retrieval top0 1", True, False),
        Example("t2", "gold2", "retrieval none0 2", "retrieval top0 2", False, True),
        Example("t0", "gold0", "retrieval none0 0", "retrieval top0 0", True, True),
    ]
    assert "Ablated: locos top k=5 (L1H2). Right: contains above 0.5." in texts.caption
    assert [sum(e.right_before for e in texts.examples), sum(e.right_after for e in texts.examples)] == [2, 2]
    other = Texts.from_curve(study(), Condition.random_like("locos", 5), metric="contains", draw=1, task="parametric")
    assert {e.after for e in other.examples} == {f"parametric random_like1 {i}" for i in range(3)}
    assert not any(e.right_after for e in other.examples)


def test_texts_of_a_condition_that_was_not_run_are_refused() -> None:
    with pytest.raises(ValueError, match="locos top k=7, draw 0, on 'retrieval'"):
        Texts.from_curve(study(), Condition.top("locos", 7), metric="contains")
    with pytest.raises(ValueError, match="metric 'rougeL' was not measured for locos top k=5"):
        Texts.from_curve(study(), Condition.top("locos", 5), metric="rougeL")


def test_provenance_names_versions_settings_command_and_date(monkeypatch: pytest.MonkeyPatch) -> None:
    footer = Page(render()).text.split("Provenance")[1]
    for part in ("2026-01-02", "lens-heads study", "torch 2.13", '"ks"'):
        assert part in footer
    monkeypatch.setattr("sys.argv", ["/some/where/bin/lens-heads", "study", "a b"])
    made = Provenance.now(settings={"k": 1})
    assert made.command == "lens-heads study 'a b'", "the folder of the program is nobody's business"
    assert {"lens-heads", "torch", "plotly", "python"} <= made.versions.keys()
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d UTC", made.date)


def test_write_report_replaces_the_file_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "deep" / "page.html"
    assert report.write_report(path, "A study", SUMMARY, [Section("one")], provenance=MADE) == path
    assert path.read_text(encoding="utf-8") == render(Section("one"))
    before = path.read_bytes()

    def fail(*_: Any) -> None:
        raise OSError("disk full")

    monkeypatch.setattr("lens_heads.runs.files.os.replace", fail)
    with pytest.raises(OSError, match="disk full"):
        report.write_report(path, "Another", SUMMARY, [], provenance=MADE)
    assert path.read_bytes() == before


def test_the_same_values_give_the_same_page() -> None:
    sections = [Section("one", figures=[heat(1)])]
    assert render(*sections) == render(*sections)
