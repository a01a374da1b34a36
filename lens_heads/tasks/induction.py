"""Induction: a word list repeats; which word comes next? (Olsson et al., arXiv 2209.11895)"""

from __future__ import annotations

import random

from lens_heads.runs import checks
from lens_heads.runs.typed import typed
from lens_heads.tasks.rhyme import rhyme_groups
from lens_heads.tasks.templates import judge, template
from lens_heads.trials.trial import Trial


@typed
def induction(
    *,
    n: int = 100,
    words: int = 10,
    repeats: int = 2,
    split: str | None = None,
    seed: int = 0,
    chat: bool | None = False,
) -> list[Trial]:
    """Lists of distinct random words, written `repeats` times; the last repeat stops before one word, which is the answer.

    The paper repeats random tokens; these are common English words separated by commas, so that every tokenizer sees
    words, and only the earlier repeats tell which word follows.

    Args, besides those of `lens_heads.tasks`:
        n: number of trials, each with its own list.
        words: words per list, 4 or more.
        repeats: 2 or more, including the truncated one.
        split: the two share no word. None takes all words.

    Returns:
        Trials with ids such as "induction-select-0-17" (split, seed, number); the choices are the answer and three other
        words of the list. `meta` holds the list and the answer's 0-based index in it, never 0, since at least one word
        precedes it in the last repeat. The counterfactual is the question of a list in which another word has its place, and it
        the other's, so that the answer is that word. Correct if the text up to the next comma is the answer.

    Example:
        >>> trial = lh.tasks.induction(n=1, words=4)[0]
        >>> print(trial.question, "->", trial.answer)
        pack, bun, coal, bowl
        pack, bun, -> coal
    """
    known = [word for group in rhyme_groups(split) for word in group]
    checks.whole_number("words", words, 4, len(known), ", the words of a list")
    checks.count("n", n)
    checks.whole_number("repeats", repeats, 2)
    rng = random.Random(f"{split}-{checks.seed(seed)}")
    shots = template("induction")
    trials: list[Trial] = []
    for number in range(n):
        listed = rng.sample(known, words)
        at = rng.randrange(1, words)
        others = rng.sample([word for word in listed if word != listed[at]], 3)
        swapped = _swapped(listed, at)
        trial = Trial(
            id=f"induction-{split or 'all'}-{seed}-{number}",
            question=_repeated(listed, at, repeats),
            answer=listed[at],
            template=shots["template"],
            chat=chat,
            meta={"words": tuple(listed), "at": at, "kind": "induction"},
            judge=judge(shots),
            corrupt=_repeated(swapped, at, repeats),
            choices=tuple(rng.sample([listed[at], *others], 4)),
        )
        trials.append(trial)
    return trials


def _repeated(listed: list[str], at: int, repeats: int) -> str:
    return "\n".join([*[", ".join(listed)] * (repeats - 1), ", ".join(listed[:at]) + ","])


def _swapped(listed: list[str], at: int) -> list[str]:
    """The list with the word at a place and the next one swapped (the one before it, at the end of the list)."""
    other, found = (at + 1 if at + 1 < len(listed) else at - 1), list(listed)
    found[at], found[other] = found[other], found[at]
    return found
