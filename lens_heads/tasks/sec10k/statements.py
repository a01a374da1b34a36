"""Finds the sentence of a filing that states a fact, as opposed to merely mentioning the value."""

from __future__ import annotations

from dataclasses import dataclass

from lens_heads.tasks.sampling import check_known
from lens_heads.tasks.sec10k.extract import SEVERAL, UNKNOWN, extracted
from lens_heads.tasks.sec10k.filings import Filing
from lens_heads.tasks.sec10k.patterns import stating
from lens_heads.tasks.sec10k.settings import settings

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
    value = filing.facts.get(task)
    if value is None and extract:
        try:
            value = extracted(filing, task)
        except LookupError:
            return SEVERAL
    if value is None:
        return UNKNOWN
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
