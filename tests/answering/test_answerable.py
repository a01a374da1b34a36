"""Which trials count: right with the needle and not without it."""

from __future__ import annotations

from itertools import product

import pytest
import torch

import lens_heads as lh
from lens_heads.answering.answerable import answerable
from lens_heads.answering.evaluation import Evaluation
from lens_heads.trials.trial import Trial
from tests import planted

TRIALS = [Trial(f"t{i}", "Who?", "x", haystack="h", needle="x.") for i in range(4)]


def evaluation(values: list[float], metric: str = "correct", ids: list[str] | None = None) -> Evaluation:
    names = tuple(ids or [f"t{i}" for i in range(len(values))])
    return Evaluation(names, {metric: torch.tensor(values)}, ("",) * len(names), ("x",) * len(names))


def test_only_what_the_needle_answers_counts() -> None:
    """The four combinations: only right with it and wrong without it stays."""
    cases = list(product([1.0, 0.0], [1.0, 0.0]))
    found = answerable(TRIALS, evaluation([a for a, _ in cases]), evaluation([b for _, b in cases]))
    assert [trial.id for trial in found.trials] == ["t1"]
    assert found.trials[0] is TRIALS[1]
    assert (found.with_needle, found.without_needle, found.n) == (0.5, 0.5, 4)
    assert repr(found) == "Answerable(1 of 4 trials; right with needle 0.50, without 0.50)"


def test_evaluations_are_matched_by_id_and_may_contain_more() -> None:
    found = answerable(
        reversed(TRIALS[:3]),
        evaluation([1, 0, 1, 1, 0], ids=["t2", "other", "t0", "t1", "t3"]),
        evaluation([1, 0, 0, 0], ids=["t0", "t1", "t2", "t3"]),
    )
    assert [trial.id for trial in found.trials] == ["t2", "t1"]
    assert found.with_needle == 1
    assert found.without_needle == pytest.approx(1 / 3)


def test_none_may_be_left() -> None:
    found = answerable(TRIALS, evaluation([0, 0, 1, 1]), evaluation([1, 0, 1, 1]))
    assert found.trials == ()
    assert (found.with_needle, found.without_needle) == (0.5, 0.75)


def test_the_planted_model_needs_its_needles() -> None:
    model, trials = planted.model(), planted.trials()
    full, bare = (
        lh.evaluate(model, given, generate=False, progress=False) for given in (trials, planted.trials(corrupt=True))
    )
    found = answerable(trials, full, bare, metric="greedy_match")
    assert (found.with_needle, found.without_needle) == (1, 0)
    assert found.trials == tuple(trials)
    again = answerable(trials, full, full, metric="greedy_match")
    assert again.trials == ()


def test_another_metric() -> None:
    found = answerable(
        TRIALS[:2], evaluation([1, 1], "greedy_match"), evaluation([0, 1], "greedy_match"), metric="greedy_match"
    )
    assert [trial.id for trial in found.trials] == ["t0"]


def test_bad_input() -> None:
    right = evaluation([1, 1, 1, 1])
    with pytest.raises(ValueError, match="metric 'choice': the evaluation with needle has only correct"):
        answerable(TRIALS, right, right, metric="choice")
    with pytest.raises(ValueError, match="metric 'correct': the evaluation without needle has only logprob"):
        answerable(TRIALS, right, evaluation([0, 0, 0, 0], "logprob"))
    with pytest.raises(ValueError, match=r"metric 'correct' is 0\.5 for trial t2, but must be 0 or 1: use e\.g\."):
        answerable(TRIALS, right, evaluation([0, 1, 0.5, 0]))
    with pytest.raises(ValueError, match="trial t3 is not in the evaluation with needle: evaluate it, or leave it out"):
        answerable(TRIALS, evaluation([1, 1, 1]), right)
    with pytest.raises(ValueError, match="there are no trials"):
        answerable([], right, right)
    with pytest.raises(ValueError, match="two trials have the id 't0'"):
        answerable([TRIALS[0], TRIALS[0]], right, right)
    with pytest.raises(TypeError, match="must be a list of Trials or EncodedTrials"):
        answerable(["t0"], right, right)  # type: ignore[list-item]
