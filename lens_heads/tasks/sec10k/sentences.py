"""Splits filings into sentences, despite abbreviations, headings and the lines of tables."""

from __future__ import annotations

import re
from functools import lru_cache

from lens_heads.tasks.sec10k.settings import settings

Span = tuple[int, int]
"""A half-open range of characters."""

_STOP = re.compile(r"[.!?][\"”’')\]]*(?=\s)|\n")
_BEFORE_WORD = re.compile(r"[^\w.&'’-]")
_INITIAL = re.compile(r"(?:[A-Z]\.)*[A-Z]")
_WORD = re.compile(r"\S+")
_BULLET = re.compile(r"o\s+(?=[A-Z])")
_LEAD = re.compile(rf"[\s•·*–—-]*(?:{_BULLET.pattern})?")


@lru_cache(maxsize=4096)
def sentences(text: str) -> tuple[Span, ...]:
    """The spans of the sentences of a text, in order, without the white space and bullets between them.

    Punctuation (. ! ?) ends a sentence unless it belongs to an abbreviation, an initial or a number. "Inc.", "U.S." and the like
    end one only before a word that usually begins a sentence. A line break also ends one (a paragraph of EDGAR's text is
    one line), except before a lower-case letter or after a comma. A heading run into its sentence ("EMPLOYEES As of ...")
    is split off and counts as a sentence of its own, as do headings and lines of tables.
    """
    found: list[Span] = []
    start = 0
    for end in [*(stop.end() for stop in _STOP.finditer(text) if _ends(text, stop)), len(text)]:
        start = _skip(text, start, end)
        stripped = start + len(text[start:end].rstrip())
        heading = _glued().match(text, start, stripped)
        cut = start + len(heading[0].rstrip()) if heading else start
        found += [span for span in ((start, cut), (_skip(text, cut, stripped), stripped)) if span[0] < span[1]]
        start = end
    return tuple(found)


def _ends(text: str, stop: re.Match[str]) -> bool:
    after = text[stop.end() : stop.end() + 40].lstrip()
    if stop[0] == "\n":
        wrapped = after[:1].islower() and not _BULLET.match(after)
        return not (wrapped or text[max(0, stop.start() - 3) : stop.start()].rstrip(" ").endswith(","))
    if after[:1].islower():
        return False
    word = _BEFORE_WORD.split(text[max(0, stop.start() - 20) : stop.start()])[-1]
    if stop[0] != "." or not word:
        return True
    if word in settings()["abbreviations"]:
        return False
    if word in settings()["closing_abbreviations"] or _INITIAL.fullmatch(word):
        return bool(_starter().match(after))
    return True


def _skip(text: str, start: int, end: int) -> int:
    lead = _LEAD.match(text, start, end)
    return lead.end() if lead else start


@lru_cache(maxsize=1)
def _starter() -> re.Pattern[str]:
    return re.compile(rf"[\"“'(]*(?:{'|'.join(settings()['starters'])})\b")


@lru_cache(maxsize=1)
def _glued() -> re.Pattern[str]:
    """Matches words in capitals, or usual section names, before a word that begins a sentence."""
    titles = "|".join(settings()["headings"])
    capitals = r"[A-Z0-9][A-Z0-9&'’/().,-]*"
    starters = "|".join(settings()["starters"])
    return re.compile(
        rf"(?:(?:{capitals}\s+)*[A-Z][A-Z'’-]{{3,}}[.:]?(?:\s+{capitals})*|(?:{titles})\b[.:]?)[\s.:–—-]+"
        rf"(?=(?:{starters})\s)"
    )


def words(text: str) -> list[Span]:
    """The spans of the words of a text, separated by white space."""
    return [found.span() for found in _WORD.finditer(text)]
