"""Ability: both questions of a passage, chance, and the word that is said."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import lens_heads as lh
from lens_heads.answering.ability import Ability
from lens_heads.answering.evaluation import Evaluation
from tests.conftest import tiny

TRIALS = lh.tasks.packaged(split="select", n=6, distractors=1, context_length=300)


def evaluation(right: list[float], ids: list[str], margin: float = 1.0) -> Evaluation:
    values = torch.tensor(right)
    metrics = {"choice": values, "choice_margin": margin * (2 * values - 1), "logprob": -torch.ones(len(values))}
    return Evaluation(tuple(ids), metrics, ("",) * len(ids), ("",) * len(ids))


IDS = [f"t{at}" for at in range(40)]
OTHERS = [f"{id}-exchanged" for id in IDS]


def test_what_is_chosen_whatever_is_asked_is_at_chance() -> None:
    """A model that always says the first name is right under exactly one of the two questions."""
    right = [float(at % 2) for at in range(40)]
    found = Ability(evaluation(right, IDS), evaluation([1 - one for one in right], OTHERS), 0.5)
    assert found.choice().value == 0.5
    assert not found.does
    assert str(found).startswith("does not do this task: right in 0.50")
    assert found.margin().value == 0


def test_a_choice_above_chance_under_both_questions_is_ability() -> None:
    right = [1.0] * 36 + [0.0] * 4
    found = Ability(evaluation(right, IDS), evaluation(right[::-1], OTHERS), 0.5)
    assert found.choice().value == pytest.approx(0.9)
    assert found.choice().low > 0.5
    assert found.does
    assert str(found).startswith("does this task: right in 0.90")
    assert "under both questions, chance 0.50" in str(found)
    frame = found.frame.set_index("measure")
    assert frame.loc["right choice, both questions", "value"] == pytest.approx(0.9)
    assert {"choice, as asked", "choice, exchanged", "choice_margin, exchanged", "logprob, as asked"} <= {*frame.index}


def test_few_trials_tell_nothing() -> None:
    found = Ability(evaluation([1.0] * 4, IDS[:4]), None, 0.5)
    assert not found.does
    assert str(found).startswith("cannot be told to do this task")


def test_both_questions_are_evaluated_on_one_passage(tmp_path: Path) -> None:
    model = tiny("llama-gqa")
    trials = [replace(one, length=0, haystack=one.haystack[:120]) for one in TRIALS[:2]]
    found = lh.ability(model, trials, out=tmp_path / "run", progress=False)
    asked = lh.evaluate(model, trials, generate=False, progress=False)
    other = lh.evaluate(model, lh.tasks.exchange_questions(trials), generate=False, progress=False)
    expected = (asked.metrics["choice_margin"].double() + other.metrics["choice_margin"].double()) / 2
    assert found.margin().value == pytest.approx(float(expected.mean()), rel=1e-6)
    assert found.chance == 0.5
    assert not found.does, "weights drawn at random"
    assert (tmp_path / "run" / "exchanged" / "run.json").exists()


def test_trials_without_choices_and_mixtures_are_refused() -> None:
    model: Any = tiny("llama-gqa")
    with pytest.raises(
        ValueError, match=r"has no choices to choose from: give choices=, or take packaged\(distractors=1\)"
    ):
        lh.ability(model, lh.tasks.packaged(n=1), progress=False)
    plain = replace(TRIALS[1], distractors=(), corrupt=())
    with pytest.raises(ValueError, match="has no distractor with a question, and others have"):
        lh.ability(model, [TRIALS[0], plain], progress=False)


def test_a_planted_model_does_its_task() -> None:
    planted = lh.planted_model()
    trials = planted.trials(8)
    words = sorted({one.answer for one in trials})
    tokens = {one.answer: one.answer_tokens for one in trials}
    choices = tuple(words)
    asked = [replace(one, choices=choices, choice_tokens=tuple(tokens[word] for word in choices)) for one in trials]
    found = lh.ability(planted.model, asked, progress=False)
    assert found.does
    assert found.exchanged is None
