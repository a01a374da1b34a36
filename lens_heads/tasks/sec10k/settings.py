"""Settings of the 10-K tasks: questions, patterns, states and abbreviations, from `data/sec10k.json`."""

from __future__ import annotations

from functools import lru_cache
from importlib import resources
from typing import Any

from lens_heads.tasks.books import read_json


@lru_cache(maxsize=1)
def settings() -> dict[str, Any]:
    """The settings file, read once. A task that is "like" another inherits its patterns, sections and other fields."""
    known: dict[str, Any] = read_json(resources.files("lens_heads.tasks") / "data" / "sec10k.json")
    tasks = known["tasks"]
    return known | {"tasks": {name: tasks.get(task.get("like"), {}) | task for name, task in tasks.items()}}
