"""Counts how many filings state each fact, and why the others are excluded."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from lens_heads.tasks.sec10k.extract import SEVERAL, UNKNOWN
from lens_heads.tasks.sec10k.filings import Filing
from lens_heads.tasks.sec10k.settings import settings
from lens_heads.tasks.sec10k.statements import NOT_STATED, Statement, find_statement

if TYPE_CHECKING:
    import pandas as pd


def survey(filings: Iterable[Filing], extract: bool = True) -> pd.DataFrame:
    """One row per task; all columns but `task` count filings.

    `known`: the true value is given; `stated`: a sentence states it (or an `extracted` value); `only`: exactly one
    sentence does. `filings` = `stated` + the last three columns, the reasons for excluding a filing.
    """
    import pandas as pd

    filings = list(filings)
    rows = []
    for task in settings()["tasks"]:
        found = [find_statement(filing, task, extract) for filing in filings]
        stated = [each for each in found if isinstance(each, Statement)]
        rows.append(
            {
                "task": task,
                "filings": len(filings),
                "known": sum(task in filing.facts for filing in filings),
                "stated": len(stated),
                "extracted": sum(each.extracted for each in stated),
                "only": sum(each.only for each in stated),
            }
            | {reason: found.count(reason) for reason in (UNKNOWN, SEVERAL, NOT_STATED)}
        )
    return pd.DataFrame(rows)
