"""Coloured objects: scenes, questions, counterfactuals and halves."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

import lens_heads as lh
from lens_heads.tasks.colored_objects import COLOURS, OBJECTS, colored_objects
from lens_heads.trials.pairs import make_pairs
from tests.conftest import tiny


@given(st.integers(1, 20), st.sampled_from(["select", "test"]), st.integers(0, 50))
def test_the_answer_is_the_colour_in_the_scene(n: int, split: str, seed: int) -> None:
    trials = colored_objects(n=n, split=split, seed=seed)
    assert trials == colored_objects(n=n, split=split, seed=seed)
    for trial in trials:
        example, scene = trial.question.split("\n")
        for line, answer in (
            (example, example.split()[-1]),
            (scene, trial.answer),
            (trial.corrupt[0].split("\n")[1], None),
        ):
            colour = {name: color for color, name in re.findall(rf"an? ({'|'.join(COLOURS)}) (\w+)", line)}
            assert set(colour) <= set(OBJECTS[split])
            asked = re.findall(r"color is the (\w+)\?", line)[0]
            assert colour[asked] == (answer or trial.meta["corrupt_answer"])
        assert trial.corrupt != (trial.question,)
        assert trial.meta["corrupt_answer"] != trial.answer
        assert trial.answer in trial.choices
        assert not re.search(r"\ba (orange)|\ban (?!orange)", trial.question)


def test_halves_share_no_object() -> None:
    assert not set(OBJECTS["select"]) & set(OBJECTS["test"])


def test_the_counterfactual_asks_about_another_object() -> None:
    model = tiny("llama-gqa")
    trials = [trial for trial in colored_objects(n=40) if len(trial.question) == len(trial.corrupt[0])]
    pairs = make_pairs(trials, model.tokenizer, lh.head_geometry(model), corruption="counterfactual")
    assert len(pairs) == len(trials) > 5
    for trial, pair in zip(trials, pairs, strict=True):
        assert trial.question in model.tokenizer.decode(pair.tokens)
        assert trial.corrupt[0] in model.tokenizer.decode(pair.corrupt)
        assert model.tokenizer.decode(pair.answer_tokens).strip() == trial.answer
    with pytest.raises(ValueError, match="has no counterfactual: give the trial corrupt="):
        make_pairs(lh.tasks.rhyme(n=1), model.tokenizer, lh.head_geometry(model), corruption="counterfactual")
