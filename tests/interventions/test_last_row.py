"""Ablation where the answer begins: equal to a plain forward with that row edited; it tells apart what it should."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import lens_heads as lh
from lens_heads.model.hooks import hooked
from lens_heads.ranking.masks.measure import MaskedMetric
from tests.conftest import random_trial

LENGTHS = (40, 13, 26, 19)
"""Trials run by length: none of these stays where it was."""
TRIALS = [random_trial(at, n, needle=(3, 6)) for at, n in enumerate(LENGTHS)]
DONORS = [random_trial(20 + at, n) for at, n in enumerate((17, 30, 11, 22))]
QUIET: dict[str, Any] = {"progress": False}
CLOSE: dict[str, Any] = {"atol": 3e-5, "rtol": 3e-4}
KS = (1, 3, 5)


def ranking(model: Any) -> lh.HeadScores:
    values = torch.rand(1, 3, model.cfg.n_heads, generator=torch.Generator().manual_seed(3))
    return lh.HeadScores.from_trials("mine", values, ["other"])


def by_hand(model: Any, heads: list[lh.Head], given: Callable[[int, lh.Head], Tensor]) -> Tensor:
    """Log-probabilities of the answers, each trial alone, with `given(trial, head)` as the heads' z at the prompt's last row."""

    def edited(layer: int, place: int, row: int) -> Any:
        def edit(z: Tensor, hook: Any) -> Tensor:
            split = z.reshape(*z.shape[:2], model.cfg.n_heads, -1).clone()
            for head in heads:
                if head.layer == layer:
                    split[0, row, head.head] = given(place, head)
            return split.reshape(z.shape)

        return f"blocks.{layer}.attn.hook_z", edit

    found = []
    for place, trial in enumerate(TRIALS):
        tokens = torch.cat([trial.tokens, trial.answer_tokens[:-1]])[None]
        hooks = [edited(layer, place, len(trial) - 1) for layer in range(model.cfg.n_layers)]
        with torch.no_grad(), hooked(model, hooks):
            rows = model(tokens)[0, len(trial) - 1 :].log_softmax(-1)
        found.append(rows[range(len(trial.answer_tokens)), trial.answer_tokens].mean())
    return torch.stack(found)


def cases(model: Any) -> dict[str, tuple[dict[str, Any], Callable[[int, lh.Head], Tensor]]]:
    """The keywords of each kind of ablation, and what it writes at the last row."""
    means = lh.mean_activations(model, DONORS[:2], **QUIET)
    runs = [lh.trial_activations(model, donor).z for donor in DONORS]
    other = lh.trial_activations(model, DONORS[1])
    return {
        "zero": ({"span": "last"}, lambda trial, head: torch.zeros(model.cfg.d_head)),
        "mean": ({"span": "last", "reference": means}, lambda trial, head: means.z[head.layer, head.head]),
        "resample": (
            {"span": "last", "reference": other},
            lambda trial, head: other.z[head.layer, min(LENGTHS[trial], 30) - 1, head.head],
        ),
        "interchange": (
            {"reference": lh.row_activations(model, DONORS, **QUIET)},
            lambda trial, head: runs[trial][head.layer, -1, head.head],
        ),
    }


@pytest.mark.filterwarnings("ignore:kind='resample'")  # One trial is longer than its reference.
@pytest.mark.parametrize("kind", ["zero", "mean", "resample", "interchange"])
def test_a_curve_and_evaluate_and_masks(model: Any, kind: str) -> None:
    options, given = cases(model)[kind]
    scores = ranking(model)
    how: dict[str, Any] = {"kind": kind, "batch_size": 3, **options, **QUIET}
    curve = lh.ablation_curve(model, TRIALS, scores, ks=KS, generate=False, controls=(), **how)
    wanted = {k: by_hand(model, scores.top(k), given) for k in KS}
    for k in KS:
        got = curve.values(lh.Condition.top("mine", k), "logprob")[[trial.id for trial in TRIALS]]
        torch.testing.assert_close(torch.tensor(got.to_numpy()).float(), wanted[k], **CLOSE)
    with lh.ablate(model, scores.top(3), kind=kind, **options):
        found = lh.evaluate(model, TRIALS, generate=False, batch_size=3, **QUIET)
    torch.testing.assert_close(found.metrics["logprob"], wanted[3], **CLOSE)
    measured = MaskedMetric(model, TRIALS, metric="logprob", **how)
    (masked,) = measured(measured.mask(scores.top(3))[None])
    torch.testing.assert_close(torch.tensor(masked).float(), wanted[3], **CLOSE)


@pytest.mark.slow
def test_interchange_turns_the_choice_of_heads_that_read_the_question_alone() -> None:
    planted = lh.planted_model(selectors=1, copiers=1)
    trials = planted.trials(12, seed=3, distractors=1)
    donors = lh.row_activations(planted.model, lh.tasks.exchange_questions(trials), **QUIET)
    margins = {}
    for role in ("selector", "copier"):
        with lh.ablate(planted.model, planted.of(role), kind="interchange", reference=donors):
            margins[role] = lh.evaluate(planted.model, trials, generate=False, **QUIET).mean("choice_margin")
    intact = lh.evaluate(planted.model, trials, generate=False, **QUIET).mean("choice_margin")
    assert margins["selector"] < -1 < 1 < intact
    assert margins["copier"] == pytest.approx(intact, rel=0.05)


def test_what_cannot_be(gqa: Any) -> None:
    donors, scores = lh.row_activations(gqa, DONORS, **QUIET), ranking(gqa)
    how: dict[str, Any] = {"ks": 1, "kind": "interchange", "generate": False, "controls": (), **QUIET}
    with pytest.raises(ValueError, match="there are 4 donors, but 3 trials: pass one for each"):
        lh.ablation_curve(gqa, TRIALS[:3], scores, reference=donors, **how)
    with pytest.raises(ValueError, match="spans or donors are given for each trial, but there are 2 tasks"):
        lh.ablation_curve(gqa, TRIALS, scores, reference=donors, specificity={"more": DONORS}, **how)
    with pytest.raises(ValueError, match="4 of the trials are their own donors"):
        lh.ablation_curve(gqa, TRIALS, scores, reference=lh.row_activations(gqa, TRIALS, **QUIET), **how)
    with (
        pytest.raises(ValueError, match=r"has a donor for each trial(.|\n)*use patch"),
        torch.no_grad(),
        lh.ablate(gqa, ["L0H1"], kind="interchange", reference=donors),
    ):
        gqa(TRIALS[0].tokens[None])
    with pytest.raises(ValueError, match=r"none was given: pass reference=lh\.row_activations"):
        lh.ablation_curve(gqa, TRIALS, scores, **how)
    with pytest.raises(ValueError, match="but there are 3 trial_ids"):
        lh.RowActivations(donors.z, donors.trial_ids[:3])
    with pytest.raises(ValueError, match="contains nan"):
        lh.RowActivations(torch.full_like(donors.z, torch.nan), donors.trial_ids)
    with pytest.raises(ValueError, match=r"compute row_activations\(model, donors\) on this model"):
        lh.ablation_curve(gqa, TRIALS, scores, reference=lh.RowActivations(donors.z[:, :2], donors.trial_ids), **how)
