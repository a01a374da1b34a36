"""Parquet tables that are complete or absent, with checksums that reading verifies, alone or beside JSON in a result's folder."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from io import BytesIO
from pathlib import Path
from typing import Any

import pandas as pd

from lens_heads.runs.digests import digest
from lens_heads.runs.files import path_of, write_atomic
from lens_heads.runs.reading import read_bytes, read_json, reason

_SUM = "lens_heads_columns"


def write_table(path: Path, table: pd.DataFrame) -> None:
    """Write a table to a Parquet file, without its index. OSError naming the file if that fails."""
    marked = table.copy(deep=False)
    marked.attrs = {_SUM: _columns(table)}
    write_atomic(path, marked.to_parquet(index=False, engine="pyarrow", write_page_checksum=True))


def read_table(path: Path) -> pd.DataFrame:
    """The table in a Parquet file. FileNotFoundError or another OSError if there is none; ValueError for a damaged one."""
    data = read_bytes(path)
    try:
        table = pd.read_parquet(BytesIO(data), engine="pyarrow", page_checksum_verification=True)
    except Exception as error:  # Damaged bytes can raise anything.
        raise ValueError(f"{path}: not a complete Parquet table ({reason(error)}): save it again") from None
    wanted = table.attrs.pop(_SUM, None)
    if wanted is not None and wanted != _columns(table):
        raise ValueError(f"{path}: its columns do not match their checksum: save it again")
    return table


def _columns(table: pd.DataFrame) -> str:
    """Hash of what the pages' checksums do not cover: the names and types of the columns, and the number of rows."""
    kinds: list[Any] = [[str(name), str(kind)] for name, kind in table.dtypes.items()]
    return digest([kinds, len(table)])


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
