"""What the 10-K tasks know: questions, patterns, states and abbreviations."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from lens_heads.runs.reading import read_json
from lens_heads.tasks.books import data


@lru_cache(maxsize=1)
def settings() -> dict[str, Any]:
    """`data/sec10k.json`, read once. A task that is "like" another inherits its patterns, sections and other fields."""
    known: dict[str, Any] = read_json(data("sec10k.json"))
    tasks = known["tasks"]
    return known | {"tasks": {name: tasks.get(task.get("like"), {}) | task for name, task in tasks.items()}}
