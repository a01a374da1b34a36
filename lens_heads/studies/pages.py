"""Parts that the pages of all studies share: the table of claims, their count in words, and the rows of bar charts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pandas as pd

from lens_heads import report
from lens_heads.studies.claims import DOES_NOT, HOLDS, UNTOLD


def claims_table(claims: pd.DataFrame, caption: str = "", more: Sequence[str] = ()) -> report.Table:
    """The verdict on each claim, with the interval that decided it. `more` names further columns."""
    columns = ["claim", "verdict", "paper", "found", "value", "low", "high", "holds_if", *more]
    names = {"value": "judged by", "holds_if": "holds if", "measured_on": "measured on"}
    return report.Table(claims[columns].rename(columns=names), caption, 2, intervals={"judged by": ("low", "high")})


def counted(claims: pd.DataFrame) -> str:
    """How many claims got each verdict: "8 claims: 3 hold, 1 does not hold, 4 cannot be told"."""
    plural = {HOLDS: "hold", DOES_NOT: "do not hold", UNTOLD: UNTOLD}
    counts = {verdict: int((claims["verdict"] == verdict).sum()) for verdict in plural}
    shown = ", ".join(f"{n} {verdict if n == 1 else plural[verdict]}" for verdict, n in counts.items())
    return f"{len(claims)} claims: {shown}"


def bars(frame: pd.DataFrame, groups: Iterable[object], names: Iterable[object] | str, value: str) -> pd.DataFrame:
    """A table as `plots.drop_bars` takes it.

    The interval of `value` is in the columns `<value>_low` and `<value>_high`, or in low and high.
    """
    low, high = (end if f"{value}_{end}" not in frame else f"{value}_{end}" for end in ("low", "high"))
    ends = {"value": frame[value].to_numpy(), "low": frame[low].to_numpy(), "high": frame[high].to_numpy()}
    return pd.DataFrame({"group": list(groups), "name": names if isinstance(names, str) else list(names), **ends})
