"""One HTML file that presents a study: it opens from disk, needs no network, and prints.

All text is escaped, because some of it comes from models. The page's content security policy forbids other scripts and all
requests.
"""

from __future__ import annotations

import base64
import hashlib
import itertools
import json
import math
import numbers
from collections import Counter
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from plotly.offline import get_plotlyjs

from lens_heads.inspection.explorer import recorded
from lens_heads.report.parts import Card, Example, Figure, Provenance, Section, Summary, Table, Texts
from lens_heads.report.style import CSS, SCRIPT
from lens_heads.runs.showing import visible
from lens_heads.runs.store import write_atomic
from lens_heads.runs.typed import typed

SHORT = 12
"""A table with more rows than this scrolls in place."""
PROSE = 24
"""A column with a longer text than this wraps."""
FIRST_SCREEN = 620
"""The largest height, in pixels, of a figure of the summary, so that it fits on the first screen."""
_SIGNS = {True: ("right", "✓"), False: ("wrong", "✗")}


@typed
def write_report(
    path: str | Path, title: str, summary: Summary, sections: Sequence[Section], *, provenance: Provenance | None = None
) -> Path:
    """Write the page as one HTML file and return its path. The file is replaced atomically.

    `title`, `summary`, `sections`: what it says. `provenance`: where it is from; None: of this call.

    Example:
        >>> summary = lh.report.Summary("planted", trials=8, heads=heads, verdict="Two heads write it.")
        >>> lh.report.write_report("page.html", "Planted heads", summary, []).name
        'page.html'
    """
    path = Path(path)
    write_atomic(path, page(title, summary, sections, provenance or Provenance.now()))
    return path


@typed
def page(title: str, summary: Summary, sections: Sequence[Section], provenance: Provenance) -> str:
    """The whole page as a string. The same input always gives the same page.

    `title`, `summary`, `sections`: what it says. `provenance`: where it is from.

    Example:
        >>> summary = lh.report.Summary("planted", trials=8, heads=heads, verdict="Two heads write it.")
        >>> from_here = lh.report.Provenance({"k": 2}, command="study.py", date="2026-01-31", versions={"torch": "2.6"})
        >>> "Two heads write it." in lh.report.page("Planted heads", summary, [], from_here)
        True
    """
    figures: list[go.Figure] = []
    header = _summary(title, summary, figures)
    body = "".join(_section(i, section, figures) for i, section in enumerate(sections, 1))
    # "</script" would end the element; inside a JavaScript string or JSON the backslash changes nothing.
    scripts = [("", get_plotlyjs().replace("</script", "<\\/script")), ("", SCRIPT)] if figures else []
    style, explores = CSS, any(section.explorer for section in sections)
    if explores:
        style, scripts = CSS + recorded.asset("explorer.css"), [*scripts, (' type="module"', recorded.module())]
    hashes = " ".join(f"'sha256-{base64.b64encode(hashlib.sha256(s.encode()).digest()).decode()}'" for _, s in scripts)
    policy = (
        f"default-src 'none'; script-src {hashes or chr(39) + 'none' + chr(39)}; style-src 'unsafe-inline'; "
        "img-src data: blob:; base-uri 'none'; form-action 'none'"
    )
    links = (f'<a href="#section-{i}">{_text(section.title)}</a>' for i, section in enumerate(sections, 1))
    contents = _folded("Contents", f"<ol>{_each('li', links)}</ol>")
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{_text(title)}</title>\n<style>{style}</style>\n</head>\n<body>\n"
        f"<header>{header}</header>\n"
        f'<nav aria-label="Contents">{contents}</nav>\n'
        f"<main>\n{body}</main>\n<footer>{_provenance(provenance)}</footer>\n"
        + "".join(f"<script{kind}>{script}</script>\n" for kind, script in scripts)
        + "</body>\n</html>\n"
    )


def _text(value: object) -> str:
    """A text from anywhere as HTML that shows it: tags and control characters do nothing."""
    return escape(visible(value, keep="\n\t"))


def number(value: Any, digits: int = 3, form: str | None = None) -> str:
    """Format a value for readers: integers in full, floats to `digits` decimals, missing values as a dash."""
    if pd.api.types.is_scalar(value) and pd.isna(value):
        return "–"
    if isinstance(value, (bool, np.bool_)):
        return "yes" if value else "no"
    if not isinstance(value, numbers.Real):
        return str(value)
    return format(value, form or ("d" if isinstance(value, numbers.Integral) else f".{digits}f"))


def _element(tag: str, text: object, kind: str = "") -> str:
    """An element that holds escaped text."""
    opening = f'<{tag} class="{kind}">' if kind else f"<{tag}>"
    return f"{opening}{_text(text)}</{tag}>"


def _each(tag: str, items: Iterable[str]) -> str:
    return "".join(f"<{tag}>{item}</{tag}>" for item in items)


def _folded(title: str, content: str) -> str:
    return f"<details><summary>{title}</summary>{content}</details>"


def _summary(title: str, summary: Summary, figures: list[go.Figure]) -> str:
    """The HTML of the first screen; its figures are appended to `figures`."""
    heads = "".join(_element("span", head, "head") + " " for head in summary.heads) or "none"
    facts = [("Model", summary.model), ("Trials", summary.trials), *summary.facts.items()]
    rows = [_element("dt", name) + _element("dd", value) for name, value in facts]
    rows.insert(2, f"<dt>Heads</dt><dd>{heads}</dd>")
    return (
        _element("h1", title)
        + _element("p", summary.verdict, "verdict")
        + _cards(summary.cards)
        + _figures(summary.figures, figures, side_by_side=True, highest=FIRST_SCREEN)
        + _folded("What was run", f'<dl class="facts">{_each("div", rows)}</dl>')
    )


def _section(index: int, section: Section, figures: list[go.Figure]) -> str:
    """The HTML of a section; its figures are appended to `figures`."""
    tables = [_table(table if isinstance(table, Table) else Table(table)) for table in section.tables]
    texts = [_texts(texts) for texts in section.texts]
    details = "\n".join([*tables, *texts])
    if section.folded and details:
        title = "Tables and texts" if tables and texts else "Tables" if tables else "Texts"
        details = _folded(title, details)
    seen = recorded.element(section.explorer) if section.explorer else ""
    return (
        f'<section id="section-{index}">{_element("h2", section.title)}'
        + "".join(_element("p", text.strip()) for text in section.text.split("\n\n") if text.strip())
        + f"{_cards(section.cards)}\n{_figures(section.figures, figures, section.side_by_side)}\n{seen}{details}</section>\n"
    )


def _cards(cards: Sequence[Card]) -> str:
    shown = []
    for card in cards:
        text = _element("div", number(card.value, card.digits), "value")
        if card.low is not None and card.high is not None and not pd.isna(card.low):
            low, high = number(float(card.low), card.digits), number(float(card.high), card.digits)
            text += f'<div class="interval" title="95 % interval">[{low}, {high}]</div>'
        text += _element("div", card.label, "label") + (_element("div", card.note, "note") if card.note else "")
        shown.append(f'<div class="card">{text}</div>')
    return f'<div class="cards">{"".join(shown)}</div>' if shown else ""


def _figures(
    items: Sequence[Figure | go.Figure], figures: list[go.Figure], side_by_side: bool, highest: float = math.inf
) -> str:
    """Places for the figures, which are appended to `figures`."""
    beside, places = side_by_side and len(items) > 1, []
    for item in items:
        item = item if isinstance(item, Figure) else Figure(item)
        figures.append(item.figure)
        places.append(_figure(len(figures), item, beside, highest))
    return f'<div class="side">{"".join(places)}</div>' if beside else "".join(places)


def _figure(index: int, item: Figure, beside: bool, highest: float) -> str:
    """A place for the figure and its data, which is inert JSON until the page's one script draws it.

    The page's column decides the width; a figure that stands alone is no wider than it asks for.
    """
    spec = json.loads(item.figure.to_json() or "{}")
    layout = spec["layout"]
    width, layout["height"] = layout.pop("width", None), min(layout.get("height", 450), highest)
    style = f"height:{layout['height']}px" + (f";max-width:{width}px" if width and not beside else "")
    label = _text(item.caption or layout.get("title", {}).get("text") or f"Figure {index}")
    data = json.dumps(spec).replace("<", "\\u003c")
    return (
        f'<figure aria-label="{label}"><div class="figure" id="figure-{index}" style="{style}"></div>'
        + (_element("figcaption", item.caption) if item.caption else "")
        + f'<script type="application/json" data-figure="figure-{index}">{data}</script></figure>'
    )


def _table(table: Table) -> str:
    frame = table.frame
    hidden = {name for pair in table.intervals.values() for name in pair}
    columns = [name for name in frame.columns if name not in hidden]
    head, cells = "", []
    for name in columns:
        texts = _column(table, name)
        prose = max(map(len, texts), default=0) > PROSE
        kind = "number" if pd.api.types.is_numeric_dtype(frame[name]) else "prose" if prose else ""
        head += _element("th", name, kind)
        cells.append([_element("td", text, kind) for text in texts])
    rows = ["".join(row) for row in zip(*cells, strict=True)]
    return f'<div class="table">{_caption(table.caption)}{_grid(head, rows, long=len(rows) > SHORT)}</div>'


def _column(table: Table, name: Any) -> list[str]:
    """The texts of a column, each with its interval if it has one."""
    digits, form = table.digits, table.formats.get(name)
    sides = table.intervals.get(name, ())
    texts = []
    for value, *bounds in zip(*(table.frame[each] for each in (name, *sides)), strict=True):
        low_and_high = ", ".join(number(bound, digits, form) for bound in bounds)
        texts.append(number(value, digits, form) + (f" [{low_and_high}]" if pd.notna(bounds).any() else ""))
    return texts


def _caption(text: str) -> str:
    return _element("p", text, "caption") if text else ""


def _grid(head: str, rows: Sequence[str], long: bool = False) -> str:
    """A table that scrolls where it does not fit."""
    body = "".join(f"<tr>{row}</tr>\n" for row in rows)
    table = f"<table><thead><tr>{head}</tr></thead><tbody>\n{body}</tbody></table>"
    return f'<div class="scroll{" long" if long else ""}" tabindex="0">{table}</div>'


def _texts(texts: Texts) -> str:
    counts = Counter((example.right_before, example.right_after) for example in texts.examples)
    outcomes = {right: _element("span", f"{sign} {kind}", kind) for right, (kind, sign) in _SIGNS.items()}
    tally = [f"<b>{len(texts.examples)}</b> texts"]
    for before, after in itertools.product((True, False), repeat=2):
        tally.append(f"<b>{counts[before, after]}</b> {outcomes[before]} → {outcomes[after]}")
    head = _each("th", ("Question", "Expected", "Before", "After"))
    rows = [_example(example) for example in texts.examples]
    first, rest = rows[: texts.shown], rows[texts.shown :]
    more = _folded(f"Show {len(rest)} more", _grid(head, rest)) if rest else ""
    counted = f'<ul class="tally">{_each("li", tally)}</ul>'
    return f'<div class="table texts">{_caption(texts.caption)}{counted}{_grid(head, first)}{more}</div>'


def _example(example: Example) -> str:
    cells = _element("td", example.question) + _element("td", example.expected)
    for text, right in ((example.before, example.right_before), (example.after, example.right_after)):
        kind, sign = _SIGNS[right]
        shown = _text(text) if text.strip() else "<i>(empty)</i>"
        cells += f'<td class="{kind}"><span class="sign" role="img" aria-label="{kind}">{sign}</span> {shown}</td>'
    return cells


def _provenance(provenance: Provenance) -> str:
    packages = "".join(_element("li", f"{name} {version}") for name, version in provenance.versions.items())
    settings = json.dumps(dict(provenance.settings), indent=2, ensure_ascii=False, default=str)
    return (
        f"<h2>Provenance</h2><p>Generated on {_text(provenance.date)} with</p>"
        + _element("pre", provenance.command, "command")
        + f'<ul class="versions">{packages}</ul>{_folded("Settings", _element("pre", settings))}'
    )
