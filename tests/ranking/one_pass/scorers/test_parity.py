"""Every score equals a plain loop written from its formula, on every attention variant."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import lens_heads as lh
from lens_heads.model.directions import Directions
from lens_heads.model.geometry import head_geometry
from lens_heads.model.hooks import has_hooks
from lens_heads.ranking.one_pass.capture import run_pass
from lens_heads.ranking.one_pass.definition import Scorer
from lens_heads.ranking.one_pass.scorers import SCORERS
from lens_heads.trials.encoded import EncodedTrial
from tests import reference, zoo
from tests.conftest import random_trial


def plain(arch: str, trial: EncodedTrial, steps: list[int]) -> reference.Plain:
    tokens = torch.cat([trial.tokens, torch.tensor(steps[:-1], dtype=torch.long)])
    return reference.Plain(zoo.hf_model(arch), tokens)


@pytest.mark.parametrize("direction", ["raw", "exact"])
def test_every_method_matches_a_loop_written_from_the_formula(
    arch: str, model: Any, trial: EncodedTrial, direction: str
) -> None:
    scores = lh.score_heads(model, [trial], teacher_forced=True, direction=direction, progress=False)
    steps = trial.answer_tokens.tolist()
    p = plain(arch, trial, steps)
    for method in SCORERS:
        expected = reference.score(
            method, p, len(trial), trial.needle, steps, list(range(len(steps))), exact=direction == "exact"
        )
        torch.testing.assert_close(
            scores[method].values, expected, atol=2e-5, rtol=2e-4, msg=lambda m, x=method: f"{x}: {m}"
        )
    assert not has_hooks(model)


def test_generated_steps_match_the_formula_too(arch: str, model: Any) -> None:
    """Decoded greedily; the answer is steps 2 and 3 of what this model generates, the other steps are not."""
    trial = random_trial(seed=3)
    with torch.no_grad():
        tokens = trial.tokens.clone()
        for _ in range(6):
            tokens = torch.cat([tokens, zoo.hf_model(arch)(tokens[None]).logits[0, -1].argmax()[None]])
    steps = tokens[len(trial) :].tolist()
    answered = EncodedTrial(trial.tokens, trial.needle, zoo.tokenizer().decode(steps[2:4]), steps[2:4], "generated")
    from unittest.mock import patch

    with (
        patch("lens_heads.trials.answers.passes", return_value=True),
        patch("lens_heads.trials.answers.answer_steps", return_value=[2, 3]),
        patch("lens_heads.model.decoding.stop_tokens", return_value=set()),
    ):
        shape = head_geometry(model)
        (result,) = run_pass(
            model, [answered], list(SCORERS.values()), Directions(model, shape, "raw"), max_new_tokens=6
        )
    steps = steps[: next((i + 1 for i, s in enumerate(steps) if "\n" in zoo.tokenizer().decode([s])), 6)]
    p = plain(arch, answered, steps)
    for method in SCORERS:
        expected = reference.score(method, p, len(trial), trial.needle, steps, [2, 3])
        torch.testing.assert_close(result.scores[method], expected, atol=2e-5, rtol=2e-4)


def test_in_a_single_row_the_contrast_only_rescales_attention(model: Any) -> None:
    """Attention sums to 1: spatial = (mass * keys - len_needle) / len_off, also where a window hides keys."""
    trial = random_trial(seed=2, n=24, needle=(13, 20), answer=1)
    scores = lh.score_heads(
        model, [trial], ["attention_mass", "attention_spatial"], teacher_forced=True, progress=False
    )
    mass, spatial = scores["attention_mass"].values, scores["attention_spatial"].values
    torch.testing.assert_close(spatial, (mass * 24 - 7) / 17, atol=1e-6, rtol=1e-5)
    assert mass.min() > 0
    assert mass.max() < 1


def test_a_deliberately_wrong_scorer_is_caught(trial: EncodedTrial) -> None:
    """The parity tests can fail: reading the value of the next position is noticed."""
    from tests.conftest import tiny

    def off_by_one(view: Any) -> torch.Tensor:
        return view.spatial_contrast(view.phi.roll(1, dims=-1)).mean(-1)

    wrong = Scorer("locos", off_by_one, "answer", True, "wrong on purpose")
    scores = lh.score_heads(tiny("llama-gqa"), [trial], [wrong], teacher_forced=True, progress=False)
    steps = trial.answer_tokens.tolist()
    expected = reference.score("locos", plain("llama-gqa", trial, steps), len(trial), trial.needle, steps, [0, 1, 2])
    with pytest.raises(AssertionError):
        torch.testing.assert_close(scores["locos"].values, expected, atol=2e-5, rtol=2e-4)
