"""The loop by which gates are trained: weights unchanged, resumed trainings equal, diverging ones stopped."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import lens_heads as lh
from lens_heads.model.geometry import head_geometry
from lens_heads.model.hooks import has_hooks
from lens_heads.model.identity import fingerprint
from lens_heads.ranking.gates import training
from lens_heads.ranking.gates.duo import duo
from lens_heads.ranking.gates.hardkuma import hardkuma
from lens_heads.ranking.gates.head_gating import head_gating
from lens_heads.ranking.gates.lofit import lofit
from lens_heads.ranking.gates.soft_injection import soft_injection
from lens_heads.ranking.gates.training import Training
from tests.conftest import random_trial, tiny

QUIET: dict[str, Any] = {"progress": False}


def trials(n: int = 6) -> list[Any]:
    return [random_trial(seed, 20 + seed) for seed in range(n)]


def vectors(model: Any) -> lh.HeadVectors:
    return lh.task_vectors(model, [random_trial(seed, 20 + seed) for seed in range(30, 32)])


METHODS: dict[str, Any] = {
    "duo": lambda model, **how: duo(model, trials(), sink=1, recent=4, **how),
    "duo teacher": lambda model, **how: duo(model, trials(), sink=1, recent=4, full="teacher", **how),
    "hardkuma": lambda model, **how: hardkuma(model, trials(), sink=1, recent=4, **how),
    "lofit": lambda model, **how: lofit(model, trials(), k=2, **how),
    "soft_injection": lambda model, **how: soft_injection(model, trials(), vectors(model), **how),
    "head_gating": lambda model, **how: head_gating(model, trials(), **how).removed,
}
every_method = pytest.mark.parametrize("method", METHODS)


@every_method
def test_weights_stay_as_they_are(method: str, model: Any) -> None:
    wanting = [weight.requires_grad for weight in model.original_model.parameters()]
    before = fingerprint(model)
    found = METHODS[method](model, steps=3, batch_size=2, **QUIET)
    assert fingerprint(model) == before
    assert [weight.requires_grad for weight in model.original_model.parameters()] == wanting
    assert not has_hooks(model)
    shape = head_geometry(model)
    units = shape.n_kv_heads if found.scores.unit == "kv_head" else shape.n_heads
    assert found.scores.values.shape == (shape.n_layers, units)
    assert found.scores.selected
    assert len(found.history) == 1


@pytest.mark.slow
@every_method
def test_a_resumed_training_equals_an_uninterrupted_one(
    method: str, gqa: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    how: dict[str, Any] = {"steps": 7, "validate_every": 2, "batch_size": 2, **QUIET}
    whole = METHODS[method](gqa, **how)
    take, left = training._take, [5]

    def stopping(*given: Any) -> None:
        if left[0] == 0:
            raise KeyboardInterrupt
        left[0] -= 1
        take(*given)

    monkeypatch.setattr(training, "_take", stopping)
    with pytest.raises(KeyboardInterrupt):
        METHODS[method](gqa, out=tmp_path / "run", **how)
    monkeypatch.setattr(training, "_take", take)
    again = METHODS[method](gqa, out=tmp_path / "run", **how)
    assert torch.equal(again.parameter, whole.parameter)
    assert again.history.equals(whole.history)
    finished = METHODS[method](gqa, out=tmp_path / "run", **how)
    assert torch.equal(finished.parameter, whole.parameter)
    assert not has_hooks(gqa)


@every_method
def test_computing_layers_again_changes_nothing(method: str, gqa: Any) -> None:
    how: dict[str, Any] = {"steps": 3, "batch_size": 2, **QUIET}
    kept, again = (METHODS[method](gqa, checkpoints=on, **how) for on in (False, True))
    torch.testing.assert_close(again.parameter, kept.parameter, atol=1e-6, rtol=1e-5)
    assert "forward" not in vars(gqa.blocks[0])


@pytest.mark.slow
@every_method
def test_bfloat16_learns_the_same(method: str) -> None:
    how: dict[str, Any] = {"steps": 3, "batch_size": 2, **QUIET}
    exact, half = (METHODS[method](tiny("llama-gqa", dtype=dtype), **how) for dtype in (torch.float32, torch.bfloat16))
    assert half.parameter.dtype == torch.float32
    assert half.history["loss"].iloc[-1] == pytest.approx(exact.history["loss"].iloc[-1], rel=0.05)


def test_other_settings_are_another_run(gqa: Any, tmp_path: Path) -> None:
    METHODS["duo"](gqa, steps=2, out=tmp_path / "run", **QUIET)
    with pytest.raises(ValueError, match=r"different settings(.|\n)*steps: 2 in the folder, 3 now"):
        METHODS["duo"](gqa, steps=3, out=tmp_path / "run", **QUIET)


def test_a_diverging_training_is_stopped_and_named(gqa: Any) -> None:
    with pytest.raises(ValueError, match=r"lofit: the training diverges: .* at step \d+.* smaller lr than 1e\+06"):
        METHODS["lofit"](gqa, steps=50, lr=1e6, validate_every=1, **QUIET)
    # Slower: no step is ten times the one before, and the mean of the steps so far grows with them.
    with pytest.raises(ValueError, match=r"its loss is \d+ at step \d, [\d.]+ before any"):
        METHODS["lofit"](gqa, steps=9, lr=1e3, **QUIET)
    assert not has_hooks(gqa)
    assert all(weight.requires_grad for weight in gqa.original_model.parameters())


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"steps": 0}, "steps=0"),
        ({"lr": 0.0}, r"lr=0\.0: must be above zero"),
        ({"lr": float("nan")}, "lr=nan"),
        ({"batch_size": 1.5}, r"batch_size=1\.5"),
        ({"seed": -1}, "seed=-1"),
    ],
)
def test_bad_numbers_are_refused_before_anything_runs(gqa: Any, how: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        METHODS["head_gating"](gqa, **how, **QUIET)


def test_unknown_options_are_listed(gqa: Any) -> None:
    with pytest.raises(TypeError, match=r"'rate'.* by keyword .*steps, lr, batch_size"):
        METHODS["duo"](gqa, rate=1, **QUIET)


def test_trials_that_validation_takes_all_of(gqa: Any) -> None:
    with pytest.raises(ValueError, match=r"4 trials: every fifth one is for validation, so give at least 5"):
        lofit(gqa, trials(4), **QUIET)


def test_prompts_beyond_the_context_window(gqa: Any) -> None:
    with pytest.raises(ValueError, match=r"exceed the context window of 512 tokens"):
        duo(gqa, [random_trial(0, 512)], **QUIET)


def test_prompts_that_streaming_reads_whole(gqa: Any) -> None:
    with pytest.raises(ValueError, match=r"longest prompt has 25 tokens, all of which sink=16 and recent=64 keep"):
        duo(gqa, trials(), **QUIET)


def test_schedule_and_order() -> None:
    plan = Training(steps=20, lr=1.0, ramps=True, batch_size=2)
    rates = [plan.rate(step) for step in range(20)]
    assert rates[:5] == [0.25, 0.5, 0.75, 1.0, 1.0]
    assert rates[-5:] == [1.0, 1.0, 0.75, 0.5, 0.25]
    taken = [i for step in range(6) for i in plan.picked(step, 4)]
    assert sorted(taken[:4]) == sorted(taken[4:8]) == sorted(taken[8:]) == [0, 1, 2, 3]
    assert len({tuple(taken[i : i + 4]) for i in (0, 4, 8)}) > 1
