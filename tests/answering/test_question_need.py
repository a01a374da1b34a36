"""Does the question decide: shares of what the needle is worth, other questions, and planted heads of both kinds."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

import lens_heads as lh
from lens_heads.answering.evaluation import Evaluation
from lens_heads.answering.question_need import QuestionNeed
from tests.conftest import random_trial, real_model, tiny

IDS = tuple(f"t{at}" for at in range(20))


def evaluation(nats: float, spread: float = 0.1) -> Evaluation:
    values = nats + spread * torch.linspace(-1, 1, len(IDS))
    return Evaluation(IDS, {"logprob": values}, ("",) * len(IDS), ("",) * len(IDS))


@pytest.mark.parametrize(
    ("other", "decides", "says"), [(-1.4, False, "does not decide"), (-8.0, True, "the question decides")]
)
def test_the_share_of_the_needle_s_worth_that_another_question_takes(other: float, decides: bool, says: str) -> None:
    found = QuestionNeed(evaluation(-1.0), evaluation(other), evaluation(-9.0))
    assert found.share().value == pytest.approx((-1.0 - other) / 8)
    assert found.benefit().value == pytest.approx(-1.0 - other)
    assert found.decides is decides
    assert says in str(found)
    assert list(found.frame["logprob" if "logprob" in found.frame else "value"]) == pytest.approx([-1.0, other, -9.0])


def test_few_trials_and_needles_without_worth_tell_nothing() -> None:
    few = [evaluation(nats).of(IDS[:4]) for nats in (-1.0, -8.0, -9.0)]
    assert QuestionNeed(*few).decides is None
    assert "takes 0.88 [no interval] of what the needle is worth" in str(QuestionNeed(*few))
    worthless = QuestionNeed(evaluation(-1.0), evaluation(-1.0), evaluation(-1.0))
    assert worthless.decides is None
    assert "cannot be told" in str(worthless)


def test_every_question_is_asked_of_another_passage() -> None:
    trials = lh.tasks.packaged(split="test", n=30)
    others = lh.sanity.permuted_questions(trials, seed=3)
    assert sorted(one.question for one in others) == sorted(one.question for one in trials)
    for trial, other in zip(trials, others, strict=True):
        assert other.question != trial.question
        giver = next(one for one in trials if other.id == f"{trial.id}-question-of-{one.id}")
        assert giver.group != trial.group
        assert giver.answer != trial.answer
        assert replace(other, id=trial.id, question=trial.question, corrupt=trial.corrupt) == trial
    with pytest.raises(ValueError, match="would get no question of another trial"):
        lh.sanity.permuted_questions(trials[:1])
    with pytest.raises(ValueError, match="is in tokens"):
        lh.sanity.permuted_questions(random_trial(0))


@pytest.mark.slow
def test_three_prompts_of_every_trial(tmp_path: Path) -> None:
    """The gold answer stays; with a distractor, the other question is its own."""
    model, trials = tiny("llama-gqa"), lh.tasks.packaged(split="select", n=6, distractors=1, context_length=300)
    found = lh.question_need(model, trials, out=tmp_path / "run", progress=False)
    asked = lh.evaluate(model, trials, generate=False, progress=False)
    swapped = [
        replace(trial, question=other.question, corrupt=())
        for trial, other in zip(trials, lh.tasks.exchange_questions(trials), strict=True)
    ]
    other = lh.evaluate(model, swapped, generate=False, progress=False)
    bare = lh.evaluate(model, lh.sanity.without_needle(trials), generate=False, progress=False)
    for mine, expected in zip((found.asked, found.other, found.without), (asked, other, bare), strict=True):
        torch.testing.assert_close(mine.metrics["logprob"], expected.metrics["logprob"], rtol=1e-4, atol=1e-4)
        assert mine.trial_ids == asked.trial_ids
    assert {path.name for path in (tmp_path / "run").iterdir()} >= {"other", "without"}
    mixed = [trials[0], *lh.tasks.packaged(split="test", n=1)]
    with pytest.raises(ValueError, match="has no distractor with a question, and others have"):
        lh.question_need(model, mixed)


@pytest.mark.real
@pytest.mark.slow
def test_the_packaged_trials_without_distractors_do_not_need_their_question() -> None:
    gemma = real_model("gemma-3-270m")
    found = lh.question_need(
        gemma, lh.tasks.packaged(split="select", n=16, context_length=320), batch_size=8, progress=False
    )
    assert found.decides is False, str(found)
