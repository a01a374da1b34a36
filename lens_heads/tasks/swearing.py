"""Swearing: does the model swear where people do?   The words are the user's: no list of them ships with the package."""

from __future__ import annotations

import random
from pathlib import Path

from lens_heads.tasks.books import read_text
from lens_heads.tasks.rows import enough, packaged_rows
from lens_heads.tasks.sampling import half
from lens_heads.tasks.templates import judge, template
from lens_heads.trials.trial import Trial


def swearing(
    words: str | Path, n: int | None = None, split: str | None = None, seed: int = 0, chat: bool | None = False
) -> list[Trial]:
    """Original, mild beginnings of scenes that stop where somebody might swear ("... with the hammer and shouted:").

    A continuation is right when any word of the list stands in its first line, whole, in any case.

    Args:
        words: a text file, one word or phrase a line; what follows # is a comment. Only what is listed counts, so list the
            inflected forms too.
        n: trials; fewer than there are means a random draw. None for all (48, in a split 24).
        split: "select" to find heads, "test" to evaluate them: every other scene, half of each kind; None takes all.
        seed: of the draw, and of each trial's word.
        chat: as in `Trial`. False by default, for chat models too: the scene is a text to go on with.

    Returns:
        Trials without needle and haystack, with ids such as "swearing-pain-1"; `meta` holds the kind of scene and the
        number of words.

    Raises:
        FileNotFoundError, ValueError: naming the file and the line; an unknown split, more trials than scenes.

    The answer of a trial is one word of the list, drawn by seed, and `logprob` is that word's: not how likely the model is to
    swear, which any word would do, but how likely a random word of the list is; compare it between conditions on the same
    trials.
    """
    listed = _read(Path(words).expanduser())
    rows = half(packaged_rows("swearing"), split)
    rng = random.Random(seed)
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
        for row in rng.sample(rows, enough(n, len(rows), "packaged scenes"))
    ]


def _read(file: Path) -> list[str]:
    """The words of a list, each once in whatever case."""
    found: dict[str, str] = {}
    for number, line in enumerate(read_text(file).split("\n"), 1):
        word = " ".join(line.partition("#")[0].split())
        if word and not any(character.isalnum() for character in word):
            raise ValueError(
                f"{file}, line {number}: {word!r} has no letter: write one word or phrase a line, # for comments"
            )
        if word:
            found.setdefault(word.casefold(), word)
    if not found:
        raise ValueError(f"{file}: there is no word in it: write one word or phrase a line")
    return list(found.values())
