"""MaskedMetric is a plain loop of ablate and evaluate, but runs nothing twice."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import lens_heads as lh
from lens_heads.heads.head import Head
from lens_heads.interventions.activations import trial_activations
from lens_heads.interventions.kinds import KINDS, Kind
from lens_heads.model.geometry import head_geometry
from lens_heads.model.hooks import has_hooks
from lens_heads.ranking.masks.localize import localize
from lens_heads.ranking.masks.measure import MaskedMetric
from lens_heads.trials.encoded import EncodedTrial
from tests import zoo
from tests.conftest import few_shot, random_trial, tiny
from tests.planted import COPIER, DECOY, SUPPRESSOR, WRITER
from tests.ranking.masks.runs import FOUND, SHAPE, by_loop, failing, passes
from tests.ranking.masks.runs import model as planted_model

SETS = [[], [(0, 1), (1, 2), (2, 3)], [(1, 0), (1, 3)], [(2, 2)]]
"""Of the tiny models of 3 layers and 4 heads: nothing, every layer, from the middle on, the last layer alone."""


def trials() -> list[EncodedTrial]:
    return [random_trial(i, n, needle=(2, 8), answer=steps) for i, (n, steps) in enumerate(((24, 3), (13, 1), (31, 5)))]


def choosing() -> list[EncodedTrial]:
    """The same with three choices of one to three tokens, the gold one at another place in each."""
    made = []
    for i, trial in enumerate(trials()):
        generator = torch.Generator().manual_seed(i)
        tokens = tuple(torch.randint(3, zoo.VOCAB, (1 + j,), generator=generator) for j in range(3))
        gold = {"answer": "abc"[i], "answer_tokens": tokens[i]}
        made.append(replace(trial, choices=("a", "b", "c"), choice_tokens=tokens, **gold))
    return made


def masks(sets: list[Any], shape: tuple[int, int] = (3, 4)) -> np.ndarray:
    found = np.zeros((len(sets), *shape), dtype=bool)
    for mask, heads in zip(found, sets, strict=True):
        for layer, head in heads:
            mask[layer, head] = True
    return found


def planted_masks(*sets: list[Head]) -> np.ndarray:
    return masks([[(head.layer, head.head) for head in heads] for heads in sets], SHAPE)


@pytest.mark.slow
@pytest.mark.parametrize("batch_size", [1, 3])
@pytest.mark.parametrize("kind", ["zero", "mean"])
def test_the_metric_is_that_of_a_loop_of_ablations(arch: str, model: Any, kind: str, batch_size: int) -> None:
    reference = lh.mean_activations(model, [random_trial(9)], progress=False) if kind == "mean" else None
    found = MaskedMetric(model, trials(), kind=kind, reference=reference, batch_size=batch_size, progress=False)
    expected = by_loop(model, trials(), SETS, kind=kind, reference=reference)
    np.testing.assert_allclose(found(masks(SETS)), expected, atol=3e-5, rtol=1e-5)
    np.testing.assert_allclose(found.base, expected[0], atol=3e-5, rtol=1e-5)
    assert np.ptp(expected, axis=0).min() > 1e-3, "masks that change nothing prove nothing"
    assert not has_hooks(model)


@pytest.mark.slow
def test_options_of_the_ablation_reach_it(gqa: Any) -> None:
    found = MaskedMetric(gqa, trials(), kind="scale", factor=2.0, progress=False)(masks(SETS))
    np.testing.assert_allclose(found, by_loop(gqa, trials(), SETS, kind="scale", factor=2.0), atol=3e-5)
    assert abs(found - by_loop(gqa, trials(), SETS)).max() > 1e-2


@pytest.mark.slow
@pytest.mark.parametrize("arch", ["gpt2", "llama-gqa", "llama-mqa", "qwen3", "gemma3"])
def test_a_kv_group_is_all_the_query_heads_that_read_it(arch: str) -> None:
    model = tiny(arch)
    shape = head_geometry(model)
    found = MaskedMetric(model, trials(), unit="kv_head", progress=False)
    assert found.units == (3, shape.n_kv_heads)
    every = [[(layer, kv)] for layer in range(3) for kv in range(shape.n_kv_heads)]
    groups = [[(layer, kv * shape.group + i) for i in range(shape.group)] for ((layer, kv),) in every]
    of_groups = masks(every, found.units)
    np.testing.assert_allclose(found(of_groups), by_loop(model, trials(), groups), atol=3e-5)
    assert [found.heads(mask) for mask in of_groups] == [[Head(*head) for head in heads] for heads in groups]
    assert (found.mask([Head(2, 0)]) == masks([[(2, 0)]], found.units)[0]).all()


@pytest.mark.parametrize("batch_size", [1, 3])
def test_choices_are_measured_too(gqa: Any, batch_size: int) -> None:
    found = MaskedMetric(gqa, choosing(), metric="choice_logprob", batch_size=batch_size, progress=False)(masks(SETS))
    np.testing.assert_allclose(found, by_loop(gqa, choosing(), SETS, "choice_logprob"), atol=3e-5)
    assert np.ptp(found, axis=0).max() > 1


@pytest.mark.slow
@pytest.mark.parametrize("arch", ["gpt2", "qwen3", "gemma3", "olmo2"])
@pytest.mark.parametrize("kind", ["mean", "resample", "uniform"])
@pytest.mark.parametrize("asked", [choosing(), few_shot((12, 12, 12))], ids=["choices", "few-shot"])
def test_a_bfloat16_model_is_measured_as_by_the_loop(arch: str, kind: str, asked: list[EncodedTrial]) -> None:
    """Logits of eight bits leave a tenth of a nat to the order of sums; what masks change is far more."""
    model = tiny(arch, torch.bfloat16)
    references: dict[str, Any] = {
        "mean": lh.mean_activations(model, random_trial(9), progress=False),
        "resample": trial_activations(model, random_trial(9)),
    }
    how: dict[str, Any] = {"kind": kind, "reference": references.get(kind)}
    metric = "choice_logprob" if asked[0].choices else "logprob"
    found = MaskedMetric(model, asked, metric=metric, batch_size=3, progress=False, **how)(masks(SETS))
    expected = by_loop(model, asked, SETS, metric, **how)
    np.testing.assert_allclose(found, expected, atol=0.25, rtol=0)
    assert abs(found - expected).mean() < 0.05 * np.ptp(expected, axis=0).mean()


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("metric", ["correct", "contains"])
def test_decoded_text_is_judged_under_the_mask(metric: str, dtype: torch.dtype) -> None:
    model = planted_model(dtype)
    sets = [[], [DECOY], [COPIER, WRITER], [COPIER, WRITER, SUPPRESSOR]]
    lettered = FOUND[1:]  # The first answer is an article, which text metrics do not read.
    found = MaskedMetric(model, lettered, metric=metric, max_new_tokens=3, batch_size=2, progress=False)
    values = found(planted_masks(*sets))
    assert (values == by_loop(model, lettered, sets, metric, max_new_tokens=3)).all()
    assert values.mean(1)[:3].tolist() == [1, 1, 0]


@pytest.mark.parametrize("stored", [False, True])
def test_nothing_is_run_twice(gqa: Any, tmp_path: Path, stored: bool) -> None:
    repeated = masks([*SETS, *SETS[::-1]])
    found = MaskedMetric(gqa, trials(), progress=False, out=tmp_path if stored else None)
    with passes(gqa) as seen:
        first = found(repeated)
        cost = len(seen)
        again = found(repeated[:2])
    assert len(seen) == cost > 0
    assert (first[:4] == first[4:][::-1]).all()
    assert (again == first[:2]).all()
    assert len(found.requested) == 4


@pytest.mark.slow
@pytest.mark.usefixtures("alone")
def test_what_is_stored_is_not_run_again(gqa: Any, tmp_path: Path) -> None:
    repeated = masks([*SETS, *SETS[::-1]])
    first = MaskedMetric(gqa, trials(), progress=False, out=tmp_path)(repeated)
    assert len(list((tmp_path / "trials").iterdir())) == 4
    resumed = MaskedMetric(gqa, trials(), progress=False, out=tmp_path)
    assert np.isnan(resumed.share_run)
    with passes(gqa) as seen:
        assert (resumed(repeated) == first).all()
        forced = MaskedMetric(gqa, trials(), metric="greedy_match", progress=False, out=tmp_path)(repeated)
    assert not seen, "stored with all metrics, so that another one costs nothing"
    assert (forced == by_loop(gqa, trials(), [*SETS, *SETS[::-1]], "greedy_match")).all()


def test_what_lies_below_the_lowest_ablated_layer_is_not_run(gqa: Any) -> None:
    found = MaskedMetric(gqa, trials(), batch_size=1, progress=False)
    found(masks([[(2, 0)]]))
    assert found.share_run == pytest.approx(1 / 3)
    found(masks([[(0, 0)]]))
    assert found.share_run == pytest.approx((1 + 3) / 6)


@pytest.mark.slow
@pytest.mark.usefixtures("alone")
def test_an_interrupted_run_goes_on_where_it_stopped(gqa: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = by_loop(gqa, trials(), SETS)
    failing(monkeypatch, lambda heads: heads == [Head(1, 0), Head(1, 3)], KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        MaskedMetric(gqa, trials(), progress=False, out=tmp_path)(masks(SETS))
    monkeypatch.undo()
    assert not has_hooks(gqa)
    assert len(list((tmp_path / "trials").iterdir())) == 2
    ran: list[list[Head]] = []
    failing(monkeypatch, lambda heads: ran.append(heads), RuntimeError())
    np.testing.assert_allclose(
        MaskedMetric(gqa, trials(), progress=False, out=tmp_path)(masks(SETS)), expected, atol=3e-5
    )
    assert [heads for heads in ran if heads] == [[Head(1, 0), Head(1, 3)], [Head(2, 2)]]


def test_a_folder_of_other_settings_is_refused(gqa: Any, tmp_path: Path) -> None:
    MaskedMetric(gqa, trials(), out=tmp_path, progress=False)
    others: list[dict[str, Any]] = [
        {"kind": "scale", "factor": 0.5},
        {"unit": "kv_head"},
        {"metric": "contains", "max_new_tokens": 2},
        {"trials": trials()[:2]},
    ]
    for other in others:
        with pytest.raises(ValueError, match="holds a run with different settings"):
            MaskedMetric(gqa, **{"trials": trials(), **other}, out=tmp_path, progress=False)


@pytest.mark.slow
def test_a_mask_whose_run_fails_is_a_row_of_nan_and_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    failing(monkeypatch, lambda heads: heads == [COPIER, WRITER], RuntimeError("boom"))
    found = MaskedMetric(planted_model(), FOUND, progress=False, out=tmp_path)
    asked = planted_masks([], [COPIER, WRITER], [DECOY])
    with pytest.warns(UserWarning, match="ablating masks: 1 of 3 failed; the first: RuntimeError: boom"):
        values = found(asked)
    assert np.isnan(values).all(1).tolist() == [False, True, False]
    assert not np.isnan(values[[0, 2]]).any()
    assert len(list((tmp_path / "trials").iterdir())) == 2, "not stored"
    assert not has_hooks(planted_model())
    assert np.isnan(found(asked[1:])[0]).all(), "asked again it is still a row of NaN, and the others' values are there"
    with pytest.warns(UserWarning, match="repeat another"):
        scores = localize(found, method="css", n_masks=60, sparsity=0.25)
    assert scores.meta["n_masks"] == scores.evaluations - 2, "without the one that failed, and the base"
    assert scores.top(2) == [COPIER, WRITER]
    monkeypatch.undo()
    resumed = MaskedMetric(planted_model(), FOUND, progress=False, out=tmp_path)
    np.testing.assert_allclose(resumed(asked[1:2]), by_loop(planted_model(), FOUND, [[COPIER, WRITER]]), atol=3e-5)


def test_a_metric_that_is_not_finite_is_a_failure_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(KINDS, "broken", Kind("hook_z", lambda z, at: z * np.nan))
    found = MaskedMetric(planted_model(), FOUND, kind="broken", progress=False)
    with pytest.warns(
        UserWarning, match=r"logprob of trial planted-0-0 is not finite with L0H1 ablated: load the model"
    ):
        values = found(planted_masks([], [COPIER]))
    assert np.isnan(values).all(1).tolist() == [False, True]


def test_when_every_run_fails_the_first_error_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    failing(monkeypatch, lambda heads: len(heads) == 1, RuntimeError("boom"))
    found = MaskedMetric(planted_model(), FOUND, progress=False)
    with pytest.raises(RuntimeError, match="boom"):
        found(planted_masks([COPIER], [WRITER]))
    assert not has_hooks(planted_model())


def test_masks_of_another_shape_are_refused(gqa: Any) -> None:
    found = MaskedMetric(gqa, trials(), progress=False)
    for shape in ((3, 4), (1, 3, 2), (2, 4, 3)):
        with pytest.raises(ValueError, match=r"masks of shape .* do not fit .*: must be \[mask, \(3, 4\)\]"):
            found(np.zeros(shape, dtype=bool))
    assert found(np.zeros((0, 3, 4), dtype=bool)).shape == (0, 3)


def test_bad_choices_are_refused_before_anything_is_run(gqa: Any) -> None:
    own = lh.mean_activations(gqa, trials()[:1], progress=False)
    bad: dict[str, dict[str, Any]] = {
        r"unit='layer': use 'query_head' or 'kv_head'": {"unit": "layer"},
        r"metric 'loss' is not measured": {"metric": "loss"},
        r"metric 'choice' compares choices, but trial random-0 has none": {"metric": "choice"},
        r"unknown kind of ablation 'remove'": {"kind": "remove"},
        r"kind='mean' needs a reference": {"kind": "mean"},
        r"kind='zero' has no option 'factor'": {"factor": 2.0},
        r"reference was computed on 1 of the trials that are measured": {"kind": "mean", "reference": own},
        r"there are no trials": {"trials": []},
    }
    with passes(gqa) as seen:
        for message, choice in bad.items():
            with pytest.raises(ValueError, match=message):
                MaskedMetric(gqa, **{"trials": trials(), **choice}, progress=False)
    assert not seen
