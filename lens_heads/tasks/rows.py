"""Rows of benchmark tables: from the hub, from a local copy, or shipped; with errors that name the row and the field."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from lens_heads.tasks.books import parse_json, read_text

_BUILDERS = {".jsonl": "json", ".json": "json", ".csv": "csv", ".tsv": "csv", ".parquet": "parquet"}


@dataclass(frozen=True)
class Row:
    """One row and where it stands, such as "popqa.jsonl, row 3"."""

    where: str
    number: int
    fields: dict[str, Any]

    def text(self, field: str, empty: bool = False) -> str:
        """A field that must hold text, unless it may be `empty`; ValueError when it is missing or empty."""
        value = self.fields.get(field)
        if empty and field in self.fields and value in (None, ""):
            return ""
        if not isinstance(value, str | int | float) or not str(value).strip():
            raise ValueError(f"{self.where}: field {field!r} is missing or empty: give it a text")
        return str(value).strip()

    def code(self, field: str) -> str:
        """A field that must hold code: as `text`, with the white space around it, and lines that end in a newline."""
        self.text(field)
        return str(self.fields[field]).replace("\r\n", "\n")


def hub_rows(hub: str, *, split: str, config: str | None = None) -> list[Row]:
    """A split of a dataset on the hub. FileNotFoundError when it cannot be had, ImportError without datasets."""
    load = _loader()
    name = (hub, config) if config else (hub,)
    where = " ".join((*name, split)) if config else hub
    try:
        return _rows(load(*name, split=split), where)
    except Exception as error:  # datasets, huggingface_hub and the connection have no error class in common
        raise FileNotFoundError(
            f"could not get {where} from the hub ({type(error).__name__}: {error}): go online, or give a copy with path="
        ) from error


def hub_file(hub: str, name: str, otherwise: str) -> Path:
    """A raw file of a dataset on the hub; FileNotFoundError saying what to do `otherwise`."""
    import huggingface_hub
    from huggingface_hub.errors import HfHubHTTPError

    fetch: Callable[..., str] = huggingface_hub.hf_hub_download
    try:
        return Path(fetch(hub, name, repo_type="dataset"))
    except (OSError, HfHubHTTPError) as error:
        raise FileNotFoundError(
            f"could not get {name} of {hub} from the hub ({type(error).__name__}): go online, or {otherwise}"
        ) from error


def local_rows(path: str | Path, copy_of: str) -> list[Row]:
    """The rows of a local file, or of all files of a folder (.jsonl, .json, .csv, .tsv, .parquet; one kind of them).

    FileNotFoundError without such a file, naming what it should be a copy of; ValueError for one that cannot be read.
    """
    load = _loader()
    path = Path(path).expanduser()
    files = sorted(path.iterdir()) if path.is_dir() else [path] if path.is_file() else []
    files = [file for file in files if file.suffix in _BUILDERS]
    if not files:
        raise FileNotFoundError(f"{path} has no {', '.join(_BUILDERS)} file: give a copy of {copy_of}")
    suffix = files[0].suffix
    if any(file.suffix != suffix for file in files):
        raise ValueError(f"{path} has {suffix} and {files[-1].suffix} files: name the one to read")
    # "None" and "NA" are texts: answers of MMLU, for one.
    options: dict[str, Any] = {"keep_default_na": False} if _BUILDERS[suffix] == "csv" else {}
    options |= {"sep": "\t"} if suffix == ".tsv" else {}
    try:
        found = load(_BUILDERS[suffix], data_files=[str(file) for file in files], split="train", **options)
    except Exception as error:  # datasets wraps every reader's own errors
        raise ValueError(f"{path}: not readable as {suffix} ({error.__cause__ or error}): correct the file") from error
    return _rows(found, str(path))


def packaged_rows(name: str) -> list[Row]:
    """The rows of a shipped file, `data/packaged/{name}.jsonl`."""
    file = resources.files("lens_heads.tasks") / "data" / "packaged" / f"{name}.jsonl"
    return _rows((parse_json(line, str(file)) for line in read_text(file).splitlines()), f"{name}.jsonl")


def enough(n: int | None, have: int, what: str, usual: int | None = None) -> int:
    """How many to draw: `n`, by default all there are, or the `usual` number of them. ValueError when there are fewer."""
    if n is None:
        n = min(have, usual or have)
    if not 1 <= n <= have:
        raise ValueError(f"n={n}: there are {have} {what}: ask for 1 to {have}")
    return n


def _rows(rows: Iterable[Any], where: str) -> list[Row]:
    return [Row(f"{where}, row {number}", number, dict(row)) for number, row in enumerate(rows, 1)]


def _loader() -> Callable[..., Any]:
    try:
        from datasets import load_dataset
    except ImportError:
        raise ImportError("benchmark tables are read with the package datasets: pip install datasets") from None
    return load_dataset
