"""GSM8K: rows become worked solutions or bare numbers; verdicts; the examples are right; faults are named."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import datasets
import pytest

from lens_heads.tasks.gsm8k import gsm8k
from lens_heads.tasks.templates import template
from tests import zoo
from tests.tasks.row_files import write

ROWS = [
    {
        "question": "A crate holds 12 bottles. How many do 3 crates and 5 single bottles make?",
        "answer": "The crates hold 3*12=<<3*12=36>>36 bottles.\nWith the others that is 36+5=<<36+5=41>>41.\n#### 41",
    },
    {
        "question": "A town of 1,300 grows by 20. How many live there?",
        "answer": "1,300+20=<<1300+20=1320>>1,320\n#### 1,320",
    },
    {"question": "It is 3 degrees and falls by 5. How cold is it?", "answer": "3-5=<<3-5=-2>>-2\n#### -2"},
]


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")


@pytest.mark.parametrize("name", ["mine.jsonl", "mine.parquet"])
def test_a_row_becomes_its_worked_solution(tmp_path: Path, name: str) -> None:
    trials = {trial.id: trial for trial in gsm8k(path=write(tmp_path / name, ROWS))}
    assert sorted(trials) == ["gsm8k-mine-1", "gsm8k-mine-2", "gsm8k-mine-3"]
    trial = trials["gsm8k-mine-1"]
    assert trial.question == ROWS[0]["question"]
    assert trial.answer == "The crates hold 3*12=36 bottles.\nWith the others that is 36+5=41.\n#### 41"
    assert trial.meta == {"kind": "gsm8k", "source": "mine", "steps": 2}
    encoded = trial.encode(zoo.tokenizer())
    assert zoo.tokenizer().decode(encoded.tokens).endswith(f"#### 110\n\nQuestion: {trial.question}\nAnswer:")
    assert zoo.tokenizer().decode(encoded.answer_tokens) == f" {trial.answer}"


@pytest.mark.parametrize(
    ("text", "right"),
    [
        (" 36 + 5 is 41.\n#### 41\n\nQuestion: A boat\nAnswer: #### 7", 1),
        (" 36 + 5\n\nso #### 41.0", 1),
        (" That makes 41 bottles.", 1),
        (" 41 and then 5 more.\n#### 46", 0),
        (" #### forty-one", 0),
        ("", 0),
    ],
)
def test_a_solution_is_judged_by_its_final_number(tmp_path: Path, text: str, right: float) -> None:
    (trial,) = gsm8k(path=write(tmp_path / "mine.jsonl", ROWS[:1]))
    assert trial.judge.correct(text, [trial.answer]) == right
    assert trial.judge.ended(text) == ("\n\nQuestion:" in text)


def test_without_reasoning_the_answer_is_the_number(tmp_path: Path) -> None:
    trials = {trial.id[-1]: trial for trial in gsm8k(path=write(tmp_path / "mine.jsonl", ROWS), reasoning=False)}
    assert [trials[i].answer for i in "123"] == ["41", "1,320", "-2"]
    assert trials["2"].judge.correct(" 1320 people\n7", ["1,320"]) == 1
    assert trials["2"].judge.correct(" about 1300, no, 1320", ["1,320"]) == 0
    assert trials["2"].judge.correct("\n1320", ["1,320"]) == 0
    assert trials["2"].judge.ended(" 1320\n")
    assert "Answer: 450\n\nQuestion: Ingrid" in trials["2"].template


def test_the_examples_are_right_and_the_same_with_and_without_reasoning() -> None:
    shots = template("gsm8k")
    solutions = re.findall(r"Question: (.+)\nAnswer: ((?:.+\n)+)", shots["template"])
    bare = re.findall(r"Question: (.+)\nAnswer: (.+)\n", shots["direct"])
    assert len(solutions) == 4
    assert [(question, text.split("#### ")[1].strip()) for question, text in solutions] == bare
    for _, text in solutions:
        steps = re.findall(r"(\d+(?: [-+*/] \d+)+) = (\d+)", text)
        assert len(steps) == text.count("=") >= 3
        for left, right in steps:
            assert eval(left) == int(right)
        assert text.strip().endswith(f"#### {steps[-1][1]}")


def test_the_hub_is_asked_for_a_split_of_main(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(datasets, "load_dataset", lambda *args, **kwargs: asked.append((args, kwargs)) or ROWS * 80)
    assert len(gsm8k()) == 200
    assert {trial.meta["source"] for trial in gsm8k(n=3, split="train")} == {"train"}
    assert asked == [(("openai/gsm8k", "main"), {"split": "test"}), (("openai/gsm8k", "main"), {"split": "train"})]
    assert gsm8k(n=5, seed=1) == gsm8k(n=5, seed=1)
    assert [trial.id for trial in gsm8k(n=5, seed=1)] != [trial.id for trial in gsm8k(n=5, seed=2)]


def test_without_the_hub_the_error_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    def offline(*args: Any, **kwargs: Any) -> None:
        raise ConnectionError("no route")

    monkeypatch.setattr(datasets, "load_dataset", offline)
    with pytest.raises(FileNotFoundError, match=r"could not load openai/gsm8k main test .*pass a local copy as path="):
        gsm8k()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"answer": "It is 41."},
            r"mine.jsonl, row 1: field 'answer' must be a worked solution that ends .* got 'It is 41.'",
        ),
        ({"answer": "Sum.\n#### many"}, r"row 1: field 'answer' must .*a number, got 'Sum"),
        ({"answer": "Sum.\n####"}, r"row 1: field 'answer' must be"),
        ({"answer": "#### 41"}, r"row 1: field 'answer' must be a worked solution .* got '#### 41'"),
        ({"answer": ""}, r"row 1: field 'answer' is missing or empty"),
        ({"question": None}, r"row 1: field 'question' is missing or empty; it must contain text"),
    ],
)
def test_a_wrong_row_is_named(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        gsm8k(path=write(tmp_path / "mine.jsonl", [{**ROWS[0], **change}]))


def test_other_faults_are_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="unknown split 'validation': use 'test' or 'train'"):
        gsm8k(split="validation")
    with pytest.raises(ValueError, match=r"n=4 is out of range: there are 3 problems in .*mine.jsonl"):
        gsm8k(n=4, path=write(tmp_path / "mine.jsonl", ROWS))
    with pytest.raises(FileNotFoundError, match="pass a copy of openai/gsm8k, main, test"):
        gsm8k(path=tmp_path / "none.jsonl")
