"""Small local copies of benchmark tables."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import datasets


def write(file: Path, rows: list[dict[str, Any]]) -> Path:
    """Rows as the kind of file that the name says: Parquet, or JSON lines."""
    if file.suffix == ".parquet":
        datasets.Dataset.from_list(rows).to_parquet(file)
    else:
        file.write_text("\n".join(json.dumps(row) for row in rows))
    return file
