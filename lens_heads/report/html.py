"""One HTML file that presents a study: it opens from disk, needs no network, and prints.

`page.html` lays out, and escapes all text, because some of it comes from models. The page's content security policy forbids
other scripts and all requests.
"""

from __future__ import annotations

import base64
import hashlib
import itertools
import json
import math
import numbers
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template
from markupsafe import Markup
from plotly.offline import get_plotlyjs

from lens_heads.inspection.explorer import recorded
from lens_heads.report.parts import Figure, Provenance, Section, Summary, Table, Texts
from lens_heads.runs.showing import visible
from lens_heads.runs.store import write_atomic
from lens_heads.runs.typed import typed

SHORT = 12
"""A table with more rows than this scrolls in place."""
PROSE = 24
"""A column with a longer text than this wraps."""
FIRST_SCREEN = 620
"""The largest height, in pixels, of a figure of the summary, so that it fits on the first screen."""
HERE = Path(__file__).parent


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
    numbers = itertools.count(1)
    first = _figures(summary.figures, numbers, side_by_side=True, highest=FIRST_SCREEN)
    shown = [_section(section, numbers) for section in sections]
    scripts = []
    if first or any(section["figures"] for section in shown):
        # "</script" would end the element; inside a JavaScript string or JSON the backslash changes nothing.
        scripts = [("", get_plotlyjs().replace("</script", "<\\/script")), ("", _asset("page.js"))]
    style = _asset("page.css")
    if any(section.explorer for section in sections):
        style += recorded.asset("explorer.css")
        scripts.append((' type="module"', recorded.module()))
    hashes = " ".join(f"'sha256-{base64.b64encode(hashlib.sha256(s.encode()).digest()).decode()}'" for _, s in scripts)
    policy = (
        f"default-src 'none'; script-src {hashes or chr(39) + 'none' + chr(39)}; style-src 'unsafe-inline'; "
        "img-src data: blob:; base-uri 'none'; form-action 'none'"
    )
    return _template().render(
        title=title,
        summary=summary,
        first=first,
        sections=shown,
        provenance=provenance,
        settings=json.dumps(dict(provenance.settings), indent=2, ensure_ascii=False, default=str),
        policy=Markup(policy),
        style=Markup(style),
        scripts=[(Markup(kind), Markup(script)) for kind, script in scripts],
    )


@cache
def _template() -> Template:
    made = Environment(
        loader=FileSystemLoader(HERE),
        autoescape=True,
        finalize=lambda value: value if isinstance(value, Markup) else visible(value, keep="\n\t"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    made.globals["SHORT"] = SHORT
    made.tests["missing"] = pd.isna
    made.filters |= {"number": number, "changed": _changed}
    return made.get_template("page.html")


def _asset(name: str) -> str:
    return (HERE / name).read_text(encoding="utf-8")


def number(value: Any, digits: int = 3, form: str | None = None) -> str:
    """Format a value for readers: integers in full, floats to `digits` decimals, missing values as a dash."""
    if pd.api.types.is_scalar(value) and pd.isna(value):
        return "–"
    if isinstance(value, (bool, np.bool_)):
        return "yes" if value else "no"
    if not isinstance(value, numbers.Real):
        return str(value)
    return format(value, form or ("d" if isinstance(value, numbers.Integral) else f".{digits}f"))


def _section(section: Section, numbers: Iterator[int]) -> dict[str, Any]:
    """What the template shows of a section."""
    return {
        "title": section.title,
        "paragraphs": [text.strip() for text in section.text.split("\n\n") if text.strip()],
        "cards": section.cards,
        "figures": _figures(section.figures, numbers, section.side_by_side),
        "explorer": Markup(recorded.element(section.explorer) if section.explorer else ""),
        "tables": [_table(table if isinstance(table, Table) else Table(table)) for table in section.tables],
        "texts": section.texts,
        "folded": section.folded,
    }


def _figures(
    items: Sequence[Figure | go.Figure], numbers: Iterator[int], side_by_side: bool, highest: float = math.inf
) -> list[dict[str, Any]]:
    """What the template shows of figures. The data is inert JSON until the page's one script draws it.

    The page's column decides the width; a figure that stands alone is no wider than it asks for.
    """
    beside, shown = side_by_side and len(items) > 1, []
    for item in items:
        at = next(numbers)
        item = item if isinstance(item, Figure) else Figure(item)
        spec = json.loads(item.figure.to_json() or "{}")
        layout = spec["layout"]
        width, layout["height"] = layout.pop("width", None), min(layout.get("height", 450), highest)
        shown.append(
            {
                "id": f"figure-{at}",
                "label": item.caption or layout.get("title", {}).get("text") or f"Figure {at}",
                "caption": item.caption,
                "style": f"height:{layout['height']}px" + (f";max-width:{width}px" if width and not beside else ""),
                "data": Markup(json.dumps(spec).replace("<", "\\u003c")),
                "beside": beside,
            }
        )
    return shown


def _table(table: Table) -> dict[str, Any]:
    """What the template shows of a table: names and kinds of its columns, and the texts of its rows."""
    frame = table.frame
    hidden = {name for pair in table.intervals.values() for name in pair}
    columns, cells = [], []
    for name in (name for name in frame.columns if name not in hidden):
        cells.append(_column(table, name))
        prose = max(map(len, cells[-1]), default=0) > PROSE
        columns.append((name, "number" if pd.api.types.is_numeric_dtype(frame[name]) else "prose" if prose else ""))
    return {"caption": table.caption, "columns": columns, "rows": list(zip(*cells, strict=True))}


def _column(table: Table, name: Any) -> list[str]:
    """The texts of a column, each with its interval if it has one."""
    digits, form = table.digits, table.formats.get(name)
    sides = table.intervals.get(name, ())
    texts = []
    for value, *bounds in zip(*(table.frame[each] for each in (name, *sides)), strict=True):
        low_and_high = ", ".join(number(bound, digits, form) for bound in bounds)
        texts.append(number(value, digits, form) + (f" [{low_and_high}]" if pd.notna(bounds).any() else ""))
    return texts


def _changed(texts: Texts, before: bool, after: bool) -> int:
    """How many texts were judged so before and after."""
    return sum((example.right_before, example.right_after) == (before, after) for example in texts.examples)
