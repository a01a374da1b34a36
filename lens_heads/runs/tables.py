"""Parquet tables that are complete or absent, with checksums that reading verifies."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path
from typing import Any

import pandas as pd

from lens_heads.runs.digests import digest
from lens_heads.runs.files import write_atomic
from lens_heads.runs.reading import read_bytes, reason

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
