"""What is made while something is attached to a model says so: no hash of weights knows it."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import lens_heads as lh
from lens_heads.heads.scores import HeadScores
from tests.conftest import random_trial, tiny

TRIALS = [random_trial(i) for i in range(4)]
MADE: dict[str, Callable[[Any], Any]] = {
    "scores": lambda model: lh.score_heads(model, TRIALS, ["locos"], teacher_forced=True)["locos"],
    "scores of pairs": lambda model: lh.patch_heads(model, TRIALS[:1]),
    "activations": lambda model: lh.mean_activations(model, TRIALS),
    "vectors": lambda model: lh.task_vectors(model, TRIALS),
}


@pytest.mark.parametrize("name", MADE)
def test_what_is_made_under_an_ablation_says_so(name: str) -> None:
    model = tiny("llama-gqa")
    said = pytest.warns(UserWarning, match="hooks attached .an ablation.* will be those of the changed model")
    with lh.ablate(model, ["L0H0"], kind="zero"), said as found:
        made = MADE[name](model)
    assert found[0].filename == __file__
    assert "hooks attached" in str(made.model)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", "hooks attached")
        assert MADE[name](model).model.changed == ""


def test_hooks_of_ones_own_and_curves() -> None:
    model = tiny("llama-gqa")
    point = model.hook_dict["blocks.0.attn.hook_z"]
    point.add_hook(lambda z, hook: z * 0)
    try:
        with pytest.warns(UserWarning, match="scores will be those of the changed model"):
            scores = MADE["scores"](model)
        with pytest.warns(UserWarning, match="metrics will be those of the changed model"):
            lh.ablation_curve(model, [random_trial(9)], scores, ks=1, kind="zero", generate=False)
    finally:
        point.remove_hooks()


def test_score_files_keep_it(tmp_path: Path) -> None:
    model = tiny("llama-gqa")
    with lh.ablate(model, ["L0H0"], kind="zero"), pytest.warns(UserWarning, match="hooks attached"):
        scores = MADE["scores"](model)
    assert HeadScores.load(scores.save(tmp_path / "scores.json")).model.changed == scores.model.changed != ""


def test_evaluation_under_an_ablation_is_what_it_is_for() -> None:
    model = tiny("llama-gqa")
    with warnings.catch_warnings(), lh.ablate(model, ["L0H0"], kind="zero"):
        warnings.filterwarnings("error", ".*hooks attached")
        lh.evaluate(model, TRIALS, generate=False)
