"""Files of rows: JSON, JSON lines, CSV, TSV and Parquet, as one dictionary per row with the row's location."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lens_heads.runs.reading import check_file, parse_json, read_bytes, read_text, reason

Located = tuple[str, dict[str, Any]]
"""Where a row is, such as "popqa.jsonl, row 3", and its fields."""

_LONGEST_CELL = 2**31 - 1
_WHOLE = re.compile(r"\s*(\[|\{\s*\n)")
"""How a list begins, and an object that is spread over lines."""


def files_of(path: Path, copy_of: str) -> list[Path]:
    """The file at `path`, or the files of rows in that folder, all of one type; the errors say what to pass a copy of."""
    if not path.is_dir():
        check_file(path, f"pass a copy of {copy_of} ({', '.join(_READERS)})")
        files = [path] if path.suffix in _READERS else []
    else:
        try:
            files = sorted(file for file in path.iterdir() if file.suffix in _READERS and not file.name.startswith("."))
        except OSError as error:
            raise OSError(f"{path}: cannot be read ({error.strerror}); check its permissions") from None
    if not files:
        raise FileNotFoundError(f"{path} contains no {', '.join(_READERS)} file: pass a copy of {copy_of}")
    other = next((file for file in files if file.suffix != files[0].suffix), None)
    if other is not None:
        raise ValueError(f"{path} contains both {files[0].suffix} and {other.suffix} files: pass the file to read")
    return files


def rows(file: Path) -> Iterator[Located]:
    """The rows of one file; FileNotFoundError, OSError or ValueError name the file and the row."""
    for number, fields in enumerate(_READERS[file.suffix](file), 1):
        yield f"{file}, row {number}", fields


def json_lines(text: str, where: str, known: str = "..") -> list[tuple[int, dict[str, Any]]]:
    """The objects of a text with one per line, by line; empty lines are skipped.

    The ValueError for a line with anything else says which fields are `known`.
    """
    # Not splitlines(): JSON allows other line ends, such as U+2028, inside its strings.
    lines = [(i, line) for i, line in enumerate(text.split("\n"), 1) if line.strip()]
    found = [(i, parse_json(line, where, i)) for i, line in lines]
    for i, value in found:
        _check_object(value, f"{where}, line {i}", known)
    return found


def _json(file: Path) -> list[dict[str, Any]]:
    """A list of objects, one object per line, or a single object."""
    text = read_text(file)
    if _WHOLE.match(text):
        found = parse_json(text, str(file))
        values = found if isinstance(found, list) else [found]
        for number, value in enumerate(values, 1):
            _check_object(value, f"{file}, row {number}", "..")
        return values
    return [value for _, value in json_lines(text, str(file))]


def _check_object(value: Any, where: str, known: str) -> None:
    if not isinstance(value, dict):
        raise ValueError(f"{where}: expected an object {{{known}}}, got {type(value).__name__}")


def _delimited(file: Path) -> list[dict[str, Any]]:
    """Cells are texts as they stand: "None", "NA" and "007" too, which are answers somewhere."""
    return table(read_text(file), str(file), "\t" if file.suffix == ".tsv" else ",")


def table(text: str, where: str, delimiter: str = ",") -> list[dict[str, Any]]:
    """The rows of a CSV text with a header; ValueError for a row of another width, which names its line."""
    # Whole reports are longer than the module's default, which is global.
    before = csv.field_size_limit(_LONGEST_CELL)
    try:
        reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
        found = [(reader.line_num, cells) for cells in reader if cells]
    except csv.Error as error:
        raise ValueError(f"{where}: line {reader.line_num} is not valid ({error}); correct its quotes") from None
    finally:
        csv.field_size_limit(before)
    header, *body = found or [(1, [])]
    names = header[1]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ValueError(f"{where}: the column {twice!r} occurs twice; rename one")
    for line, cells in body:
        if len(cells) != len(names):
            raise ValueError(
                f"{where}: line {line} has {len(cells)} cells, but the header has {len(names)}; correct it"
            )
    return [dict(zip(names, cells, strict=True)) for _, cells in body]


def _parquet(file: Path) -> list[dict[str, Any]]:
    import pyarrow.parquet as pq

    content = read_bytes(file)
    # Without its mark at both ends a file is cut short or something else, and pyarrow's own words say neither.
    if len(content) < 12 or content[:4] != b"PAR1" or content[-4:] != b"PAR1":
        raise ValueError(f"{file}: is no complete Parquet file; download it again")
    try:
        return pq.read_table(io.BytesIO(content)).to_pylist()
    except Exception as error:  # pyarrow's errors share no base class
        raise ValueError(f"{file}: cannot be read as Parquet ({reason(error)}); download it again") from None


_READERS = {".jsonl": _json, ".json": _json, ".csv": _delimited, ".tsv": _delimited, ".parquet": _parquet}
