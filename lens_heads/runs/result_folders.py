"""Results on disk: a folder with one Parquet file per table and one JSON file for everything else."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from lens_heads.runs.files import path_of, write_atomic
from lens_heads.runs.reading import read_json
from lens_heads.runs.tables import read_table, write_table


def write_tables(folder: str | Path, tables: Mapping[str, pd.DataFrame], about: str, rest: dict[str, Any]) -> Path:
    """Write each table to `{name}.parquet` and `rest` to the file `about`."""
    folder = path_of(folder, "folder")
    for name, table in tables.items():
        write_table(folder / f"{name}.parquet", table)
    write_atomic(folder / about, json.dumps(rest, indent=2, default=str) + "\n")
    return folder


def read_tables(
    folder: str | Path, tables: Iterable[str], about: str, what: str
) -> tuple[dict[str, pd.DataFrame], dict[str, Any]]:
    """Read what `write_tables` wrote. FileNotFoundError names the missing file and the class (`what`) that saves it.

    ValueError naming a file that is damaged.
    """
    folder = path_of(folder, "folder")
    files = {name: folder / f"{name}.parquet" for name in tables}
    for file in (*files.values(), folder / about):
        if not file.exists():
            raise FileNotFoundError(f"{file} is missing. Pass a folder written by {what}.save.")
    rest = read_json(folder / about, loose=True)
    if not isinstance(rest, dict):
        raise ValueError(f"{folder / about}: expected an object. Pass a folder written by {what}.save.")
    return {name: read_table(file) for name, file in files.items()}, rest
