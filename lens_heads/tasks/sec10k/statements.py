"""Finds the sentence of a filing that states a fact, as opposed to merely mentioning the value; counts those that do.

The patterns are in `data/sec10k.json`: regular expressions in which a space matches any white space and names in braces
expand to regular expressions: {value} matches the value in any spelling, or any value of its kind; {self} matches the
company ("we", "the Company", its name or the beginning of it). Patterns ignore case, except inside {value}.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple

from lens_heads.tasks.sampling import check_known
from lens_heads.tasks.sec10k.filings import Filing
from lens_heads.tasks.sec10k.sentences import Span, sentences, words
from lens_heads.tasks.sec10k.settings import settings
from lens_heads.tasks.sec10k.values import abbreviated, anything, core_name, number, written

if TYPE_CHECKING:
    import pandas as pd

UNKNOWN = "value unknown"
SEVERAL = "several values in the text"
NOT_STATED = "no sentence states it"
LONGEST = 120
"""Maximum words of a sentence; anything longer is a table or list whose lines were joined."""


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
        counts = {
            "filings": len(filings),
            "known": sum(task in filing.facts for filing in filings),
            "stated": len(stated),
            "extracted": sum(each.extracted for each in stated),
            "only": sum(each.only for each in stated),
        }
        reasons = {reason: found.count(reason) for reason in (UNKNOWN, SEVERAL, NOT_STATED)}
        rows.append({"task": task, **counts, **reasons})
    return pd.DataFrame(rows)


def _extracted(filing: Filing, task: str) -> set[str]:
    """The values that the filing's usual sections state for a task: never ground truth.

    Only the sentences that match the best pattern count. Names and states are excluded: a report contains too many of both.
    """
    kind = settings()["tasks"][task]["kind"]
    found = stating(filing, task) if kind not in ("name", "state") else []
    best = [each.value_text for each in found if each.rank == found[0].rank]
    return {number(value) if kind == "number" else value for value in best}


class Stating(NamedTuple):
    """A sentence that states a value: the rank of its pattern (0 is best), its location, the value as spelled there."""

    rank: int
    section: str
    start: int
    end: int
    value_text: str


def stating(filing: Filing, task: str, value: str | None = None) -> list[Stating]:
    """All sentences that state the task's value (or any value), best first: by form, pattern, section and position.

    The task's usual sections come before the others; without a `value`, only the usual ones are searched.
    """
    known = settings()["tasks"][task]
    usual = [name for name in known["sections"] if name in filing.sections]
    others = [name for name in filing.sections if name not in usual] if value is not None else []
    wanted = anything(known["kind"]) if value is None else written(known["kind"], value)
    cue = re.compile(wanted if value is not None else known["cue"])
    company, refused = names(filing), _compiled("|".join(known.get("refused", ["(?!)"])))
    found: list[tuple[bool, int, int, int, Stating]] = []
    for order, section in enumerate([*usual, *others]):
        text = filing.sections[section]
        for start, end in holding(text, cue):
            sentence = text[start:end]
            if len(words(sentence)) > LONGEST or refused.search(sentence):
                continue
            matches = (_compiled(pattern, wanted, company).search(sentence) for pattern in known["patterns"])
            rank, stated = next(((rank, match) for rank, match in enumerate(matches) if match), (0, None))
            if stated:
                each = Stating(rank, section, start, end, stated["value"])
                found.append((abbreviated(known["kind"], value, each.value_text), rank, order, start, each))
    return [each for *_, each in sorted(found)]


def holding(text: str, cue: re.Pattern[str]) -> Iterator[Span]:
    """The sentences of a text that overlap a match of the pattern."""
    spans = sentences(text)
    last = -1
    for found in cue.finditer(text):
        first = max(bisect_right(spans, found.start(), key=itemgetter(0)) - 1, last + 1)
        for at in range(first, bisect_right(spans, found.end() - 1, key=itemgetter(0))):
            if spans[at][1] > found.start():
                yield spans[at]
            last = at


def names(filing: Filing) -> tuple[str, ...]:
    """Possible names of the company in its filing, longest first: the name without legal form, down to its first word.

    The first word alone counts only if the filing never writes it in lower case: "Nuance", but not "First" or "Union".
    """
    tokens = core_name(filing.company).split()
    known = [" ".join(tokens[:many]) for many in range(len(tokens), min(len(tokens), 2) - 1, -1) if many]
    if len(tokens) > 1 and len(tokens[0]) > 2:
        small = re.compile(rf"(?<![\w.@/]){re.escape(tokens[0].lower())}(?![\w.])")
        if not any(small.search(text) for text in filing.sections.values()):
            known.append(tokens[0])
    return tuple(known)


@lru_cache(maxsize=256)
def _compiled(pattern: str, value: str = "", company: tuple[str, ...] = ()) -> re.Pattern[str]:
    """A pattern of the settings for a value and the names of a company: compiled where it is first needed, which takes long."""
    fills = dict(settings()["macros"], value=f"(?P<value>(?-i:{value}))")
    called = [written("name", name) for name in company]
    fills["self"] = f"(?:{'|'.join([fills['self'], *called])})(?:'s|’s|'|’)?"
    for _ in range(3):  # Macros may contain macros.
        pattern = re.sub(r"\{([a-z]+)\}", lambda found: fills[found[1]], pattern)
    return re.compile(pattern.replace(" ?", r"\s*").replace(" ", r"\s+"), re.IGNORECASE)
