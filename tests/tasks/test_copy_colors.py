"""Copying a colour's letter: every question is answered by its own text, and the counterfactual by another letter."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

import lens_heads as lh
from lens_heads.tasks.colored_objects import OBJECTS
from lens_heads.tasks.copy_colors import copy_colors
from lens_heads.trials.pairs import make_pairs
from tests.conftest import tiny


def right(asked: str) -> str:
    """The letter of the colour that a question tells, read off its text."""
    name, colour = re.findall(r"The (\w+) is (\w+)\.", asked)[0]
    assert f"What color is the {name}?" in asked
    (letter,) = re.findall(rf"^([A-D])\. {colour}$", asked, re.MULTILINE)
    return letter


@given(st.integers(1, 20), st.sampled_from(["select", "test"]), st.integers(0, 50), st.integers(2, 4))
def test_the_letter_marks_the_colour_that_was_told(n: int, split: str, seed: int, choices: int) -> None:
    trials = copy_colors(n=n, split=split, seed=seed, choices=choices)
    assert trials == copy_colors(n=n, split=split, seed=seed, choices=choices)
    for trial in trials:
        *shots, asked = trial.question.split("\n\n")
        assert len(shots) == 2
        assert all(shot.endswith(f"Answer: {right(shot)}") for shot in shots)
        assert asked.endswith("Answer:")
        assert right(asked) == trial.answer
        assert len(trial.choices) == choices
        *same, corrupt = trial.corrupt[0].split("\n\n")
        assert same == shots
        assert right(corrupt) == trial.meta["corrupt_answer"] != trial.answer
        assert sorted(re.findall(r"[A-D]\. (\w+)", corrupt)) == sorted(re.findall(r"[A-D]\. (\w+)", asked))
        assert trial.meta["object"] in OBJECTS[split]


def test_every_letter_is_right_sometimes() -> None:
    answers = [trial.answer for trial in copy_colors(n=200)]
    assert all(answers.count(letter) > 30 for letter in "ABCD")


def test_pairs_keep_the_length() -> None:
    model, trials = tiny("llama-gqa"), copy_colors(n=8)
    pairs = make_pairs(trials, model.tokenizer, lh.head_geometry(model), corruption="counterfactual")
    assert [pair.id for pair in pairs] == [trial.id for trial in trials]


@pytest.mark.parametrize("choices", [1, 5])
def test_a_letter_for_every_choice(choices: int) -> None:
    with pytest.raises(ValueError, match=f"choices={choices}"):
        copy_colors(choices=choices)
