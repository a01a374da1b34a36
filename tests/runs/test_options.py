"""Run options: checked where they enter, and no keyword is swallowed."""

from __future__ import annotations

from typing import Any

import pytest

import lens_heads as lh
from lens_heads.runs.options import Run
from tests.conftest import random_trial, tiny


@pytest.mark.parametrize("batch_size", [0, -1, 2.0, "4", None, True])
def test_a_batch_size_of_nothing_is_refused(batch_size: Any) -> None:
    with pytest.raises(ValueError, match=f"batch_size={batch_size!r}: must be"):
        Run.of({"batch_size": batch_size})


@pytest.mark.parametrize("max_new_tokens", [2.5, "3", None, False])
def test_a_length_is_an_integer(max_new_tokens: Any) -> None:
    with pytest.raises(ValueError, match=f"max_new_tokens={max_new_tokens!r}: must be a non-negative integer"):
        Run.of({"max_new_tokens": max_new_tokens})


def test_what_is_given_comes_before_the_functions_defaults() -> None:
    assert Run.of({"batch_size": 3}) == Run(None, True, 3, 50)
    assert Run.of({}) == Run(None, True, 1, 50)


def test_nothing_is_generated_unless_asked_for() -> None:
    assert (Run.of({"max_new_tokens": 7}).room(True), Run.of({"max_new_tokens": 7}).room(False)) == (7, 0)
    with pytest.raises(ValueError, match="max_new_tokens=0: must be a positive integer; use generate=False"):
        Run.of({"max_new_tokens": 0}).room(True)


def test_an_unknown_keyword_is_refused_with_those_there_are() -> None:
    model, trial = tiny("llama-gqa"), random_trial(1)
    scores = lh.HeadScores.from_trials("mine", model.W_O.new_zeros(1, 3, 4), ["s"])
    calls: list[Any] = [
        lambda **typo: lh.score_heads(model, [trial], **typo),
        lambda **typo: lh.evaluate(model, [trial], **typo),
        lambda **typo: lh.patch_heads(model, [trial], **typo),
        lambda **typo: lh.ablation_curve(model, [trial], scores, kind="zero", **typo),
        lambda **typo: lh.localize_heads(model, [trial], **typo, kind="zero"),
        lambda **typo: lh.recovery(model, [trial], "L0H0", "L0H0", **typo, kind="zero"),
    ]
    for call in calls:
        with pytest.raises(TypeError, match=r"unexpected keyword argument 'batchsize'.* by keyword .*out, progress"):
            call(batchsize=4)
