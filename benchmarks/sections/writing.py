"""Numbers, intervals and tables in Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

NOTHING = "–"
"""Stands where nothing was measured, or does not apply."""


def num(value: float | None, digits: int = 2) -> str:
    return NOTHING if value is None else f"{value:.{digits}f}"


def percent(value: float) -> str:
    return f"{100 * value:.3g} %"


def span(value: float | None, low: float | None, high: float | None, digits: int = 2) -> str:
    """A number with its interval, where it has one."""
    if value is None or low is None or high is None:
        return num(value, digits)
    return f"{value:.{digits}f} [{low:.{digits}f}, {high:.{digits}f}]"


def of(row: dict[str, Any], name: str = "value", prefix: str | None = None, digits: int = 2) -> str:
    """A field of a row with its interval: `low` and `high`, or `<prefix>_low` and `<prefix>_high`."""
    low, high = ("low", "high") if prefix is None else (f"{prefix}_low", f"{prefix}_high")
    return span(row[name], row[low], row[high], digits)


def judged(claim: dict[str, Any]) -> str:
    """A claim's verdict, and the number it is judged by, where that has an interval."""
    return f"**{claim['verdict']}**" + (f": {of(claim)}" if claim["low"] is not None else "")


def table(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """A Markdown table."""
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)


def section(*parts: str) -> str:
    """Paragraphs and tables, without those that are empty."""
    return "\n\n".join(part for part in parts if part)


def few(low: float, high: float, digits: int = 1) -> str:
    """From the smallest to the largest of some numbers."""
    return f"{low:.{digits}f} to {high:.{digits}f}"


def anchor(title: str) -> str:
    """The address of a heading, as code hosts make it."""
    return "".join(c for c in title.lower().replace(" ", "-") if c.isalnum() or c == "-")
