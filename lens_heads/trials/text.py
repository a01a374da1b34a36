"""Texts as they are compared: normalised, word by word."""

from __future__ import annotations

import re
import string

_IN_NUMBER = re.compile(r"(?<![\w-])-(?=[$€£]?\.?\d)|(?<=\d)\.(?=\d)|(?<![\w.])\.(?=\d)")
"""The sign or the point of a number: -5, 3.5, -.5; not the hyphen of 1990-95 or well-known, not the stop after 5."""


_ALONE = re.compile(
    r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3000-\u30ff\u3400-\u9fff\uf900-\ufaff\uff00-\uffef“”„«»]"
)
"""Characters of scripts that put no space between words (Thai, Lao, Burmese, Khmer, Japanese, Chinese), and quotes."""


def normalize(text: str) -> str:
    """SQuAD's normalisation: lower case, no punctuation, no articles, single spaces; numbers keep sign and point."""
    text = text.lower().replace("\N{MINUS SIGN}", "-")
    kept = {found.start() for found in _IN_NUMBER.finditer(text)}
    text = "".join(char for at, char in enumerate(text) if char not in string.punctuation or at in kept)
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", text).split())


def contains(text: str, gold: str) -> float:
    """1 when the answer's words stand in the text as a run of whole words, after normalisation.

    Where a script puts no space between words, every character counts as one.
    """
    words, needle = (" ".join(_ALONE.sub(r" \g<0> ", normalize(part)).split()) for part in (text, gold))
    return float(bool(needle) and f" {needle} " in f" {words} ")


def squad(text: str) -> str:
    """SQuAD's normalisation (Rajpurkar et al., arXiv 1606.05250): lower case, no punctuation, articles, extra space."""
    text = "".join(char for char in text.lower() if char not in string.punctuation)
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", text).split())
