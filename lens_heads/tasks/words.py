"""Common short English words, grouped by rhyme; shipped with the package."""

from __future__ import annotations

from lens_heads.tasks.books import data, read_text
from lens_heads.tasks.sampling import half


def rhyme_groups(split: str | None = None) -> list[list[str]]:
    """Words of one syllable, one list per ending: the words of a list rhyme with each other and with no other word here.

    All end in one vowel and one consonant. For such words, rhyming by ear and by the last two phonemes
    (`lens_heads.trials.rhymes`) coincide. The splits "select" and "test" share no ending. ValueError for any other split.
    """
    lines = read_text(data("packaged", "words.txt")).splitlines()
    return half([line.split() for line in lines], split)
