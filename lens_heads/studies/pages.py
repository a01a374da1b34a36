"""The page of a study: its texts and the order of its parts are `page.json` beside it, filled with what was found.

A section names its tables and figures; those that a finding does not have are left out, and with `needs` or `lacks` the whole
section. Words in braces are filled as by `str.format`. A table shows the rows `where` a condition holds, as `DataFrame.query`
takes it, and the `columns` listed, or all but those `without`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from lens_heads import report
from lens_heads.evidence.verdicts import DOES_NOT, HOLDS, UNTOLD
from lens_heads.studies.presets import beside


@dataclass(frozen=True, eq=False)
class Shown:
    """What a page shows of all models, of one, or of two: words for its texts; tables, figures and texts by name.

    A table is a frame or a `report.Table`; where a name stands for several tables or figures, they are a list. `heads`, `verdict`
    and `first`, its figures, are for the summary of the page.
    """

    words: Mapping[str, Any]
    tables: Mapping[str, Any] = field(default_factory=dict)
    figures: Mapping[str, Any] = field(default_factory=dict)
    texts: Mapping[str, report.Texts] = field(default_factory=dict)
    heads: Sequence[str] = ()
    verdict: str = ""
    first: Sequence[Any] = ()


def page(module: str, whole: Shown, parts: Iterable[tuple[str, Shown]]) -> report.Page:
    """The page next to a module: the summary and "first" of the whole, then for each part the sections of that name."""
    made = beside(module, "page.json")
    facts = {name: _filled(text, whole) for name, text in made["facts"].items()}
    summary = report.Summary(
        model=whole.words["models"],
        trials=_filled(made["trials"], whole),
        heads=whole.heads,
        verdict=whole.verdict,
        figures=whole.first,
        facts={name: text for name, text in facts.items() if text},
    )
    sections = [_section(one, shown) for name, shown in [("first", whole), *parts] for one in made[name]]
    return report.Page(made["title"], summary, [one for one in sections if one is not None])


def _filled(text: str | Sequence[str], shown: Shown) -> str:
    """A text, or the lines of a long one."""
    return (text if isinstance(text, str) else " ".join(text)).format_map(shown.words)


def _section(one: Mapping[str, Any], shown: Shown) -> report.Section | None:
    known = {*shown.words, *shown.tables}
    if ("needs" in one and one["needs"] not in known) or one.get("lacks") in known:
        return None
    figures, tables = [], []
    for name, *caption in one.get("figures", ()):
        found = shown.figures.get(name, ())
        for each in found if isinstance(found, list | tuple) else [found]:
            figures.append(each if isinstance(each, report.Figure) else report.Figure(each, _filled(caption, shown)))
    for of in one.get("tables", ()):
        found = shown.tables.get(of["of"], ())
        for each in found if isinstance(found, list | tuple) else [found]:
            more = {name: of[name] for name in ("digits", "formats") if name in of}
            if isinstance(each, pd.DataFrame):
                each = each.query(_filled(of["where"], shown)) if "where" in of else each
                if "where" in of and each.empty:
                    continue
                each = each[of["columns"]] if "columns" in of else each.drop(columns=of.get("without", []))
                each = table(each, _filled(of.get("caption", ""), shown), *of.get("intervals", ()), **more)
            tables.append(each)
    return report.Section(
        _filled(one["title"], shown),
        _filled(one.get("text", ""), shown),
        figures=figures,
        tables=tables,
        texts=[shown.texts[name] for name in one.get("texts", ())],
        side_by_side=one.get("side_by_side", False),
        folded=one.get("folded", False),
    )


def ends(frame: pd.DataFrame, value: str) -> tuple[str, str]:
    """The columns with the interval of `value`: `<value>_low` and `<value>_high`, or low and high."""
    return (f"{value}_low", f"{value}_high") if f"{value}_low" in frame else ("low", "high")


def table(frame: pd.DataFrame, caption: str, *values: str, **options: Any) -> report.Table:
    """A table that shows the interval of each of `values` behind it."""
    return report.Table(frame, caption, intervals={value: ends(frame, value) for value in values}, **options)


def claims_table(claims: pd.DataFrame, caption: str = "", more: Sequence[str] = ()) -> report.Table:
    """The verdict on each claim, with the interval that decided it. `more` names further columns."""
    columns = ["claim", "verdict", "paper", "found", "value", "low", "high", "holds_if", *more]
    named = {"value": "judged by", "holds_if": "holds if", "measured_on": "measured on"}
    named |= {"would_tell": "would tell", "sets_would_tell": "random sets that would"}
    intervals = {"judged by": ("low", "high")}
    if "share_low" in claims and "share" in more:
        columns, intervals = [*columns, "share_low", "share_high"], {**intervals, "share": ("share_low", "share_high")}
    return report.Table(claims[columns].rename(columns=named), caption, 2, intervals=intervals)


def counted(claims: pd.DataFrame) -> str:
    """How many claims got each verdict: "8 claims: 3 hold, 1 does not hold, 4 cannot be told"."""
    plural = {HOLDS: "hold", DOES_NOT: "do not hold", UNTOLD: UNTOLD}
    counts = {verdict: int((claims["verdict"] == verdict).sum()) for verdict in plural}
    shown = ", ".join(f"{n} {verdict if n == 1 else plural[verdict]}" for verdict, n in counts.items())
    return f"{len(claims)} claims: {shown}"


def bars(frame: pd.DataFrame, groups: Any, names: Any, value: str) -> pd.DataFrame:
    """A table of `value` and its interval as `plots.drop_bars` takes it."""
    found = frame[[value, *ends(frame, value)]].set_axis(["value", "low", "high"], axis=1)
    return found.assign(group=groups, name=names)
