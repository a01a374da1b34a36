"""What the ten-K tasks know about filings: questions, patterns, states and abbreviations, from `data/sec10k.json`."""

from __future__ import annotations

from functools import lru_cache
from importlib import resources
from typing import Any

from lens_heads.tasks.books import read_json


@lru_cache(maxsize=1)
def settings() -> dict[str, Any]:
    """The settings file, read once."""
    known: dict[str, Any] = read_json(resources.files("lens_heads.tasks") / "data" / "sec10k.json")
    return known


def tasks() -> tuple[str, ...]:
    """The eight tasks, in the study's order."""
    return tuple(settings()["tasks"])
