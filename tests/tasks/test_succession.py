"""Successions: what follows in a sequence, without the word before or any shown one being right."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lens_heads.tasks.succession import CYCLES, HALVES, SEQUENCES, succession


@given(
    n=st.integers(1, 15),
    shown=st.integers(1, 4),
    split=st.sampled_from([None, "select", "test"]),
    seed=st.integers(0, 50),
)
def test_the_answer_follows(n: int, shown: int, split: str | None, seed: int) -> None:
    trials = succession(n=n, shown=shown, split=split, seed=seed)
    assert trials == succession(n=n, shown=shown, split=split, seed=seed)
    assert len({trial.id for trial in trials}) == n
    for trial in trials:
        words = SEQUENCES[trial.meta["kind"]]
        seen = trial.question.removesuffix(",").split(", ")
        places = [words.index(word) for word in [*seen, trial.answer]]
        steps = [b - a for a, b in pairwise(places)]
        assert all(step == 1 or (step == 1 - len(words) and trial.meta["kind"] in CYCLES) for step in steps)
        assert len(seen) == shown
        assert {trial.answer, seen[-1]} <= set(trial.choices) <= set(words)
        assert len(set(trial.choices)) == 4
        assert not set(seen[:-1]) & set(trial.choices)
        assert split is None or trial.meta["kind"] in HALVES[split]


def test_every_place_comes_once() -> None:
    trials = succession(n=None, shown=3, split="select")
    assert len(trials) == 7 + (26 - 3) + (10 - 3)
    assert not set(HALVES["select"]) & set(HALVES["test"])
    assert {name for half in HALVES.values() for name in half} == set(SEQUENCES)


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"shown": 5}, "shown=5"),
        ({"n": 99, "split": "select"}, "n=99 is out of range: there are 37 places in these sequences"),
        ({"split": "train"}, "unknown split 'train'"),
    ],
)
def test_what_does_not_fit_is_named(how: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        succession(**how)
