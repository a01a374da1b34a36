"""Look-ups in JSON: the answer is in the object, the examples are right, and the needle is the line of the key."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lens_heads.tasks.key_value import key_value
from tests import zoo


@given(
    n=st.integers(1, 4),
    shots=st.integers(0, 3),
    more=st.integers(1, 5),
    characters=st.integers(6, 32),
    split=st.sampled_from([None, "select", "test"]),
    seed=st.integers(0, 50),
)
def test_every_look_up_is_answered_by_the_object(
    n: int, shots: int, more: int, characters: int, split: str | None, seed: int
) -> None:
    trials = key_value(n=n, pairs=shots + more, characters=characters, shots=shots, split=split, seed=seed)
    assert trials == key_value(n=n, pairs=shots + more, characters=characters, shots=shots, split=split, seed=seed)
    assert len({trial.id for trial in trials}) == n
    for trial in trials:
        listed = json.loads(trial.needle)
        assert len(listed) == shots + more
        keys, values = trial.question.split("\n")[::2], trial.question.split("\n")[1::2]
        asked = [line.removeprefix("Key: ") for line in keys]
        assert len(set(asked)) == shots + 1
        assert [line.removeprefix("Value:").strip() for line in values] == [*(listed[key] for key in asked[:-1]), ""]
        assert trial.answer == listed[asked[-1]]
        assert list(listed)[trial.meta["place"]] == asked[-1]
        assert len(trial.answer) == characters


def test_the_needle_is_the_line_of_the_key() -> None:
    (trial,) = key_value(n=1, pairs=4, characters=6, shots=1)
    encoded = trial.encode(zoo.tokenizer())
    assert encoded.needle is not None
    assert zoo.tokenizer().decode(encoded.tokens[slice(*encoded.needle)]).strip() == trial.needle_focus
    assert trial.judge.correct(f" {trial.answer}\nKey:", [trial.answer]) == 1
    assert trial.judge.correct(f" {trial.answer[:-1]}", [trial.answer]) == 0


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"pairs": 3}, "pairs=3: must be an integer of at least 4, since every look-up asks another key"),
        ({"characters": 2}, "characters=2"),
        ({"n": 0}, "n=0"),
        ({"split": "train"}, "unknown split 'train'"),
    ],
)
def test_what_does_not_fit_is_named(how: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        key_value(**how)
