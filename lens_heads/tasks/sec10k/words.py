"""The word lists and patterns of the made-up filings, read from `tasks/data/filings/`."""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path
from typing import Any

_DATA = Path(__file__).parent.parent / "data" / "filings"


@lru_cache(maxsize=8)
def words(name: str) -> Any:
    """One file: "words" (names, cities), "industries", "sections", "statements" or "phrases"."""
    return json.loads((_DATA / f"{name}.json").read_text(encoding="ascii"))
