"""Generated problems: exact, unique, none of them an example."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import datasets
import huggingface_hub
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lens_heads.tasks.arithmetic import arithmetic
from lens_heads.tasks.templates import template
from tests import zoo


def parts(trial: Any) -> tuple[int, str, int]:
    found = re.fullmatch(r"(\d+) ([-+*]) (\d+) =", trial.question)
    assert found
    return int(found[1]), found[2], int(found[3])


@given(
    n=st.integers(1, 60),
    digits=st.integers(1, 9),
    operations=st.lists(st.sampled_from("+-*"), min_size=1, unique=True),
    seed=st.integers(0, 9),
)
def test_answers_are_exact_and_problems_unique(n: int, digits: int, operations: list[str], seed: int) -> None:
    if digits == 1 and n > 30 * len(operations):
        return
    trials = arithmetic(n=n, digits=digits, operations=operations, seed=seed)
    problems = [parts(trial) for trial in trials]
    assert len(set(problems)) == len({trial.id for trial in trials}) == n
    for trial, (a, sign, b) in zip(trials, problems, strict=True):
        assert int(trial.answer) == {"+": a + b, "-": a - b, "*": a * b}[sign] >= 0
        assert len(str(a)) == len(str(b)) == digits
        assert f"\n{trial.question}" not in "\n" + trial.template, "an example gives the answer away"
        other = re.fullmatch(r"(\d+) ([-+*]) (\d+) =", trial.corrupt[0])
        assert other
        x, y = int(other[1]), int(other[3])
        assert other[2] == sign
        assert 0 <= {"+": x + y, "-": x - y, "*": x * y}[sign] != int(trial.answer)
        assert len(str(x)) == len(str(y)) == digits
    counts = Counter(sign for _, sign, _ in problems)
    assert max(counts.values()) - min(counts[sign] for sign in operations) <= 1
    assert trials == arithmetic(n=n, digits=digits, operations=operations, seed=seed)


@pytest.mark.parametrize("operation", "+-*")
def test_the_splits_are_halves_of_all_problems(operation: str) -> None:
    """One digit: every problem is in one of them, and with it the same one turned round."""

    every = {
        parts(trial) for trial in arithmetic(n={"-": 41, "+": 77, "*": 81}[operation], digits=1, operations=operation)
    }

    def all_of(split: str) -> set[tuple[int, str, int]]:
        too_many = len(every)
        with pytest.raises(
            ValueError, match=rf"n={too_many} is out of range: there are \d+ .* problems .* in the split '{split}'"
        ) as error:
            arithmetic(n=too_many, digits=1, operations=operation, split=split)
        have = int(str(error.value).split("there are ")[1].split()[0])
        return {parts(trial) for trial in arithmetic(n=have, digits=1, operations=operation, split=split)}

    select, test = all_of("select"), all_of("test")
    assert not select & test
    assert select | test == every
    assert 0.3 < len(select) / len(select | test) < 0.7
    assert not {(b, sign, a) for a, sign, b in select} & test


@pytest.mark.slow
@given(digits=st.integers(2, 9), operation=st.sampled_from("+-*"), seed=st.integers(0, 9))
@settings(max_examples=20)
def test_longer_problems_fall_into_splits_too(digits: int, operation: str, seed: int) -> None:
    select, test = (
        arithmetic(n=40, digits=digits, operations=operation, seed=seed, split=split) for split in ("select", "test")
    )
    assert len({trial.id for trial in select} | {trial.id for trial in test}) == 80
    assert select == arithmetic(n=40, digits=digits, operations=operation, seed=seed, split="select")
    assert len({trial.answer[-1] for trial in select}) > 4, "the halves are not told apart by the last digit"


def test_the_split_of_a_local_copy(tmp_path: Path) -> None:
    rows = [
        {"context": f"Question: What is {a} plus {b}?\nAnswer:", "completion": f" {a + b}"}
        for a in range(10, 20)
        for b in range(20, 30)
    ]
    file = write(tmp_path / "sums.jsonl", rows)
    halves = [
        {t.question for t in arithmetic(n=30, source="hub", path=file, split=half)} for half in ("select", "test")
    ]
    assert not halves[0] & halves[1]
    with pytest.raises(ValueError, match=r"n=100 is out of range: there are [2-7]\d rows in sums"):
        arithmetic(n=100, source="hub", path=file, split="test")


def test_examples_in_the_templates_are_right() -> None:
    for digits in (1, 2):
        shots = re.findall(r"(\d+) ([-+]) (\d+) = (\d+)", arithmetic(n=1, digits=digits)[0].template)
        assert len(shots) >= 4
        assert all(int(c) == (int(a) + int(b) if sign == "+" else int(a) - int(b)) for a, sign, b, c in shots)


def test_all_problems_can_be_asked_for_and_no_more() -> None:
    sums = {parts(trial) for trial in arithmetic(n=77, digits=1, operations="+")}
    shown = {(2, 3), (6, 5), (4, 8), (7, 2)}
    assert sums == {(a, "+", b) for a in range(1, 10) for b in range(1, 10) if (a, b) not in shown}
    differences = {parts(trial) for trial in arithmetic(n=41, digits=1, operations="-")}
    assert differences == {(a, "-", b) for a in range(1, 10) for b in range(1, a + 1)} - {
        (9, "-", 4),
        (7, "-", 5),
        (6, "-", 3),
        (8, "-", 2),
    }
    with pytest.raises(ValueError, match=r"n=42 is out of range: there are 41 '-' problems of 1 digits"):
        arithmetic(n=42, digits=1, operations="-")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"operations": ("+", "/")}, r"operations=\['\+', '/'\] must be one or more of '\+', '-', '\*', each once"),
        ({"operations": ()}, "operations=\\[\\]"),
        ({"operations": ("+", "+")}, "each once"),
        ({"digits": 0}, "digits=0"),
        ({"digits": 10}, "digits=10 is out of range: use 1 to 9"),
        ({"n": 0}, "n=0 is out of range: there are 8098 .* problems"),
        ({"n": -5}, "n=-5"),
        ({"split": "train"}, "unknown split 'train': use 'select' or 'test', or None for both"),
        ({"n": 10**20, "digits": 9, "split": "test"}, "there are 81[0-9]+ .* problems"),
    ],
)
def test_faults_are_named(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        arithmetic(**arguments)


def test_the_answer_follows_with_a_space() -> None:
    tokenizer = zoo.tokenizer()
    trial = arithmetic(n=1)[0]
    encoded = trial.encode(tokenizer)
    assert encoded.needle is None
    assert tokenizer.decode(encoded.tokens) == trial.template.replace("{question}", trial.question)
    assert tokenizer.decode(encoded.answer_tokens) == " " + trial.answer


def test_the_judge_takes_the_first_number() -> None:
    trial = next(trial for trial in arithmetic(n=20, digits=2, operations="-") if trial.answer != "0")
    wrong = str(int(trial.answer) + 1)
    texts = (f" {trial.answer}", f" {trial.answer}.0", f" {wrong}", f" {wrong} or {trial.answer}", "")
    assert [trial.judge.correct(text, [trial.answer]) for text in texts] == [1, 1, 0, 0, 0]


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")


def write(file: Path, rows: list[dict[str, Any]]) -> Path:
    file.parent.mkdir(exist_ok=True)
    file.write_text("\n".join(json.dumps(row) for row in rows))
    return file


SUMS = [
    {"context": f"Question: What is {a} plus {b}?\nAnswer:", "completion": f" {a + b}"}
    for a, b in [(91, 8), (3, 5), (40, 2)]
]
DIFFERENCES = [
    {"context": f"\n\nQ: What is {a} minus {b}?\n\nA:", "completion": f" {a - b}"} for a, b in [(9, 30), (8, 1)]
]


def test_worded_problems_from_a_local_copy(tmp_path: Path) -> None:
    """In the benchmark's form and in that of the raw files."""
    trials = {trial.id: trial for trial in arithmetic(n=3, source="hub", path=write(tmp_path / "sums.jsonl", SUMS))}
    assert set(trials) == {"arithmetic-hub-sums-1", "arithmetic-hub-sums-2", "arithmetic-hub-sums-3"}
    trial = trials["arithmetic-hub-sums-1"]
    assert (trial.question, trial.answer, trial.meta["operation"]) == ("What is 91 plus 8?", "99", "+")
    prompt = zoo.tokenizer().decode(trial.encode(zoo.tokenizer()).tokens)
    assert prompt.endswith("\n\nQuestion: What is 91 plus 8?\nAnswer:")
    raw = arithmetic(n=2, source="hub", path=write(tmp_path / "raw.jsonl", DIFFERENCES))
    assert {(t.question, t.answer) for t in raw} == {("What is 9 minus 30?", "-21"), ("What is 8 minus 1?", "7")}
    assert arithmetic(n=2, source="hub", path=tmp_path / "sums.jsonl", seed=1) == arithmetic(
        n=2, source="hub", path=tmp_path / "sums.jsonl", seed=1
    )


def test_the_hubs_raw_files_are_fetched_one_per_operation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def fetch(repo: str, name: str, repo_type: str) -> str:
        asked.append((repo, name, repo_type))
        return str(write(tmp_path / Path(name).name, SUMS if "addition" in name else DIFFERENCES))

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", fetch)
    trials = arithmetic(n=3, digits=3, source="hub")
    assert asked == [
        ("EleutherAI/arithmetic", "data/three_digit_addition.jsonl", "dataset"),
        ("EleutherAI/arithmetic", "data/three_digit_subtraction.jsonl", "dataset"),
    ]
    assert Counter(trial.meta["operation"] for trial in trials) == {"+": 2, "-": 1}
    assert all(trial.meta["file"] in trial.id for trial in trials)


def test_without_the_hub_the_error_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    def offline(*args: Any, **kwargs: Any) -> str:
        raise OSError("no route")

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", offline)
    with pytest.raises(
        FileNotFoundError, match=r"data/two_digit_addition.jsonl of EleutherAI/arithmetic .* copy as path="
    ):
        arithmetic(n=2, source="hub")


def test_the_worded_examples_are_right() -> None:
    shots = re.findall(r"What is (\d+) (plus|minus) (\d+)\?\nAnswer: (-?\d+)", template("arithmetic")["worded"])
    assert len(shots) == 4
    assert all(int(c) == int(a) + (int(b) if word == "plus" else -int(b)) for a, word, b, c in shots)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"context": "", "completion": "1"}, r"sums.jsonl, row 1: field 'context' is missing or empty"),
        (
            {"context": "What is 1 plus 2?", "completion": "3"},
            r"row 1: field 'context' must look like .*, got 'What is 1 plus 2\?'",
        ),
        (
            {"context": "Q: What is 1 plus 2? A:", "completion": "three"},
            r"row 1: field 'completion' must be an integer, got 'three'",
        ),
    ],
)
def test_a_wrong_row_is_named(tmp_path: Path, row: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        arithmetic(n=1, source="hub", path=write(tmp_path / "sums.jsonl", [row]))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"source": "web"}, "unknown source 'web': use 'generated' or 'hub'"),
        ({"path": "x"}, "path= requires source='hub'"),
        (
            {"source": "hub", "digits": 1},
            "digits=1, operations=.*: EleutherAI/arithmetic has only '\\+' and '-' of 2 to 5",
        ),
        ({"source": "hub", "digits": 3, "operations": "*"}, "digits=3, operations="),
        ({"source": "hub", "operations": ()}, "operations=\\[\\]"),
    ],
)
def test_faults_of_the_sources_are_named(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        arithmetic(**arguments)


def test_more_than_there_are_or_none_is_refused(tmp_path: Path) -> None:
    file = write(tmp_path / "sums.jsonl", SUMS)
    with pytest.raises(ValueError, match="n=4 is out of range: there are 3 rows in sums"):
        arithmetic(n=4, source="hub", path=file)
    with pytest.raises(ValueError, match="n=0"):
        arithmetic(n=0, source="hub", path=file)
