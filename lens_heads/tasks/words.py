"""Common short English words that ship with the package, by rhyme."""

from __future__ import annotations

from importlib import resources

from lens_heads.tasks.books import read_text
from lens_heads.tasks.sampling import half


def rhyme_groups(split: str | None = None) -> list[list[str]]:
    """Words of one syllable, a list for each ending: those of a list rhyme with each other and with no other word here.

    All end in one vowel and one consonant, where rhyming by ear and by the last two phonemes (`lens_heads.trials.rhymes`) is the
    same. The splits "select" and "test" share no ending. ValueError for another split.
    """
    file = resources.files("lens_heads.tasks") / "data" / "packaged" / "words.txt"
    return half([line.split() for line in read_text(file).splitlines()], split)
