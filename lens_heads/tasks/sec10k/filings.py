"""Annual reports as sections and known facts: edgar-crawler's JSON files, rows of EDGAR-CORPUS, and those of the package.

EDGAR-CORPUS: Loukas et al., ECONLP 2021, arXiv 2109.14394. No section includes the cover page of a report.
"""

from __future__ import annotations

import json
import lzma
import re
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lens_heads.runs.reading import LARGEST, parse_json, read_text, reason, user_path
from lens_heads.tasks.books import data
from lens_heads.tasks.rows import DataRow, delimited, hub_rows, local_rows
from lens_heads.tasks.sampling import check_known, enough
from lens_heads.tasks.sec10k.settings import settings
from lens_heads.tasks.sec10k.values import clean_name, number, state_name

HUB = "c3po-ai/edgar-corpus"
HUB_SPLITS = ("train", "validation", "test")
_YEAR = re.compile(r"(?<!\d)(?:19|20)\d\d(?!\d)")


@dataclass(frozen=True)
class Filing:
    """One annual report: sections by name in document order ("item_1", "item_1A", ..), and the known true facts.

    `facts` maps tasks to true values, where known: numbers and years in digits, states by name. Raises ValueError for an
    unknown task, an empty fact, and a number or year that is not an integer.
    """

    id: str
    cik: str
    year: int
    company: str
    sections: dict[str, str]
    facts: dict[str, str]

    def __post_init__(self) -> None:
        known, facts = settings()["tasks"], dict(self.facts)
        for task, value in self.facts.items():
            check_known("task", task, known, where=f"filing {self.id}: ")
            if not value.strip():
                raise ValueError(f"filing {self.id}: the fact {task} is empty; omit unknown facts")
            if known[task]["kind"] in ("number", "year"):
                try:
                    facts[task] = number(value)
                except ValueError as error:
                    raise ValueError(f"filing {self.id}: the fact {task}: {error}") from None
        object.__setattr__(self, "facts", facts)


def read_filings(path: str | Path) -> list[Filing]:
    """The filings in a folder or .zip of edgar-crawler's JSON files, sorted by file name.

    Fields: `cik`, `company`, `item_1` .. `item_16` and, if known, `state_of_inc` and `state_location`. `company` and the two
    states give the facts registrant_name, incorporation_state and headquarters_state. They are EDGAR's current values, so
    no sentence states a headquarters that has since moved. States other than US states, D.C. and Puerto Rico (EDGAR's
    "A1", ..) count as unknown. The year comes from the file name, else from `period_of_report`.

    Raises FileNotFoundError if there are no such files, and ValueError, which names the file and the field.
    """
    filings = [_filing(name, parse_json(text, name)) for name, text in _json_files(user_path(path, "path"))]
    if not filings:
        raise FileNotFoundError(f"{path} contains no .json file: pass a folder or .zip of edgar-crawler's files")
    return filings


def read_corpus(
    path: str | Path | None = None, truth: str | Path | None = None, years: Sequence[int] = (1993,)
) -> list[Filing]:
    """Filings of EDGAR-CORPUS, from the hub for some years (all three splits, which are arbitrary) or from a local copy.

    Args:
        path: a local file or folder in the same format (`filename`, `cik`, `year`, `section_1` .. `section_15`; .jsonl,
            .json, .csv, .parquet), read for all years; None for the hub, `c3po-ai/edgar-corpus`.
        truth: a CSV of true values, one row per `filename`, in columns such as `registrant_name_truth` or
            `original_Inc_state_truth`, with "NULL" or nothing for unknown values. Only the filings in it are read.
            None: no value is known, so values are extracted from the text where possible.
        years: years to load from the hub.

    Raises FileNotFoundError or ValueError, which name the file and the field; ValueError if `truth` covers no filing.
    """
    facts = None if truth is None else _truth(user_path(truth, "truth"))
    if path is not None:
        rows = local_rows(path, f"{HUB}, one year")
    else:
        parts = [(f"year_{year}", split) for year in years for split in HUB_SPLITS]
        rows = [row for config, split in parts for row in hub_rows(HUB, config=config, split=split)]
    covered = [row for row in rows if facts is None or row.text("filename") in facts]
    if not covered:
        where = f"{path or HUB}: {len(rows)} filings"
        raise ValueError(f"{where}, none of them in {truth}; its column 'filename' must list them (718413_1993.txt)")
    return [
        Filing(
            id=row.text("filename").removesuffix(".txt").removesuffix(".htm"),
            cik=row.text("cik"),
            year=_year(row.text("year"), "", row.where),
            company=known.get("registrant_name", ""),
            sections=_sections(row, "section_"),
            facts=known,
        )
        for row in covered
        for known in [{} if facts is None else facts[row.text("filename")]]
    ]


def _json_files(path: Path) -> Iterator[tuple[str, str]]:
    """Name and text of every .json file, sorted by name."""
    if path.is_dir():
        for file in sorted(path.rglob("*.json")):
            yield str(file), read_text(file)
    elif zipfile.is_zipfile(path):
        try:
            with zipfile.ZipFile(path) as archive:
                for name in sorted(name for name in archive.namelist() if name.endswith(".json")):
                    if archive.getinfo(name).file_size > LARGEST:
                        raise ValueError(f"{path}, {name}: is larger than {LARGEST >> 30} GiB; split it")
                    yield f"{path}, {name}", read_text(zipfile.Path(archive, name))
        except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError) as error:  # RuntimeError: encrypted.
            raise ValueError(f"{path}: cannot be unpacked ({reason(error)}); download it again, or unpack it") from None
    else:
        raise FileNotFoundError(f"{path} is neither a folder nor a .zip: pass one of edgar-crawler's JSON files")


def _filing(name: str, fields: Any) -> Filing:
    if not isinstance(fields, dict):
        raise ValueError(f"{name}: expected an object {{cik, company, item_1, ..}}, got {type(fields).__name__}")
    row = DataRow(name, 0, fields)
    company = clean_name(row.text("company"))
    states = {"incorporation_state": "state_of_inc", "headquarters_state": "state_location"}
    known = {task: state_name(str(fields.get(field) or "")) for task, field in states.items()}
    stem = re.split(r"[/\\]", name)[-1].removesuffix(".json")
    return Filing(
        id=stem,
        cik=row.text("cik"),
        year=_year(stem.removeprefix(row.text("cik")), str(fields.get("period_of_report") or ""), name),
        company=company,
        sections=_sections(row, "item_"),
        facts={"registrant_name": company} | {task: state for task, state in known.items() if state},
    )


def _sections(row: DataRow, prefix: str) -> dict[str, str]:
    """The non-empty sections, named item_1, item_1A, .., in the order of the form."""
    names = [name for name in row.fields if re.fullmatch(prefix + r"\d{1,2}[A-C]?", name)]
    names.sort(key=lambda name: (int(re.findall(r"\d+", name)[0]), name))
    for name in names:
        if not isinstance(row.fields[name] or "", str):
            raise row.fault(name, "be the section's text")
    found = {
        "item_" + name.removeprefix(prefix): row.fields[name] for name in names if (row.fields[name] or "").strip()
    }
    if not found:
        raise ValueError(f"{row.where}: fields {prefix}1, {prefix}2, .. contain no text; at least one must")
    return found


def _year(first: str, second: str, where: str) -> int:
    found = _YEAR.search(first.replace("_", " ")) or _YEAR.search(second)
    if not found:
        raise ValueError(f"{where}: no year in the file name or field 'period_of_report': add one (1993-12-31)")
    return int(found[0])


def _truth(file: Path) -> dict[str, dict[str, str]]:
    """The known values by file name."""
    columns = settings()["truth_columns"]
    rows = delimited(file)
    have = list(rows[0]) if rows else []
    if "filename" not in have or not set(columns) & set(have):
        raise ValueError(f"{file}: columns must be filename and some of {', '.join(columns)}, got {', '.join(have)}")
    known: dict[str, dict[str, str]] = {}
    for row in rows:
        values = {columns[name]: row[name].strip() for name in columns if name in row}
        facts = {task: value for task, value in values.items() if value not in ("", "NULL")}
        if known.setdefault(name := row["filename"].strip(), facts) is not facts:
            raise ValueError(f"{file}: filename {name!r} occurs twice; keep one row")
    return known


HELD = 240
"""How many reports ship with the package."""


def packaged_filings(n: int = HELD) -> list[Filing]:
    """The first n fictional reports, each of another company. ValueError for more than there are.

    Each has the sections of a 10-K and 4,000 to 5,000 words. Every fact is stated in one sentence of its usual section, and in
    about one report in seven again elsewhere. Everything else is a distractor: part-time and last year's staff, beneficial
    holders, plants, former headquarters, subsidiaries' states and years, other officers and other companies. A value occurs
    only in the sentences that state it, with two exceptions: the registrant's name is also mentioned in passing, and if the
    headquarters are in the state of incorporation, both sentences contain that state. All text is original:
    `benchmarks/annual_reports.py` made it.

    Their id, such as "made-0-0017", doubles as the company's CIK; `facts` has all eight tasks, numbers in bare digits.
    """
    enough(n, HELD, "fictional companies")
    lines = lzma.decompress(data("annual_reports.jsonl.xz").read_bytes()).decode().splitlines()
    return [Filing(**json.loads(line)) for line in lines[:n]]
