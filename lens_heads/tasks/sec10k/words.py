"""The word lists and patterns of the fictional filings, read from `tasks/data/filings/`."""

from __future__ import annotations

from functools import lru_cache
from importlib import resources
from typing import Any

from lens_heads.tasks.books import read_json


@lru_cache(maxsize=8)
def words(name: str) -> Any:
    """One of the files "words" (names, cities), "industries", "sections", "statements" and "phrases"."""
    return read_json(resources.files("lens_heads.tasks") / "data" / "filings" / f"{name}.json")
