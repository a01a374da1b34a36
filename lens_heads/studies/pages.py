"""Parts that the pages of all studies share: sections, tables with intervals, the claims, and the rows of bar charts."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import pandas as pd

from lens_heads import report
from lens_heads.studies.claims import DOES_NOT, HOLDS, UNTOLD

folded = partial(report.Section, folded=True)
"""A section whose tables and texts stay closed until the reader opens them."""


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
