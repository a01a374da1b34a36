"""Reads haystack texts and JSON files, with errors that say what to fix."""

from __future__ import annotations

import json
from importlib import resources
from pathlib import Path
from typing import Any, Protocol


class TextFile(Protocol):
    """A path, or a file inside an installed package."""

    def read_bytes(self) -> bytes: ...
    def is_file(self) -> bool: ...


def data(*parts: str) -> TextFile:
    """A file that ships with the package, below `lens_heads/tasks/data/`."""
    return resources.files("lens_heads.tasks").joinpath("data", *parts)


def read_text(file: TextFile) -> str:
    """The text of a UTF-8 file; FileNotFoundError or ValueError names it."""
    if not file.is_file():
        raise FileNotFoundError(f"{file} does not exist: check its name and folder")
    try:
        return file.read_bytes().decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        raise ValueError(f"{file}: not valid UTF-8 at byte {error.start}: save the file as UTF-8") from None


def read_json(file: TextFile) -> Any:
    """The JSON value in a file; FileNotFoundError, or ValueError with line and column."""
    return parse_json(read_text(file), str(file))


def parse_json(text: str, where: str) -> Any:
    """The JSON value in a text read from `where`; ValueError with line and column."""
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(
            f"{where}: invalid JSON at line {error.lineno}, column {error.colno}: {error.msg}; correct it there"
        ) from None


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


def at_least(text: str, words: int) -> str:
    """The text, repeated until it has `words` words, so that a haystack of that many tokens can be cut from it."""
    have = len(text.split())
    return "\n\n".join([text] * -(-words // have)) if have < words else text
