"""Continuations: the shipped situations give nothing away by place or length, and become trials as they stand."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lens_heads.tasks import prose
from lens_heads.tasks.continuation import continuation
from tests import zoo

FILE = Path(prose.__file__).parent / "data" / "packaged" / "continuation.jsonl"
ROWS: list[dict[str, Any]] = [json.loads(line) for line in FILE.read_text(encoding="ascii").splitlines()]
SPLITS = ("select", "test")


def of(split: str) -> list[dict[str, Any]]:
    return [row for row in ROWS if row["split"] == split]


def test_every_situation_is_whole_and_comes_once() -> None:
    assert all(set(row) == {"id", "context", "endings", "label", "split"} for row in ROWS)
    assert [len(of(split)) for split in SPLITS] == [40, 40]
    for what in ("id", "context"):
        assert len({row[what] for row in ROWS}) == len(ROWS)
    every = [ending for row in ROWS for ending in row["endings"]]
    assert len(set(every)) == len(every) == 4 * len(ROWS)
    assert all(ending.endswith(".") and ending == ending.strip() for ending in every)
    assert all(row["context"][0].isupper() and row["context"][-1].isalpha() for row in ROWS)


@pytest.mark.parametrize("split", SPLITS)
def test_the_right_ending_is_at_every_place_equally_often(split: str) -> None:
    assert Counter(row["label"] for row in of(split)) == dict.fromkeys(range(4), 10)


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("pick", [min, max])
@pytest.mark.parametrize("length", [len, lambda ending: len(ending.split())])
def test_length_does_not_tell(split: str, pick: Callable[..., int], length: Callable[[str], int]) -> None:
    """A rule that picks the longest or the shortest ending, one of them where several are as long."""
    right = 0.0
    for row in of(split):
        lengths = [length(ending) for ending in row["endings"]]
        ends = [place for place in range(4) if lengths[place] == pick(lengths)]
        right += (row["label"] in ends) / len(ends)
    assert right / len(of(split)) < 0.4


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["id"])
def test_endings_are_of_like_length(row: dict[str, Any]) -> None:
    lengths = [len(ending) for ending in row["endings"]]
    assert max(lengths) - min(lengths) <= 12


def test_trials_are_the_rows() -> None:
    trials = {trial.id: trial for trial in continuation()}
    assert len(trials) == len(ROWS)
    for row in ROWS:
        trial = trials[f"continuation-{row['id']}"]
        assert trial.choices == tuple(row["endings"])
        assert trial.answer == row["endings"][row["label"]]
        assert trial.meta == {"split": row["split"], "kind": "continuation"}
        prompt = zoo.tokenizer().decode(trial.encode(zoo.tokenizer()).tokens)
        assert prompt == row["context"]


def test_splits_and_draws() -> None:
    for split in SPLITS:
        assert {trial.id for trial in continuation(split=split)} == {f"continuation-{row['id']}" for row in of(split)}
    assert continuation(n=10, seed=3) == continuation(n=10, seed=3) != continuation(n=10, seed=4)
    assert {trial.meta["split"] for trial in continuation(n=10, split="test")} == {"test"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"n": 41, "split": "test"}, "n=41 is out of range: there are 40 situations; use 1 to 40"),
        ({"n": 0}, "n=0"),
        ({"split": "validation"}, "unknown split 'validation': use 'select' or 'test', or None"),
    ],
)
def test_faults_are_named(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        continuation(**arguments)
