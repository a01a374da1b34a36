"""Induction: a list of words comes again; what is the next one?   (Olsson et al., arXiv 2209.11895)"""

from __future__ import annotations

import random

from lens_heads.tasks.templates import judge, template
from lens_heads.tasks.words import rhyme_groups
from lens_heads.trials.trial import Trial


def induction(
    n: int = 100,
    words: int = 10,
    repeats: int = 2,
    split: str | None = None,
    seed: int = 0,
    chat: bool | None = False,
) -> list[Trial]:
    """Lists of different random words, said `repeats` times, the last time cut before one of them: that is the answer.

    The paper repeats random tokens; these are common English words with a comma between them, so that every tokenizer sees
    words, and nothing but the first time says which one follows.

    Args:
        n: trials, each with its own list.
        words: in a list, 4 or more.
        repeats: 2 or more, the cut one included.
        split: "select" to find heads, "test" to evaluate them: they share no word; None takes all words.
        seed: of the lists, the cuts and the choices.
        chat: as in `Trial`. False by default, for chat models too: the list is a text to go on with.

    Returns:
        Trials without needle and haystack, with ids such as "induction-select-0-17" (split, seed, number), the answer and
        three other words of the list as choices; `meta` holds the list and the place of the answer in it, from 1 on (never 0,
        which nothing of the last time comes before). Right when the text up to the next comma is the answer.

    Raises:
        ValueError: an unknown split, less than one trial or two repeats, or `words` below 4 or above those that there are.
    """
    known = [word for group in rhyme_groups(split) for word in group]
    if not 4 <= words <= len(known):
        raise ValueError(f"words={words}: a list has 4 to {len(known)} different words")
    if n < 1 or repeats < 2:
        raise ValueError(f"n={n}, repeats={repeats}: ask for at least 1 trial, and 2 repeats")
    rng = random.Random(f"{split}-{seed}")
    name = f"induction-{split or 'all'}-{seed}"
    return [_trial(f"{name}-{number}", rng.sample(known, words), repeats, rng, chat) for number in range(n)]


def _trial(name: str, listed: list[str], repeats: int, rng: random.Random, chat: bool | None) -> Trial:
    shots = template("induction")
    at = rng.randrange(1, len(listed))
    answer = listed[at]
    others = rng.sample([word for word in listed if word != answer], 3)
    whole, begun = ", ".join(listed), ", ".join(listed[:at]) + ","
    return Trial(
        id=name,
        question="\n".join([*[whole] * (repeats - 1), begun]),
        answer=answer,
        template=shots["template"],
        chat=chat,
        meta={"words": tuple(listed), "at": at, "kind": "induction"},
        judge=judge(shots),
        choices=tuple(rng.sample([answer, *others], 4)),
    )
