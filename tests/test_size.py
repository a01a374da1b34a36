"""What a reader has to get through does not grow: bounds that may only be lowered."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
MOST_WORDS, MOST_BEFORE_PYTHON, MOST_LINES = 3_006, 276, 48_115
"""Of the README outside code, of it before its first Python, and of the package. The aims are 600, 150 and far fewer."""


def words(text: str) -> int:
    return len(re.sub(r"```.*?(```|\Z)", "", text, flags=re.DOTALL).split())


def test_the_readme_does_not_grow() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert words(readme) <= MOST_WORDS
    assert words(readme.partition("```python")[0]) <= MOST_BEFORE_PYTHON


def test_the_package_does_not_grow() -> None:
    assert sum(len(file.read_bytes().splitlines()) for file in (ROOT / "lens_heads").rglob("*.py")) <= MOST_LINES
