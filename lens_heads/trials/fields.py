"""Fields of trials where they enter: texts, spans and token ids."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from lens_heads.runs import checks


def text(owner: str, what: str, value: Any, empty: bool = True) -> str:
    """The value. ValueError unless it is a string, and, with `empty=False`, one that does not only contain whitespace."""
    if not isinstance(value, str):
        raise ValueError(f"{owner}: {what} {value!r} must be a string, not {type(value).__name__}")
    half = next((char for char in value if "\ud800" <= char <= "\udfff"), None) if not value.isascii() else None
    if half is not None:
        raise ValueError(
            f"{owner}: the {what} holds {half!r}, half of a character, which no tokenizer reads: decode it as UTF-8"
        )
    if not empty and not value.strip():
        raise ValueError(f"{owner}: the {what} is empty")
    return value


def groups(owner: str, value: Any) -> str | tuple[str, ...]:
    """A trial's group, or the groups of several kinds as a tuple. ValueError unless a string or non-empty strings."""
    return texts(owner, "group", value) if isinstance(value, tuple) else text(owner, "group", value)


def texts(owner: str, what: str, values: Any) -> tuple[str, ...]:
    """Non-empty strings as a tuple; a bare string is one of them. ValueError for anything else."""
    listed = [values] if isinstance(values, str) else list(values) if isinstance(values, Iterable) else [values]
    for value in listed:
        if not isinstance(value, str) or not value.strip():
            raise ValueError(f"{owner}: {what} {values!r} must be non-empty strings")
    return tuple(listed)


def span(owner: str, what: str, value: Any, length: int, least: int = 0, remedy: str = "") -> tuple[int, int]:
    """A half-open span (start, end) with least (0 or 1) <= start < end <= length. ValueError for anything else."""
    pair = [checks.whole(at) for at in value] if isinstance(value, Iterable) and not isinstance(value, str) else []
    known = [at for at in pair if at is not None]
    if len(pair) != 2 or len(known) != 2:
        raise ValueError(f"{owner}: the {what} {value!r} must be a pair of ints (start, end){remedy}")
    start, end = known
    if not least <= start < end <= length:
        where = f"must lie within the {length} tokens, after at least one" if least else ""
        where = where or f"lies outside the prompt of {length} tokens"
        raise ValueError(f"{owner}: the {what} [{start}, {end}) {where}")
    return start, end
