"""Reports from edgar-crawler's files and from EDGAR-CORPUS: exact filings, and faults that are named."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import datasets
import pytest

from lens_heads.tasks.sec10k.filings import Filing, read_corpus, read_filings

CRAWLED = {
    "cik": "1000685",
    "company": "HOME HEALTH CORP OF AMERICA INC \\PA\\",
    "state_of_inc": "PA",
    "state_location": "A1",
    "period_of_report": "1997-06-30",
    "filename": "1000685_10K_1997_0000950109-97-006109.htm",
    "item_1": "Home Health Corporation of America, Inc. is old.",
    "item_1A": "",
    "item_10": "Officers.",
    "item_2": "Offices.",
    "item_7A": "  ",
}
ROWS = [
    {
        "filename": "92116_1993.txt",
        "cik": "92116",
        "year": "1993",
        "section_1": "Water.",
        "section_1A": "",
        "section_10": "X.",
    },
    {
        "filename": "999_1993.txt",
        "cik": "999",
        "year": "1993",
        "section_1": "Other.",
        "section_1A": "",
        "section_10": "Y.",
    },
]
TRUTH = (
    "filename,cik,year,registrant_name_truth,original_Inc_state_truth,original_Inc_year_truth,employee_count_truth,"
    "headquarters_city_truth,ceo_lastname_truth,note\n"
    '92116_1993.txt,92116,1993,"Southern Water, Inc",Pennsylvania ,1929.0,"14,200",NULL,,kept\n'
    "5_1993.txt,5,1993,NULL,NULL,NULL,NULL,NULL,NULL,\n"
)


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")


def crawled(folder: Path, name: str = "1000685_10K_1997_0000950109-97-006109.json", **changes: Any) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(json.dumps({**CRAWLED, **changes}))
    return folder


def corpus(file: Path, rows: list[dict[str, Any]] = ROWS) -> Path:
    file.write_text("\n".join(json.dumps(row) for row in rows))
    return file


def test_a_crawled_file_becomes_a_filing(tmp_path: Path) -> None:
    expected = Filing(
        id="1000685_10K_1997_0000950109-97-006109",
        cik="1000685",
        year=1997,
        company="HOME HEALTH CORP OF AMERICA INC",
        sections={"item_1": CRAWLED["item_1"], "item_2": "Offices.", "item_10": "Officers."},
        facts={"registrant_name": "HOME HEALTH CORP OF AMERICA INC", "incorporation_state": "Pennsylvania"},
    )
    assert read_filings(crawled(tmp_path / "10-K")) == [expected], "A1 is abroad: not known"
    assert list(expected.sections) == ["item_1", "item_2", "item_10"]
    with zipfile.ZipFile(tmp_path / "10-K.zip", "w") as archive:
        for file in (tmp_path / "10-K").iterdir():
            archive.write(file, f"10-K/{file.name}")
    assert read_filings(tmp_path / "10-K.zip") == [expected]


def test_the_year_is_the_file_names_or_the_reports(tmp_path: Path) -> None:
    assert read_filings(crawled(tmp_path / "a", "report.json"))[0].year == 1997
    assert read_filings(crawled(tmp_path / "b", "1999_10K_2001_x.json", cik="1999"))[0].year == 2001
    with pytest.raises(ValueError, match=r"report.json: no year in the file name or field 'period_of_report'"):
        read_filings(crawled(tmp_path / "c", "report.json", period_of_report=""))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"cik": ""}, r"x_1997.json: field 'cik' is missing or empty"),
        ({"company": None}, r"x_1997.json: field 'company' is missing or empty"),
        ({"item_1": "", "item_2": "", "item_10": ""}, r"x_1997.json: fields item_1, item_2, .. contain no text"),
        ({"item_2": ["a"]}, r"x_1997.json: field 'item_2' must be the section's text, got .'a'."),
    ],
)
def test_a_faulty_file_is_named(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_filings(crawled(tmp_path / "10-K", "x_1997.json", **changes))


def test_missing_files_are_named(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(FileNotFoundError, match=r"empty contains no .json file: pass a folder or .zip"):
        read_filings(tmp_path / "empty")
    with pytest.raises(FileNotFoundError, match=r"none is neither a folder nor a .zip"):
        read_filings(tmp_path / "none")
    (tmp_path / "list_1997.json").write_text("[]")
    with pytest.raises(ValueError, match=r"list_1997.json: expected an object {cik, .*, got list"):
        read_filings(tmp_path)


def test_the_corpus_with_its_true_values(tmp_path: Path) -> None:
    truth = tmp_path / "truth.csv"
    truth.write_text(TRUTH)
    filings = read_corpus(corpus(tmp_path / "c.jsonl"), truth)
    facts = {
        "registrant_name": "Southern Water, Inc",
        "incorporation_state": "Pennsylvania",
        "incorporation_year": "1929",
        "employees_count_total": "14200",
    }
    sections = {"item_1": "Water.", "item_10": "X."}
    assert filings == [Filing("92116_1993", "92116", 1993, "Southern Water, Inc", sections, facts)]
    assert [(each.id, each.facts) for each in read_corpus(tmp_path / "c.jsonl")] == [
        ("92116_1993", {}),
        ("999_1993", {}),
    ]


def test_the_hub_is_asked_for_all_splits_of_each_year(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def load(*args: Any, split: str) -> list[dict[str, Any]]:
        asked.append((*args, split))
        return ROWS[:1] if split == "test" else []

    monkeypatch.setattr(datasets, "load_dataset", load)
    assert [filing.id for filing in read_corpus(years=(1993, 1994))] == ["92116_1993", "92116_1993"]
    splits = ("train", "validation", "test")
    assert asked == [("c3po-ai/edgar-corpus", f"year_{year}", split) for year in (1993, 1994) for split in splits]


def test_faults_of_the_corpus_are_named(tmp_path: Path) -> None:
    file, truth = corpus(tmp_path / "c.jsonl"), tmp_path / "truth.csv"
    truth.write_text(TRUTH.replace("92116_1993.txt", "1_1993.txt"))
    with pytest.raises(
        ValueError, match=r"c.jsonl: 2 filings, none of them in .*truth.csv; its column 'filename' must"
    ):
        read_corpus(file, truth)
    truth.write_text("file,cik\na,b\n")
    with pytest.raises(
        ValueError, match=r"truth.csv: columns must be filename and some of registrant_n.*, got file, cik"
    ):
        read_corpus(file, truth)
    truth.write_text(TRUTH.replace('"14,200"', "many"))
    with pytest.raises(ValueError, match=r"filing .*: the fact employees_count_total: 'many' is not an integer"):
        read_corpus(file, truth)
    with pytest.raises(ValueError, match=r"row 1: field 'cik' is missing or empty"):
        read_corpus(corpus(tmp_path / "d.jsonl", [{**ROWS[0], "cik": ""}]))
    with pytest.raises(FileNotFoundError, match=r"truth2.csv does not exist"):
        read_corpus(file, tmp_path / "truth2.csv")
    with pytest.raises(FileNotFoundError, match=r"none does not exist: pass a copy of .*, one year"):
        read_corpus(tmp_path / "none")


def test_facts_of_a_filing_are_of_known_tasks() -> None:
    with pytest.raises(ValueError, match=r"filing a: unknown task 'name': use 'registrant_name', "):
        Filing("a", "1", 1993, "A", {"item_1": "A."}, {"name": "A"})
    with pytest.raises(ValueError, match=r"filing a: the fact ceo_lastname is empty; omit unknown facts"):
        Filing("a", "1", 1993, "A", {"item_1": "A."}, {"ceo_lastname": " "})
    with pytest.raises(ValueError, match=r"filing a: the fact incorporation_year: '19th' is not an integer"):
        Filing("a", "1", 1993, "A", {"item_1": "A."}, {"incorporation_year": "19th"})
