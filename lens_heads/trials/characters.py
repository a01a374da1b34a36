"""The characters by which texts are compared: composed, without case, digits and signs of every script as ASCII's."""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache
from typing import NamedTuple

_SAME = dict.fromkeys("\u2010\u2011\u2012\u2013\u2212\ufe63", "-") | dict.fromkeys("\u2018\u2019\u02bc", "'")
_SAME |= {"\u066b": ".", "\u066c": ",", "ı": "i"}
"""Hyphens and minus signs, apostrophes, the Arabic decimal and thousands separators; I and İ are both i without case."""

_SILENT = re.compile(
    "[\ufe00-\ufe0f\u0640\u064b-\u0652\u0656-\u065f\u0670\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7]"
)
"""Vowel points and stretching of Arabic and Hebrew, which most texts leave out, and variants of symbols."""

_THOUSANDS = re.compile(
    r"(?<![\d.,])(?:"
    r"[1-9]\d{0,2}(?:,\d{3})+(?![\d,])"  # 1,000
    r"|[1-9]\d?(?:,\d{2})+,\d{3}(?![\d,])"  # 12,34,567
    r"|[1-9]\d{0,2}(?:\.\d{3}){2,}(?![\d.])|[1-9]\d{0,2}(?:\.\d{3})+(?=,\d+(?!\d))"  # 1.000.000 and 1.000,5
    r"|[1-9]\d{0,2}(?:['\u00a0\u2009\u202f]\d{3})+(?!\d)"  # 1'000 and 1 000, with a space that does not break
    r")"
)
_DECIMAL_COMMA = re.compile(r"(?<![\d.,])(?:\d+|[1-9]\d{0,2}(?:\.\d{3})+)(,)\d+(?![\d.,]*\d)")
_SIGNS = (
    re.compile(r"(?<![\w-])-(?=[$€£¥]?\.?\d)"),  # -5, not the hyphen of 1990-95 or well-known
    re.compile(r"(?<=\d)\.(?=\d)|(?<![\w.])\.(?=\d)"),  # 3.5 and .5, not a final stop
    re.compile(r"(?<=[^\W\d_])(?:\++|#)(?!\w)|(?<=[^\W\d_])\+\+"),  # C++, C#, A+, not a+b
    re.compile(r"(?<![\w'.-])(?:[a-z]|ab)(?P<sign>-)(?![\w-])"),  # A- and AB-, not a dash
)


class Character(NamedTuple):
    """A character as it is compared, and the half-open range of the text that it stands for."""

    char: str
    start: int
    end: int


def characters(text: str) -> list[Character]:
    """The characters of a text as they are compared; accents stay, and so do letters that only look alike."""
    if text.isascii():
        found = [Character(char, at, at + 1) for at, char in enumerate(text.lower())]
    else:
        found = [Character(char, *where) for where in _clusters(text) for char in _compared(text[slice(*where)])]
    return _numbers(found)


def compared(text: str) -> str:
    """A text of the characters by which it is compared."""
    return "".join(one.char for one in characters(text))


def signs(text: str) -> set[int]:
    """The indices of characters of a compared text that look like punctuation but belong to a number or name."""
    hits = (hit for pattern in _SIGNS for hit in pattern.finditer(text))
    return {
        at for hit in hits for at in range(hit.start("sign") if "sign" in hit.re.groupindex else hit.start(), hit.end())
    }


@lru_cache(maxsize=4096)
def separates(char: str) -> bool:
    """Whether a character is no part of a word: punctuation, space, currency and control characters."""
    kind = unicodedata.category(char)
    if kind[0] in "LMN":
        return False
    return char.isascii() or kind not in ("So", "Sm") or char in "©®™°"


def _clusters(text: str) -> list[tuple[int, int]]:
    """Ranges of characters with the marks and Korean vowels that they compose with."""
    starts = [
        i
        for i, char in enumerate(text)
        if i == 0 or not (unicodedata.category(char)[0] == "M" or "\u1160" <= char <= "\u11ff")
    ]
    return list(zip(starts, [*starts[1:], len(text)], strict=True))


@lru_cache(maxsize=4096)
def _compared(cluster: str) -> str:
    text = unicodedata.normalize("NFC", cluster)
    text = "".join(unicodedata.normalize("NFKC", c) if "\uff00" <= c <= "\uffef" else c for c in text)
    text = unicodedata.normalize("NFC", unicodedata.normalize("NFC", text.casefold()).replace("i\u0307", "i"))
    text = _SILENT.sub("", text)
    return "".join(_same(char) for char in text if unicodedata.category(char) != "Cf")


def _same(char: str) -> str:
    digit = unicodedata.digit(char, None) if "\u2080" <= char <= "\u2089" else unicodedata.decimal(char, None)
    return _SAME.get(char, char) if digit is None else str(digit)


def _numbers(found: list[Character]) -> list[Character]:
    """Without separators of thousands, and with a point for a decimal comma."""
    text = "".join(one.char for one in found)
    commas = {hit.start(1) for hit in _DECIMAL_COMMA.finditer(text)}
    gone: set[int] = set()
    for hit in _THOUSANDS.finditer(text):
        gone |= {at for at in range(hit.start(), hit.end()) if not text[at].isdigit()}
    commas -= gone
    if not commas and not gone:
        return found
    return [one._replace(char=".") if at in commas else one for at, one in enumerate(found) if at not in gone]
