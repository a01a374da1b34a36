"""Finds sentences that state a value, using the patterns of `data/sec10k.json`.

A pattern is a regular expression in which a space matches any white space and names in braces expand to regular
expressions: {value} matches the value in any spelling, or any value of its kind; {self} matches the company ("we", "the
Company", its name or the beginning of it). Patterns ignore case, except inside {value}.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from functools import lru_cache
from operator import itemgetter
from typing import NamedTuple

from lens_heads.tasks.sec10k.filings import Filing
from lens_heads.tasks.sec10k.sentences import Span, sentences, words
from lens_heads.tasks.sec10k.settings import settings
from lens_heads.tasks.sec10k.values import abbreviated, anything, core_name, written

LONGEST = 120
"""Maximum words of a sentence; anything longer is a table or list whose lines were joined."""


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
    patterns, refused = _patterns(task, wanted, names(filing)), _refused(task)
    found = [
        (abbreviated(known["kind"], value, stated.value_text), stated.rank, order, stated.start, stated)
        for order, section in enumerate([*usual, *others])
        for stated in _in_section(filing.sections[section], section, cue, patterns, refused)
    ]
    return [each[-1] for each in sorted(found)]


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


def _in_section(
    text: str, section: str, cue: re.Pattern[str], patterns: list[re.Pattern[str]], refused: re.Pattern[str] | None
) -> Iterator[Stating]:
    for start, end in holding(text, cue):
        sentence = text[start:end]
        if len(words(sentence)) > LONGEST or (refused and refused.search(sentence)):
            continue
        for rank, pattern in enumerate(patterns):
            stated = pattern.search(sentence)
            if stated:
                yield Stating(rank, section, start, end, stated["value"])
                break


@lru_cache(maxsize=256)
def _patterns(task: str, value: str, company: tuple[str, ...]) -> list[re.Pattern[str]]:
    called = [written("name", name) for name in company]
    fills = dict(settings()["macros"], value=f"(?P<value>(?-i:{value}))")
    fills["self"] = f"(?:{'|'.join([fills['self'], *called])})(?:'s|’s|'|’)?"
    return [_pattern(pattern, fills) for pattern in settings()["tasks"][task]["patterns"]]


def _refused(task: str) -> re.Pattern[str] | None:
    refused = settings()["tasks"][task].get("refused")
    return _pattern("|".join(refused), settings()["macros"]) if refused else None


def _pattern(pattern: str, fills: dict[str, str]) -> re.Pattern[str]:
    for _ in range(3):  # Macros may contain macros.
        pattern = re.sub(r"\{([a-z]+)\}", lambda found: fills[found[1]], pattern)
    return re.compile(pattern.replace(" ?", r"\s*").replace(" ", r"\s+"), re.IGNORECASE)
