"""Rhyme: name a word that rhymes with a given one."""

from __future__ import annotations

import random

from lens_heads.runs import checks
from lens_heads.runs.reading import read_text
from lens_heads.runs.typed import typed
from lens_heads.tasks.books import data
from lens_heads.tasks.sampling import drawn, half
from lens_heads.tasks.templates import judge, template
from lens_heads.trials.rhymes import endings
from lens_heads.trials.trial import Trial


@typed
def rhyme(*, n: int | None = None, split: str | None = None, seed: int = 0, chat: bool | None = False) -> list[Trial]:
    """Few-shot trials that ask for a rhyme, with one rhyming word and three others as choices.

    Args, besides those of `lens_heads.tasks`:
        n: number of trials, each about a different one-syllable word. None: 100, or all if there are fewer.
        split: the two share no ending, hence no word.

    Returns:
        Trials with ids such as "rhyme-cat"; `meta` holds the word and the kind. The choices differ from the answer in
        length by at most one letter. The ending is the group. Correct if the first word of the text rhymes with the answer
        (same last two phonemes) and is not the word asked about.

    Models under half a billion parameters can barely rhyme: check `benchmarks/capabilities.py` before localizing heads.

    Example:
        >>> trial = lh.tasks.rhyme(n=1)[0]
        >>> trial.id, trial.answer
        ('rhyme-stop', 'chop')
    """
    endings("cat")  # Raises ImportError now rather than when texts are judged.
    groups = rhyme_groups(split)
    words = [(word, group) for group in groups for word in group]
    rng = random.Random(checks.seed(seed))
    return [_trial(word, group, groups, rng, chat) for word, group in drawn(words, n, "words", rng, usual=100)]


def rhyme_groups(split: str | None = None) -> list[list[str]]:
    """Common words of one syllable, one list per ending, which rhyme with each other and with no other word here.

    All end in one vowel and one consonant. For such words, rhyming by ear and by the last two phonemes
    (`lens_heads.trials.rhymes`) coincide. The splits "select" and "test" share no ending. ValueError for any other split.
    """
    lines = read_text(data("packaged", "words.txt")).splitlines()
    return half([line.split() for line in lines], split)


def _trial(word: str, group: list[str], groups: list[list[str]], rng: random.Random, chat: bool | None) -> Trial:
    shots = template("rhyme")
    answer = rng.choice([other for other in group if other != word])
    alike = [other for one in groups if one is not group for other in one if abs(len(other) - len(answer)) <= 1]
    return Trial(
        id=f"rhyme-{word}",
        question=shots["question"].replace("{word}", word),
        answer=answer,
        template=shots["template"],
        chat=chat,
        meta={"word": word, "kind": "rhyme"},
        judge=judge(shots, labels=(word,)),
        choices=tuple(rng.sample([answer, *rng.sample(alike, 3)], 4)),
        group=f"rhyme {group[0]}",
    )
