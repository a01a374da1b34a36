"""Succession: which word follows in a sequence of days, months, letters or numbers? The behaviour of successor heads."""

from __future__ import annotations

import random
from itertools import pairwise

from lens_heads.runs import checks
from lens_heads.runs.typed import typed
from lens_heads.tasks.sampling import SPLITS, check_known, enough
from lens_heads.tasks.templates import judge, template
from lens_heads.trials.trial import Trial

# The tables of Successor Heads, arXiv 2312.09230.
_WRITTEN = {
    "days": "Monday Tuesday Wednesday Thursday Friday Saturday Sunday",
    "months": "January February March April May June July August September October November December",
    "number words": "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen twenty",
    "ordinals": "first second third fourth fifth sixth seventh eighth ninth tenth",
    "letters": "A B C D E F G H I J K L M N O P Q R S T U V W X Y Z",
}
CYCLES = ("days", "months")
SEQUENCES = {name: tuple(words.split()) for name, words in _WRITTEN.items()} | {
    "numbers": tuple(map(str, range(1, 201)))
}
"""The sequences by name. Those of `CYCLES` begin again after their last word."""

HALVES = {"select": ("days", "letters", "ordinals"), "test": ("months", "number words", "numbers")}
"""The sequences of either half."""


@typed
def succession(
    *, n: int | None = None, shown: int = 3, split: str | None = None, seed: int = 0, chat: bool | None = False
) -> list[Trial]:
    """Consecutive words of a sequence, such as "Tuesday, Wednesday, Thursday,", and the word that follows.

    Args, besides those of `lens_heads.tasks`:
        n: number of trials; by default 200, or all if there are fewer.
        shown: words before the question, 1 to 4.
        split: the two share no sequence: days, letters and ordinals, or months, number words and numbers up to 200.

    Returns:
        Trials with ids such as "succession-days-1" (sequence, place of its first word); the choices are the answer, the last word
        shown, and two others of the sequence that are not shown. `meta` holds the sequence and the words shown; days and
        months begin again after their last word. Correct if the text up to the next comma is the answer.

    Example:
        >>> trial = lh.tasks.succession(n=1)[0]
        >>> print(trial.question.splitlines()[-1], "->", trial.answer)
        20, 21, 22, -> 23
    """
    checks.whole_number("shown", shown, 1, 4)
    if split is not None:
        check_known("split", split, SPLITS, ", or None for both")
    used = HALVES[split] if split is not None else tuple(SEQUENCES)
    starts = [(name, at) for name in used for at in range(len(SEQUENCES[name]) - (0 if name in CYCLES else shown))]
    rng = random.Random(f"succession-{split}-{checks.seed(seed)}")
    drawn = rng.sample(starts, enough(n, len(starts), "places in these sequences", 200))
    written = template("succession")
    trials: list[Trial] = []
    for name, at in drawn:
        words = SEQUENCES[name]
        *seen, answer = (words[(at + i) % len(words)] for i in range(shown + 1))
        others = rng.sample([word for word in words if word not in (*seen, answer)], 2)
        trial = Trial(
            id=f"succession-{name.replace(' ', '-')}-{at}",
            question=", ".join(seen) + ",",
            answer=answer,
            template=written["template"],
            chat=chat,
            meta={"kind": name, "shown": tuple(seen)},
            judge=judge(written),
            choices=tuple(rng.sample([answer, seen[-1], *others], 4)),
        )
        trials.append(trial)
    return trials


def successor_pairs() -> list[tuple[str, str]]:
    """Every word with its successor. Tokenizers know different ones as single tokens, so users drop the others."""
    pairs: list[tuple[str, str]] = []
    for name, words in SEQUENCES.items():
        pairs += pairwise(words)
        pairs += [(words[-1], words[0])] if name in CYCLES else []
    return pairs
