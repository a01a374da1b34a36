"""One HTML file that tells a study: opens from disk, loads nothing from anywhere, prints.

Everything written is escaped, since texts come from models; the page's own policy forbids any other script and any request.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import numbers
from collections import Counter
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

import pandas as pd
import plotly.graph_objects as go
from plotly.offline import get_plotlyjs

from lens_heads.report.parts import Card, Example, Figure, Provenance, Section, Summary, Table, Texts
from lens_heads.runs.store import write_atomic

SHORT = 12
"""Rows of a table that is shown whole; a longer one scrolls in its place."""


def write_report(
    path: str | Path,
    title: str,
    summary: Summary,
    sections: Sequence[Section],
    provenance: Provenance | None = None,
) -> Path:
    """Write the page as one HTML file and return its path; a reader never sees half of it."""
    path = Path(path)
    write_atomic(path, page(title, summary, sections, provenance or Provenance.now()))
    return path


def page(title: str, summary: Summary, sections: Sequence[Section], provenance: Provenance) -> str:
    """The whole page as a string; the same values give the same page."""
    figures: list[go.Figure] = []
    header = _summary(title, summary, figures)
    body = "".join(_section(i, section, figures) for i, section in enumerate(sections, 1))
    # "</script" would end the element; inside a JavaScript string or JSON the backslash changes nothing.
    scripts = [get_plotlyjs().replace("</script", "<\\/script"), _START] if figures else []
    hashes = " ".join(f"'sha256-{base64.b64encode(hashlib.sha256(s.encode()).digest()).decode()}'" for s in scripts)
    policy = (
        f"default-src 'none'; script-src {hashes or chr(39) + 'none' + chr(39)}; style-src 'unsafe-inline'; "
        "img-src data: blob:; base-uri 'none'; form-action 'none'"
    )
    entries = [section.title for section in sections]
    contents = "".join(f'<li><a href="#section-{i}">{escape(name)}</a></li>' for i, name in enumerate(entries, 1))
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{_CSS}</style>\n</head>\n<body>\n"
        f"<header>{header}</header>\n"
        f'<nav aria-label="Contents"><h2>Contents</h2><ol>{contents}</ol></nav>\n'
        f"<main>\n{body}</main>\n<footer>{_provenance(provenance)}</footer>\n"
        + "".join(f"<script>{script}</script>\n" for script in scripts)
        + "</body>\n</html>\n"
    )


def number(value: Any, digits: int = 3, form: str | None = None) -> str:
    """A value as a reader wants it: whole numbers whole, floats to `digits` decimals, missing ones as a dash."""
    if value is None or value is pd.NaT or value is pd.NA:
        return "–"
    if isinstance(value, (bool, str)) or not isinstance(value, numbers.Number):
        return {"True": "yes", "False": "no"}.get(str(value), str(value)) if not isinstance(value, str) else value
    if isinstance(value, numbers.Real) and math.isnan(value):
        return "–"
    if form is not None:
        return format(value, form)
    return f"{value:d}" if isinstance(value, numbers.Integral) else f"{value:.{digits}f}"


def _summary(title: str, summary: Summary, figures: list[go.Figure]) -> str:
    """The first screen's HTML; its figures are appended to `figures`."""
    facts = {
        "Model": escape(summary.model),
        "Trials": escape(str(summary.trials)),
        "Heads": "".join(f'<span class="head">{escape(str(head))}</span> ' for head in summary.heads) or "none",
    } | {escape(name): escape(str(value)) for name, value in summary.facts.items()}
    listed = "".join(f"<div><dt>{name}</dt><dd>{value}</dd></div>" for name, value in facts.items())
    verdict = f'<p class="verdict">{escape(summary.verdict)}</p>'
    drawn = _figures(summary.figures, figures, side_by_side=True)
    run = f'<details class="facts"><summary>What was run</summary><dl class="facts">{listed}</dl></details>'
    return f"<h1>{escape(title)}</h1>{verdict}{_cards(summary.cards)}{drawn}{run}"


def _section(index: int, section: Section, figures: list[go.Figure]) -> str:
    """The section's HTML; its figures are appended to `figures`."""
    parts = [f'<section id="section-{index}"><h2>{escape(section.title)}</h2>']
    parts += [f"<p>{escape(text.strip())}</p>" for text in section.text.split("\n\n") if text.strip()]
    parts.append(_cards(section.cards))
    parts.append(_figures(section.figures, figures, section.side_by_side))
    details = [_table(table if isinstance(table, Table) else Table(table)) for table in section.tables]
    details += [_texts(texts) for texts in section.texts]
    if section.folded and details:
        what = " and ".join(name for name, some in (("Tables", section.tables), ("texts", section.texts)) if some)
        details = [f"<details><summary>{what.capitalize()}</summary>", *details, "</details>"]
    return "\n".join(part for part in [*parts, *details] if part) + "</section>\n"


def _figures(items: Sequence[Figure | go.Figure], figures: list[go.Figure], side_by_side: bool) -> str:
    """Places for the figures, which are appended to `figures`."""
    places = []
    for item in items:
        item = item if isinstance(item, Figure) else Figure(item)
        figures.append(item.figure)
        places.append(_figure(len(figures), item))
    beside = side_by_side and len(places) > 1
    return f'<div class="side">{"".join(places)}</div>' if beside else "".join(places)


def _cards(cards: Sequence[Card]) -> str:
    if not cards:
        return ""
    shown = []
    for card in cards:
        interval = ""
        if card.low is not None and card.high is not None:
            low, high = number(float(card.low), card.digits), number(float(card.high), card.digits)
            interval = f'<div class="interval" title="95 % interval">[{low}, {high}]</div>'
        note = f'<div class="note">{escape(card.note)}</div>' if card.note else ""
        value = escape(number(card.value, card.digits))
        label = f'<div class="label">{escape(card.label)}</div>'
        shown.append(f'<div class="card"><div class="value">{value}</div>{interval}{label}{note}</div>')
    return f'<div class="cards">{"".join(shown)}</div>'


def _figure(index: int, item: Figure) -> str:
    """A place for the figure and its data, which is inert JSON until the page's one script draws it."""
    layout: Any = item.figure.layout
    height, width = layout.height or 450, layout.width
    caption = f"<figcaption>{escape(item.caption)}</figcaption>" if item.caption else ""
    label = escape(item.caption or layout.title.text or f"Figure {index}")
    spec = json.loads(item.figure.to_json() or "{}")
    spec["layout"].pop("width", None)  # The page's column decides, up to the width that the figure asks for.
    data = json.dumps(spec).replace("<", "\\u003c")
    style = f"height:{height}px" + (f";max-width:{width}px" if width else "")
    return (
        f'<figure aria-label="{label}"><div class="figure" id="figure-{index}" style="{style}"></div>{caption}'
        f'<script type="application/json" data-figure="figure-{index}">{data}</script></figure>'
    )


def _table(table: Table) -> str:
    frame = table.frame
    hidden = {name for pair in table.intervals.values() for name in pair}
    columns = [name for name in frame.columns if name not in hidden]
    numeric = {name for name in columns if pd.api.types.is_numeric_dtype(frame[name])}

    def shown(name: Any, i: int) -> str:
        digits, form = table.digits, table.formats.get(name)
        text = number(frame[name].iloc[i], digits, form)
        if name in table.intervals:
            bounds = [frame[side].iloc[i] for side in table.intervals[name]]
            low, high = (number(bound, digits, form) for bound in bounds)
            text += f" [{low}, {high}]" if pd.notna(bounds).any() else ""
        return escape(text)

    def kind(name: Any) -> str:
        return ' class="number"' if name in numeric else ""

    head = "".join(f'<th scope="col"{kind(name)}>{escape(str(name))}</th>' for name in columns)
    rows = "".join(
        "<tr>" + "".join(f"<td{kind(name)}>{shown(name, i)}</td>" for name in columns) + "</tr>\n"
        for i in range(len(frame))
    )
    caption = f"<p class='caption'>{escape(table.caption)}</p>" if table.caption else ""
    body = f"<table><thead><tr>{head}</tr></thead><tbody>\n{rows}</tbody></table>"
    scroll = "scroll long" if len(frame) > SHORT else "scroll"
    return f'<div class="table">{caption}<div class="{scroll}" tabindex="0">{body}</div></div>'


def _texts(texts: Texts) -> str:
    counts = Counter((example.right_before, example.right_after) for example in texts.examples)
    tally = "".join(
        f"<li><b>{counts[before, after]}</b> {_verdict(before)} → {_verdict(after)}</li>"
        for before, after in ((True, True), (True, False), (False, True), (False, False))
    )
    names = ("Question", "Expected", "Before", "After")
    head = "<thead><tr>" + "".join(f'<th scope="col">{name}</th>' for name in names) + "</tr></thead>"

    def table(examples: Sequence[Example]) -> str:
        rows = "".join(
            f"<tr><td>{escape(e.question)}</td><td>{escape(e.expected)}</td>"
            f"{_answer(e.before, e.right_before)}{_answer(e.after, e.right_after)}</tr>\n"
            for e in examples
        )
        return f'<div class="scroll" tabindex="0"><table>{head}<tbody>\n{rows}</tbody></table></div>'

    first, rest = texts.examples[: texts.shown], texts.examples[texts.shown :]
    more = f"<details><summary>The other {len(rest)}</summary>{table(rest)}</details>" if rest else ""
    caption = f'<p class="caption">{escape(texts.caption)}</p>' if texts.caption else ""
    summary = f'<ul class="tally"><li><b>{len(texts.examples)}</b> texts</li>{tally}</ul>'
    return f'<div class="table texts">{caption}{summary}{table(first)}{more}</div>'


def _verdict(right: bool) -> str:
    return '<span class="right">✓ right</span>' if right else '<span class="wrong">✗ wrong</span>'


def _answer(text: str, right: bool) -> str:
    kind, sign, name = ("right", "✓", "right") if right else ("wrong", "✗", "wrong")
    shown = escape(text) if text.strip() else "<i>(empty)</i>"
    return f'<td class="{kind}"><span class="sign" role="img" aria-label="{name}">{sign}</span> {shown}</td>'


def _provenance(provenance: Provenance) -> str:
    packages = "".join(f"<li>{escape(name)} {escape(version)}</li>" for name, version in provenance.versions.items())
    settings = escape(json.dumps(dict(provenance.settings), indent=2, ensure_ascii=False, default=str))
    return (
        f"<h2>Provenance</h2><p>Made {escape(provenance.date)} by</p>"
        f'<pre class="command">{escape(provenance.command)}</pre>'
        f'<ul class="versions">{packages}</ul>'
        f"<details><summary>Settings</summary><pre>{settings}</pre></details>"
    )


_START = """
for (const source of document.querySelectorAll('script[data-figure]')) {
  const spec = JSON.parse(source.textContent);
  Plotly.newPlot(source.dataset.figure, spec.data, {...spec.layout, autosize: true}, {
    responsive: true, displaylogo: false, modeBarButtons: [['toImage', 'resetScale2d']],
    toImageButtonOptions: {format: 'svg', filename: source.dataset.figure},
  });
}
"""

_CSS = """
:root { --ink: #1f2328; --soft: #57606a; --line: #d8dee4; --wash: #f6f8fa; --accent: #0a5a96; }
* { box-sizing: border-box; }
html { scroll-padding-top: 1rem; -webkit-text-size-adjust: 100%; }
body { margin: 0 auto; padding: 1.5rem clamp(1rem, 3vw, 2.5rem) 3rem; max-width: 76rem; background: #fff;
  color: var(--ink); font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Helvetica, Arial, sans-serif; }
h1 { font-size: clamp(1.5rem, 4vw, 2rem); line-height: 1.2; margin: .5rem 0 .75rem; text-wrap: balance; }
h2 { font-size: 1.3rem; line-height: 1.3; margin: 0 0 .5rem; }
p { margin: .5rem 0; max-width: 46rem; }
a { color: var(--accent); }
header { border-bottom: 1px solid var(--line); padding-bottom: 1.25rem; }
.verdict { font-size: 1.2rem; line-height: 1.45; margin: 0 0 1rem; padding-left: .9rem;
  border-left: 4px solid var(--accent); }
.facts { margin: 0 0 1rem; }
.facts div { display: grid; grid-template-columns: 7.5rem 1fr; gap: .75rem; padding: .2rem 0; }
.facts dt { color: var(--soft); } .facts dd { margin: 0; overflow-wrap: anywhere; }
.head { display: inline-block; font: .85em/1.5 ui-monospace, Menlo, Consolas, monospace; background: #e7f0f8;
  border-radius: 4px; padding: 0 .4em; margin: 0 .1em .15em 0; }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(11rem, 1fr)); gap: .75rem; margin: 1rem 0; }
.card { border: 1px solid var(--line); border-radius: 8px; padding: .7rem .9rem; break-inside: avoid; }
.card .label { color: var(--soft); font-size: .85rem; line-height: 1.35; }
.card .value { font-size: 1.75rem; font-weight: 600; line-height: 1.3; font-variant-numeric: tabular-nums; }
.card .interval { font-size: .95rem; font-variant-numeric: tabular-nums; }
.card .note { color: var(--soft); font-size: .85rem; line-height: 1.35; }
nav { margin: 1.25rem 0; } nav h2 { font-size: .95rem; color: var(--soft); margin: 0; }
nav ol { margin: .25rem 0; padding-left: 1.4rem; columns: 2; font-size: .95rem; }
section { margin: 2.5rem 0 0; }
.side { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(30rem, 100%), 1fr)); gap: 0 1.5rem; }
.side figure { min-width: 0; }
figure { margin: 1.25rem 0; break-inside: avoid; } .figure { width: 100%; }
figcaption, .caption { color: var(--soft); font-size: .9rem; line-height: 1.45; max-width: 46rem; margin: .25rem 0; }
.table { margin: 1.25rem 0; } .scroll { overflow: auto; border-block: 2px solid var(--ink); }
.scroll.long { max-height: 32rem; }
table { border-collapse: collapse; width: 100%; font-size: .9rem; font-variant-numeric: tabular-nums; }
th, td { text-align: left; vertical-align: top; padding: .35rem .7rem; border-bottom: 1px solid var(--line); }
th { position: sticky; top: 0; background: #fff; white-space: nowrap; box-shadow: inset 0 -1px var(--ink); }
td.number, th.number { text-align: right; } td.number { white-space: nowrap; }
tbody tr:last-child td { border-bottom: 0; }
.texts table { table-layout: fixed; min-width: 40rem; } .texts td { overflow-wrap: anywhere; white-space: pre-line; }
.texts th:nth-child(2) { width: 18%; } .texts th:nth-child(n+3) { width: 26%; }
td.right { background: #e6f4ef; } td.wrong { background: #fcece3; }
.right .sign, span.right { color: #00674f; font-weight: 600; }
.wrong .sign, span.wrong { color: #a63c06; font-weight: 600; }
.tally { list-style: none; display: flex; flex-wrap: wrap; gap: .3rem 1.5rem; padding: 0; margin: .5rem 0;
  font-size: .9rem; }
details { margin: .5rem 0; } details.facts { margin: .75rem 0 0; } summary { cursor: pointer; color: var(--accent); }
footer { margin-top: 3rem; padding-top: 1rem; border-top: 1px solid var(--line); color: var(--soft);
  font-size: .85rem; }
footer h2 { font-size: 1rem; color: var(--ink); }
pre { background: var(--wash); padding: .6rem .8rem; border-radius: 6px; overflow: auto; white-space: pre-wrap;
  overflow-wrap: anywhere; margin: .4rem 0; }
.versions { list-style: none; display: flex; flex-wrap: wrap; gap: .2rem 1.25rem; padding: 0; margin: .5rem 0; }
@media (max-width: 40rem) { nav ol { columns: 1; } .facts div { grid-template-columns: 1fr; gap: 0; } }
@media print {
  body { max-width: none; padding: 0; font-size: 10.5pt; } nav { display: none; } h2 { break-after: avoid; }
  .scroll, .scroll.long { max-height: none; overflow: visible; } th { position: static; } tr { break-inside: avoid; }
  .figure { zoom: .72; } .modebar-container { display: none; } * { print-color-adjust: exact; }
}
"""
