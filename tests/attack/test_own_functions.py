"""What researchers write themselves: scorers and metrics that change what they are given, or use numpy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import lens_heads as lh
from lens_heads.model.identity import fingerprint
from tests.conftest import random_trial, tiny

TRIALS = [random_trial(0), random_trial(1)]
FIELDS = ("pattern", "values", "z", "W_O", "u", "constant", "tokens", "row_positions", "phi")


def score(*methods: Any) -> dict[str, lh.HeadScores]:
    return lh.score_heads(tiny("llama-gqa"), TRIALS, methods or None, teacher_forced=True, progress=False)


@pytest.mark.parametrize("field", FIELDS)
def test_a_scorer_that_changes_what_it_reads_changes_nothing_else(field: str) -> None:
    def mine(view: Any) -> torch.Tensor:
        getattr(view, field).zero_()
        return view.pattern.sum((-1, -2))

    alone, weights = score(), fingerprint(tiny("llama-gqa"))
    beside = score(lh.Scorer("mine", mine), *alone)
    assert fingerprint(tiny("llama-gqa")) == weights
    for name, scores in alone.items():
        assert torch.equal(beside[name].per_trial, scores.per_trial)


def test_a_scorer_without_the_first_token() -> None:
    def masked(view: Any) -> torch.Tensor:
        view.pattern[:, :, 0] = 0
        return view.pattern.mean((-1, -2))

    def by_numpy(view: Any) -> Any:
        pattern = view.pattern.numpy()
        pattern[:, :, 0] = 0
        return pattern.mean((1, 2))[::-1][::-1]

    def plain(view: Any) -> torch.Tensor:
        return view.pattern[:, :, 1:].sum((-1, -2)) / view.pattern[0].numel()

    found = score(*(lh.Scorer(one.__name__, one) for one in (masked, by_numpy, plain)))
    for name in ("masked", "by_numpy"):
        assert torch.allclose(found[name].per_trial, found["plain"].per_trial, atol=1e-6)


def test_a_metric_by_numpy(tmp_path: Path) -> None:
    def by_numpy(logits: torch.Tensor, gold: torch.Tensor) -> Any:
        return logits[:, 0, 3].numpy()

    model = tiny("llama-gqa")
    ours, theirs = (
        lh.patch_heads(model, TRIALS, metric=metric, out=tmp_path / name, progress=False).per_trial
        for name, metric in {"torch": lambda logits, gold: logits[:, 0, 3], "numpy": by_numpy}.items()
    )
    assert torch.equal(ours, theirs)


def test_attribution_in_inference_mode() -> None:
    """Its gradients are its own business."""
    model = tiny("llama-gqa")
    outside = lh.attribution_patch(model, TRIALS, progress=False, positions="all")
    with torch.inference_mode():
        inside = lh.attribution_patch(model, TRIALS, progress=False, positions="all")
        inside_more = lh.attribution_patch(model, TRIALS, ig_steps=2, progress=False, positions="all")
    assert torch.equal(inside.per_trial, outside.per_trial)
    assert inside_more.per_trial.isfinite().all()


@pytest.mark.parametrize("method", [lh.patch_heads, lh.attribution_patch])
def test_another_default_dtype_changes_nothing(method: Any) -> None:
    def run() -> list[torch.Tensor]:
        return [
            method(tiny("llama-gqa"), TRIALS, positions="all", progress=False).per_trial,
            score("locos")["locos"].per_trial,
        ]

    before = run()
    torch.set_default_dtype(torch.float64)
    try:
        after = run()
    finally:
        torch.set_default_dtype(torch.float32)
    for one, other in zip(before, after, strict=True):
        torch.testing.assert_close(other, one)


def test_saved_scores_are_no_list_of_heads(tmp_path: Path) -> None:
    score("locos")["locos"].save(tmp_path / "locos.json")
    with pytest.raises(ValueError, match=r"locos.json is an object.*use HeadScores.load"):
        lh.load_heads(tmp_path / "locos.json")
