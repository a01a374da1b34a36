"""Comparing texts: whether and where a text holds an answer. Gate, judges and answer steps all ask `find`."""

from __future__ import annotations

import re
import string
import unicodedata
from collections.abc import Iterator
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

from lens_heads.trials.characters import characters, compared, separates, signs

_SCRIPTS = {
    "unspaced": r"[\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff\u3005-\u3007\u3040-\u309f\u3400-\u9fff\uf900-\ufaff]"
    r"|[\U00020000-\U0003ffff]",  # Thai, Lao, Tibetan, Burmese, Khmer; Hiragana, Chinese characters
    "katakana": r"[\u30a0-\u30ff]",
    "korean": r"[\u1100-\u11ff\u3130-\u318f\uac00-\ud7af]",
    "arabic": r"[\u0600-\u06ff\u0750-\u077f\ufb50-\ufdff\ufe70-\ufeff]",
    "hebrew": r"[\u0590-\u05ff]",
}
_SCRIPT = re.compile("|".join(f"(?P<{name}>{pattern})" for name, pattern in _SCRIPTS.items()))
_BEFORE = {"arabic": re.compile("[وف]?[بكلس]?(?:ال)?"), "hebrew": re.compile("[ושהבכלמ]{1,3}")}
"""What is written together with the word that follows it: and, in, for, the, .."""

_ARTICLES = ("a", "an", "the")
_NONE, _SOFT, _HARD = 0, 1, 2
SHORT = 300
"""Characters of a text that is kept among many."""


class _Part(NamedTuple):
    """A character of a word, its range in the text, what stands before it, and its script.

    `gap`: _NONE inside a word, _SOFT after one hyphen, apostrophe or point (e-mail, Oslo's, U.S.), else _HARD.
    """

    char: str
    start: int
    end: int
    gap: int
    script: str


def normalize(text: str) -> str:
    """SQuAD's normalization (`squad`), but numbers keep their sign and decimal point, and C++, C# and A+ theirs.

    Unlike SQuAD's, it knows letters, digits and punctuation of every script (see `trials.characters`).
    """
    plain = compared(text)
    kept = signs(plain)
    shown = (
        char if at in kept or not separates(char) else "" if char in string.punctuation else " "
        for at, char in enumerate(plain)
    )
    return _without_articles("".join(shown))


def squad(text: str) -> str:
    """SQuAD's normalization (Rajpurkar et al., arXiv 1606.05250): lower case, no punctuation, articles, extra space."""
    return _without_articles("".join(char for char in text.lower() if char not in string.punctuation))


def rouge_words(text: str) -> str:
    """The words that the rouge-score package reads, before stemming: runs of a-z and 0-9 in lower case."""
    return " ".join(re.findall(r"[a-z0-9]+", text.lower()))


def _without_articles(text: str) -> str:
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", text).split())


def find(text: str, gold: str, start: int = 0, articles: bool = False) -> tuple[int, int] | None:
    """Where a text, from character `start` on, first holds the answer as whole words; None if it does not.

    Compared are letters in composed form without case, digits of any script, signs and decimals ("5" is not in "-5", "C" not
    in "C++", but "5" is in "$5" and "5%", and "30" in "12:30"); not punctuation ("U.S." is "US", "e-mail" is "email"),
    `articles`, and separators of thousands. A word ends at whatever is no letter, mark or digit of its script. In scripts
    without spaces between words (Chinese, Japanese, Thai, ..) it may end anywhere, so that "京都" is in "東京都"; Korean words
    may have endings; Arabic and Hebrew words of three letters or more may have "and", "in" or "the" before them. Other
    inflection is not known: "Киев" is not in "Киеве".

    Returns the half-open range of characters of `text`. An answer of punctuation alone is nowhere; one of articles alone (the
    choice "A") must be written as it is, or every "a" would count.
    """
    alone = not articles and not _parts(gold)
    parts, wanted = _parts(text, articles or alone), _parts(gold, articles or alone)
    for word, before in _spellings(wanted):
        for at in _positions("".join(part.char for part in parts), "".join(part.char for part in word)):
            inside = range(1, len(word))
            if (
                parts[at].start >= start
                and all(_same_gap(parts[at + i - 1 : at + i + 1], word[i - 1 : i + 1]) for i in inside)
                and _begins(parts, at, before)
                and _ends(parts, at + len(word))
            ):
                found = parts[at].start, parts[at + len(word) - 1].end
                if not alone or text[slice(*found)] in gold:
                    return found
    return None


def contains(text: str, gold: str) -> float:
    """1 if the text contains the answer as consecutive whole words (`find`), else 0."""
    return float(find(text, gold) is not None)


def occurrences(text: str, gold: str) -> int:
    """How often a text holds the answer (`find`)."""
    count, found = 0, find(text, gold)
    while found is not None:
        count, found = count + 1, find(text, gold, found[1])
    return count


def words(text: str) -> list[str]:
    """The words of a text as they are compared, articles too: split at punctuation and where the script changes.

    A run of a script without spaces between words is one word.
    """
    found: list[str] = []
    before: _Part | None = None
    for part in _parts(text, articles=True):
        if before is None or part.gap or part.script != before.script:
            found.append("")
        found[-1] += part.char
        before = part
    return found


def _parts(text: str, articles: bool = False) -> tuple[_Part, ...]:
    """The characters of a text's words; without articles that stand alone unless asked for."""
    return (_short_parts if len(text) < SHORT else _long_parts)(text, articles)


def _read(text: str, articles: bool) -> tuple[_Part, ...]:
    found = characters(text)
    plain = "".join(one.char for one in found)
    kept = signs(plain)
    is_word = [at in kept or not separates(char) for at, char in enumerate(plain)]
    parts: list[_Part] = []
    last = -1
    for at, one in enumerate(found):
        if is_word[at]:
            parts.append(_Part(*one, _gap(plain, last, at), _script(one.char)))
            last = at
    return tuple(parts if articles else _no_articles(parts))


# Answers and needles are asked for again and again, and must not displace the passage, of which few are held: they may be books.
_short_parts, _long_parts = lru_cache(maxsize=512)(_read), lru_cache(maxsize=4)(_read)


def _gap(plain: str, last: int, at: int) -> int:
    if last < 0 or at - last > 2:
        return _HARD
    if at - last == 1:
        return _NONE
    joined = plain[last + 1] in "-'." and not (plain[last].isdigit() and plain[at].isdigit())
    return _SOFT if joined else _HARD


@lru_cache(maxsize=4096)
def _script(char: str) -> str:
    found = _SCRIPT.match(char)
    if found is None:
        return "symbol" if unicodedata.category(char) == "So" else ""
    return str(found.lastgroup)


def _no_articles(parts: list[_Part]) -> Iterator[_Part]:
    """The parts without the words a, an and the; what follows one begins a word."""
    begins = [*(i for i, part in enumerate(parts) if part.gap == _HARD), len(parts)]
    for start, end in pairwise(begins):
        if "".join(part.char for part in parts[start:end]) not in _ARTICLES:
            yield from parts[start:end]


def _spellings(wanted: tuple[_Part, ...]) -> Iterator[tuple[tuple[_Part, ...], bool]]:
    """The answer, and as Arabic writes it after "for": "القاهرة" becomes "للقاهرة". With: may other words stand before it?"""
    if not wanted:
        return
    long = len(wanted) >= 3
    yield wanted, long
    if long and "".join(part.char for part in wanted[:2]) == "ال":
        yield (wanted[0]._replace(char="ل"), *wanted[1:]), True


def _positions(text: str, gold: str) -> Iterator[int]:
    at = text.find(gold)
    while at >= 0:
        yield at
        at = text.find(gold, at + 1)


def _same_gap(mine: tuple[_Part, ...], wanted: tuple[_Part, ...]) -> bool:
    """Whether what stands between two characters is the same: no matter within and between scripts that need no space."""
    gaps = {mine[1].gap, wanted[1].gap}
    if len(gaps) == 1 or _free(mine):
        return True
    return _SOFT in gaps


def _free(pair: tuple[_Part, ...]) -> bool:
    """Whether a word may end between two characters that nothing separates."""
    scripts = {part.script for part in pair}
    if unicodedata.category(pair[1].char)[0] == "M":
        return False
    return len(scripts) > 1 or scripts == {"unspaced"}


def _begins(parts: tuple[_Part, ...], at: int, before: bool) -> bool:
    if at == 0 or parts[at].gap or _free(parts[at - 1 : at + 1]):
        return True
    script = parts[at].script
    if not before or script not in _BEFORE:
        return False
    start = at
    while start and not parts[start].gap and parts[start - 1].script == script:
        start -= 1
    return _BEFORE[script].fullmatch("".join(part.char for part in parts[start:at])) is not None


def _ends(parts: tuple[_Part, ...], end: int) -> bool:
    if end == len(parts) or parts[end].gap or _free(parts[end - 1 : end + 1]):
        return True
    return parts[end].script == parts[end - 1].script == "korean"
