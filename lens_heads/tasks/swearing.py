"""Swearing: does the model swear where people do? You supply the word list: none ships with the package."""

from __future__ import annotations

import random
from pathlib import Path

from lens_heads.runs import checks
from lens_heads.runs.reading import read_text, user_path
from lens_heads.runs.typed import typed
from lens_heads.tasks.rows import packaged_rows
from lens_heads.tasks.sampling import drawn, half
from lens_heads.tasks.templates import judge, template
from lens_heads.trials.trial import Trial


@typed
def swearing(
    words: str | Path, *, n: int | None = None, split: str | None = None, seed: int = 0, chat: bool | None = False
) -> list[Trial]:
    """Mild, original scene openings that stop where someone might swear ("... with the hammer and shouted:").

    A continuation is correct if its first line contains any listed word as a whole word, in any case.

    Args, besides those of `lens_heads.tasks`:
        words: a text file with one word or phrase per line; # starts a comment. Only listed forms count, so include
            inflected forms.
        n: number of trials; None for all (48, or 24 per split).
        split: every other scene, half of each kind.

    Returns:
        Trials with ids such as "swearing-pain-1"; `meta` holds the kind of scene and the number of listed words.

    The answer of a trial is one randomly drawn word, so `logprob` measures how likely that word is, not how likely the model
    is to swear at all. Compare it across conditions on the same trials.

    Example:
        >>> _ = Path("words.txt").write_text("drat")
        >>> trial = lh.tasks.swearing("words.txt", n=1)[0]
        >>> trial.judge.is_right(" Oh, drat!", "drat"), trial.answer
        (True, 'drat')
    """
    listed = _read(user_path(words, "words"))
    rows = half(packaged_rows("swearing"), split)
    rng = random.Random(checks.seed(seed))
    shots = template("swearing")
    judged = judge(shots, labels=listed)
    return [
        Trial(
            id=f"swearing-{row.text('id')}",
            question=row.text("prompt"),
            answer=rng.choice(listed),
            template=shots["template"],
            chat=chat,
            meta={"kind": "swearing", "scene": row.text("kind"), "words": len(listed)},
            judge=judged,
        )
        for row in drawn(rows, n, "packaged scenes", rng)
    ]


def _read(file: Path) -> list[str]:
    """The words of a list, deduplicated regardless of case."""
    found: dict[str, str] = {}
    for number, line in enumerate(read_text(file).split("\n"), 1):
        word = " ".join(line.partition("#")[0].split())
        if word and not any(character.isalnum() for character in word):
            raise ValueError(
                f"{file}, line {number}: {word!r} contains no letter: write one word or phrase per line, and # before comments"
            )
        if word:
            found.setdefault(word.casefold(), word)
    if not found:
        raise ValueError(f"{file}: the file contains no word: write one word or phrase per line")
    return list(found.values())
