"""Results on disk: a folder with one Parquet file per table and one JSON file for everything else."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from lens_heads.runs.store import write_atomic


def write_tables(folder: str | Path, tables: Mapping[str, pd.DataFrame], about: str, rest: dict[str, Any]) -> Path:
    """Write each table to `{name}.parquet` and `rest` to the file `about`."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    for name, table in tables.items():
        table.to_parquet(folder / f"{name}.parquet", index=False)
    write_atomic(folder / about, json.dumps(rest, indent=2, default=str) + "\n")
    return folder


def read_tables(
    folder: str | Path, tables: Iterable[str], about: str, what: str
) -> tuple[dict[str, pd.DataFrame], dict[str, Any]]:
    """Read what `write_tables` wrote. FileNotFoundError names the missing file and the class (`what`) that saves it."""
    files = {name: Path(folder) / f"{name}.parquet" for name in tables}
    for file in (*files.values(), Path(folder) / about):
        if not file.exists():
            raise FileNotFoundError(f"{file} is missing. Pass a folder written by {what}.save.")
    rest = json.loads((Path(folder) / about).read_text(encoding="utf-8"))
    return {name: pd.read_parquet(file) for name, file in files.items()}, rest
