"""A small needle set in NoLiMa's schema and layout, written by the tests that need one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

NAMES = ["Yuki", "Stuart", "Katie", "Veronica", "Gary"]
TEMPLATE = "Read this book.\n\n{haystack}\n\nQuestion: {question}\nAnswer:"


def entry(**changes: Any) -> dict[str, Any]:
    """A faultless entry; a field set to None is left out."""
    whole = {
        "id": "0401",
        "reasoning_type": "world_knowledge",
        "system_prompt": "",
        "task_template": TEMPLATE,
        "needle": "Actually, {CHAR} lives next to the {1}.",
        "questions": {"onehop": "Which character has been to {2}?", "twohop": "Which character has been to {3}?"},
        "character_set": NAMES,
        "tests": {
            "T16_C02": {"input_args": ["Semper Opera House", "Dresden", "Saxony"]},
            "T16_C05": {"input_args": ["Kiasma museum", "Helsinki", "Uusimaa"]},
        },
        **changes,
    }
    return {name: value for name, value in whole.items() if value is not None}


def second() -> dict[str, Any]:
    return entry(
        id="0402",
        needle="Then {CHAR} mentioned being vegan for {1}.",
        questions={"onehop": "Which character cannot eat {2}?"},
        tests={"T02": {"input_args": ["years", "eggs"]}},
    )


def needle_file(path: Path, entries: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(entries if isinstance(entries, str) else json.dumps(entries), encoding="utf-8")
    return path


def folder(root: Path, entries: Any = None, name: str = "needlesets/needle_set.json", books: int = 5) -> Path:
    """The official layout with two entries (three tests) and short books."""
    needle_file(root / name, [entry(), second()] if entries is None else entries)
    for i in range(1, books + 1):
        book = root / "haystack" / "rand_shuffle" / f"rand_book_{i}.txt"
        book.parent.mkdir(parents=True, exist_ok=True)
        book.write_text(f"Book {i} begins. " + "It goes on for a while. " * 20, encoding="utf-8")
    return root
