"""Normalization and word-by-word comparison of texts."""

from __future__ import annotations

import re
import string

_IN_NUMBER = re.compile(r"(?<![\w-])-(?=[$€£]?\.?\d)|(?<=\d)\.(?=\d)|(?<![\w.])\.(?=\d)")
"""The sign or decimal point of a number (-5, 3.5, -.5); not the hyphen of 1990-95 or well-known, nor a final stop."""

_ALONE = re.compile(
    r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3000-\u30ff\u3400-\u9fff\uf900-\ufaff\uff00-\uffef“”„«»]"
)
"""Characters of scripts without spaces between words (Thai, Lao, Burmese, Khmer, Japanese, Chinese), and quotes."""


def normalize(text: str) -> str:
    """SQuAD's normalization (`squad`), but numbers keep their sign and decimal point."""
    text = text.lower().replace("\N{MINUS SIGN}", "-")
    return _plain(text, {found.start() for found in _IN_NUMBER.finditer(text)})


def squad(text: str) -> str:
    """SQuAD's normalization (Rajpurkar et al., arXiv 1606.05250): lower case, no punctuation, articles, extra space."""
    return _plain(text.lower(), set())


def _plain(text: str, kept: set[int]) -> str:
    text = "".join(char for at, char in enumerate(text) if char not in string.punctuation or at in kept)
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", text).split())


def contains(text: str, gold: str) -> float:
    """1 if the text contains the answer as consecutive whole words, after normalization, else 0.

    In scripts without spaces between words, every character counts as a word.
    """
    words, needle = (" ".join(_ALONE.sub(r" \g<0> ", normalize(part)).split()) for part in (text, gold))
    return float(bool(needle) and f" {needle} " in f" {words} ")
