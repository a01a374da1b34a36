"""Finds the sentence of a filing that states a fact, as opposed to merely mentioning the value; counts those that do."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lens_heads.tasks.sampling import check_known
from lens_heads.tasks.sec10k.filings import Filing
from lens_heads.tasks.sec10k.patterns import stating
from lens_heads.tasks.sec10k.settings import settings
from lens_heads.tasks.sec10k.values import number

if TYPE_CHECKING:
    import pandas as pd

UNKNOWN = "value unknown"
SEVERAL = "several values in the text"
NOT_STATED = "no sentence states it"


@dataclass(frozen=True)
class Statement:
    """The sentence that states a task's value, at characters `start` to `end` of a section.

    `value` is the fact, `value_text` its spelling in the sentence. `extracted` means that the value was read from the text
    rather than given. `others` locates every other sentence that states it: (section, start, end).
    """

    section: str
    start: int
    end: int
    text: str
    value: str
    value_text: str
    extracted: bool
    others: tuple[tuple[str, int, int], ...]

    @property
    def only(self) -> bool:
        """Whether no other sentence of the filing states the value."""
        return not self.others


def find_statement(filing: Filing, task: str, extract: bool = True) -> Statement | str:
    """The sentence that states the value of a task, or the reason why there is none.

    `data/sec10k.json` defines, per task, the patterns in order of preference, the usual sections, and what a sentence must
    not contain. An unknown value is extracted if `extract` is set and the text is unambiguous. ValueError for an unknown
    task.
    """
    check_known("task", task, settings()["tasks"])
    known = filing.facts.get(task)
    values = {known} if known is not None else _extracted(filing, task) if extract else set()
    if len(values) != 1:
        return SEVERAL if values else UNKNOWN
    (value,) = values
    found = stating(filing, task, value)
    if not found:
        return NOT_STATED
    best = found[0]
    return Statement(
        section=best.section,
        start=best.start,
        end=best.end,
        text=filing.sections[best.section][best.start : best.end],
        value=value,
        value_text=best.value_text,
        extracted=task not in filing.facts,
        others=tuple((other.section, other.start, other.end) for other in found[1:]),
    )


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


def _extracted(filing: Filing, task: str) -> set[str]:
    """The values that the filing's usual sections state for a task: never ground truth.

    Only the sentences that match the best pattern count. Names and states are excluded: a report contains too many of both.
    """
    kind = settings()["tasks"][task]["kind"]
    found = stating(filing, task) if kind not in ("name", "state") else []
    best = [each.value_text for each in found if each.rank == found[0].rank]
    return {number(value) if kind == "number" else value for value in best}
