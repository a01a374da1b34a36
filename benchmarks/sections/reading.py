"""What benchmarks and studies have stored: one JSON line per run of a benchmark, one JSON file per study."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Row = dict[str, Any]


@dataclass(frozen=True)
class Results:
    """The folder of measured files."""

    folder: Path

    def runs(self, name: str) -> list[Row]:
        """Every run of a benchmark, oldest first. ValueError for a file without any."""
        text = (self.folder / f"{name}.jsonl").read_text(encoding="utf-8")
        found = [json.loads(line) for line in text.splitlines() if line.strip()]
        if not found:
            raise ValueError(f"{self.folder / name}.jsonl holds no run: run python benchmarks/{name}.py")
        return found

    def latest(self, name: str) -> Row:
        """The newest run of a benchmark."""
        return self.runs(name)[-1]

    def latest_by_model(self, name: str) -> dict[str, Row]:
        """The newest run of every model, of a benchmark that stores one line per model."""
        return {run["results"]["model"]: run for run in self.runs(name)}

    def study(self, name: str) -> Any:
        """A study's summary, or whatever a file of this name holds."""
        return json.loads((self.folder / f"{name}.json").read_text(encoding="utf-8"))


def described(benchmark: str) -> str:
    """What a benchmark measures, in the words of its own docstring, without how it is run and where it writes."""
    file = Path(__file__).parent.parent / f"{benchmark}.py"
    text = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or ""
    paragraphs = ["\n- ".join(" ".join(item.split()) for item in one.split("\n- ")) for one in text.split("\n\n")]
    skipped = ("Prints ", "Appends ", "Run:")
    return "\n\n".join(one.split(" Prints ")[0] for one in paragraphs if not one.startswith(skipped))


def measured_by(command: str, runs: Iterable[Row], *files: str) -> str:
    """Which command measured a table, when, on what, with which versions, and where the data are."""
    dates: dict[str, list[str]] = {}
    for run in runs:
        dates.setdefault(f"{machine(run)}; {versions(run)}", []).append(run["date"])
    said = "; ".join(f"{' and '.join(dict.fromkeys(when))}, {where}" for where, when in dates.items())
    return f"Measured by `{command}` ({said}). Data: {links(files)}."


def study_by(found: Row, file: str) -> str:
    """The same of a study, which stores its versions, how long its stages took, and sums of the weights and of a model's file."""
    parts = [*found["models"].values(), *found.get("pairs", [])]
    minutes = sum(sum(part["seconds"].values()) for part in parts) / 60
    sums = "; ".join(_sums(name, one) for name, one in by_model(found).items())
    return (
        f"Measured by `{found['command']}` ({minutes:.0f} minutes; {versions(found)}; the file does not say on which "
        f"machine). Models: {sums}. Data: {links([file])}."
    )


def _sums(name: str, one: Row) -> str:
    """A model's dtype, the hash of its weights, and the sum of its file, if it is one."""
    about = one["settings"]
    file = f", file sha256 {one['file_sha256']}" if one["file_sha256"] else ""
    return f"{name} in {about['dtype'].removeprefix('torch.')}, weights {about['weights']}{file}"


def by_model(found: Row) -> dict[str, Row]:
    """What a study found in each model, by the model's short name."""
    return {short(name): one for name, one in found["models"].items()}


def short(model: str) -> str:
    """A model's name without its folder or organisation, and without the end of its file's name."""
    return Path(model).name.removesuffix(".gguf")


def machine(run: Row) -> str:
    return f"{run['cores']} {'CPU ' if run['versions']['torch'].endswith('+cpu') else ''}cores, Python {run['python']}"


def versions(run: Row) -> str:
    return ", ".join(f"{package} {version}" for package, version in run["versions"].items())


def links(files: Iterable[str]) -> str:
    return ", ".join(f"[{file}](results/{file})" for file in files)


def pick(rows: Iterable[Row], **wanted: Any) -> list[Row]:
    """The rows whose fields have these values."""
    return [row for row in rows if all(row.get(name) == value for name, value in wanted.items())]


def only(rows: Iterable[Row], **wanted: Any) -> Row:
    """The one row with these values. ValueError for none or several."""
    found = pick(rows, **wanted)
    if len(found) != 1:
        raise ValueError(f"{len(found)} rows have {wanted}, not one")
    return found[0]
