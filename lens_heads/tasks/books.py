"""Texts and JSON from files, with errors that say what to do: the haystacks needles are hidden in, and needle files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Protocol


class TextFile(Protocol):
    """A path, or a file inside an installed package."""

    def read_bytes(self) -> bytes: ...
    def is_file(self) -> bool: ...


def read_text(file: TextFile) -> str:
    """A UTF-8 text file; FileNotFoundError or ValueError naming it."""
    if not file.is_file():
        raise FileNotFoundError(f"{file} does not exist: check the name and the folder")
    try:
        return file.read_bytes().decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        raise ValueError(f"{file}: not UTF-8 text (byte {error.start}): save it as UTF-8") from None


def read_json(file: TextFile) -> Any:
    """The JSON value in a file; FileNotFoundError, or ValueError with line and column."""
    return parse_json(read_text(file), str(file))


def parse_json(text: str, where: str) -> Any:
    """The JSON value in a text that stands at `where`; ValueError with line and column."""
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(
            f"{where}: not valid JSON: {error.msg} at line {error.lineno}, column {error.colno}: correct it there"
        ) from None


def read_books(folder: Path) -> dict[str, str]:
    """The haystacks of a folder by name: every .txt below `haystack/` (of NoLiMa's, those of `rand_shuffle/`).

    FileNotFoundError without a file, ValueError for an empty one.
    """
    root = folder / "haystack"
    root = root / "rand_shuffle" if (root / "rand_shuffle").is_dir() else root
    files = sorted(root.rglob("*.txt"))
    if not files:
        raise FileNotFoundError(f"{root} has no .txt file: put the texts to hide needles in there, one file per book")
    return {file.relative_to(root).with_suffix("").as_posix(): read_book(file) for file in files}


def read_book(file: TextFile) -> str:
    """A haystack text; FileNotFoundError, or ValueError when it is empty."""
    text = read_text(file).strip()
    if not text:
        raise ValueError(f"{file}: the file is empty: a haystack needs text")
    return text


def at_least(text: str, words: int) -> str:
    """The text, repeated until it has so many words: a haystack of as many tokens can then be cut from it."""
    have = len(text.split())
    return "\n\n".join([text] * -(-words // have)) if have < words else text
