"""Haystack texts, and the files that ship with the package."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

from lens_heads.runs import checks
from lens_heads.runs.reading import TextFile, read_text

LONGEST = 1_000_000
"""Tokens of the longest context that can be asked for."""

_CHARACTERS_PER_TOKEN = 8
"""Above any tokenizer's average, in scripts without spaces too."""


def data(*parts: str) -> TextFile:
    """A file that ships with the package, below `lens_heads/tasks/data/`."""
    return resources.files("lens_heads.tasks").joinpath("data", *parts)


def read_books(folder: Path) -> dict[str, str]:
    """The haystacks of a folder by name: every .txt file below `haystack/` (or below its `rand_shuffle/`, as in NoLiMa).

    FileNotFoundError if there is none, ValueError for an empty file.
    """
    root = folder / "haystack"
    root = root / "rand_shuffle" if (root / "rand_shuffle").is_dir() else root
    files = sorted(root.rglob("*.txt"))
    if not files:
        raise FileNotFoundError(
            f"{root} contains no .txt file: put the texts to hide needles in there, one file per book"
        )
    return {file.relative_to(root).with_suffix("").as_posix(): read_book(file) for file in files}


def read_book(file: TextFile) -> str:
    """A haystack text; FileNotFoundError, or ValueError if it is empty."""
    text = read_text(file).strip()
    if not text:
        raise ValueError(f"{file}: the file is empty: a haystack needs text")
    return text


def at_least(text: str, tokens: int) -> str:
    """The text, repeated until a haystack of that many tokens can be cut from it.

    A word counts as a token, and so do 8 characters, for texts without spaces. ValueError for more than `LONGEST` tokens.
    """
    checks.whole_number("lengths", tokens, 1, LONGEST, " of tokens")
    words, characters = len(text.split()), len(text)
    times = min(-(-tokens // words), -(-tokens * _CHARACTERS_PER_TOKEN // characters))
    return "\n\n".join([text] * max(times, 1))
