"""best_in_turn: three rankings propose sets of heads; the one that hurts most is taken."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

import lens_heads as lh
from lens_heads.heads.head import Head
from lens_heads.interventions.checked_kind import Ablation
from lens_heads.model.geometry import head_geometry
from lens_heads.model.hooks import has_hooks
from lens_heads.ranking.masks.in_turn import attribute_in_turn, best_in_turn
from lens_heads.ranking.masks.localize import localize_heads
from lens_heads.ranking.masks.measure import MaskedMetric
from tests.conftest import random_trial, tiny
from tests.planted import COPIER, WRITER
from tests.ranking.masks.runs import FOUND, by_loop, measured, model, passes

HEADS = [Head(layer, head) for layer in range(3) for head in range(4)]


def trials() -> list[Any]:
    return [random_trial(i, n) for i, n in enumerate((20, 14, 26, 17))]


def logit(gqa: Any, trial: Any, gate: torch.Tensor) -> torch.Tensor:
    """The answer's logit above the mean logit, with every head's z multiplied by its gate."""
    tokens = torch.cat([trial.tokens, trial.answer_tokens])[None, :-1]
    hooks = [
        (f"blocks.{layer}.attn.hook_z", lambda z, hook, at=layer: z * gate[at][None, None, :, None].to(z))
        for layer in range(3)
    ]
    rows = gqa.run_with_hooks(tokens, fwd_hooks=hooks)[0, len(trial.tokens) - 1 :].double()
    gold = trial.answer_tokens
    return (rows[torch.arange(len(gold)), gold] - rows.mean(-1)).mean()


@pytest.mark.slow
@pytest.mark.parametrize("arch", ["gpt2", "llama-gqa", "gemma3"])
def test_in_turn_is_the_gradient_of_a_gate_with_the_heads_before_it_closed(arch: str) -> None:
    gqa, chosen = tiny(arch), []
    for _ in range(3):
        gradients = []
        for trial in trials():
            gate = torch.ones(3, 4, dtype=torch.float64)
            for head in chosen:
                gate[head.layer, head.head] = 0
            gate.requires_grad_()
            with torch.enable_grad():
                gradients.append(torch.autograd.grad(logit(gqa, trial, gate), gate)[0])
        mean = torch.stack(gradients).mean(0)
        chosen.append(max((head for head in HEADS if head not in chosen), key=lambda head: mean[head.layer, head.head]))
    found = attribute_in_turn(gqa, trials(), Ablation.of(gqa, "zero", reference=None), 3)
    assert found[:3] == chosen
    assert sorted(found) == HEADS


@pytest.mark.slow
@pytest.mark.parametrize("arch", ["gpt2", "llama-gqa", "gemma3"])
@pytest.mark.parametrize("kind", ["zero", "mean"])
def test_the_set_that_hurts_most_is_taken(arch: str, kind: str) -> None:
    gqa, k = tiny(arch), 3
    means = lh.mean_activations(gqa, [random_trial(9, 18)], progress=False) if kind == "mean" else None
    how: dict[str, Any] = {"kind": kind, "reference": means}
    scores = lh.score_heads(gqa, trials(), ["locos_exact", "dla_exact"], teacher_forced=True, progress=False)
    proposed = {name: one.ranking() for name, one in scores.items()}
    proposed["attribute_in_turn"] = attribute_in_turn(gqa, trials()[::2], Ablation.of(gqa, **how), k)
    base, *values = by_loop(gqa, trials(), [[], *(ranking[:k] for ranking in proposed.values())], **how)
    worst = int(np.argmin([one.mean() for one in values]))

    found = localize_heads(gqa, trials(), method="best_in_turn", k=k, progress=False, **{"kind": "zero", **how})
    assert found.meta["proposed_by"] == list(proposed)[worst]
    assert found.ranking() == proposed[found.meta["proposed_by"]]
    assert found.meta["chosen"] == k
    assert int((found.values != 0).sum()) == k
    np.testing.assert_allclose(found.per_trial.sum((1, 2)), values[worst] - base, atol=5e-5)


def test_it_finds_the_planted_writers_and_leaves_no_hook() -> None:
    scores = localize_heads(model(), FOUND, method="best_in_turn", k=2, progress=False, kind="zero")
    assert set(scores.top(2)) == {COPIER, WRITER}
    assert scores.best == "lowest"
    assert scores.selected
    assert float(scores.values.sum()) < -1
    assert not has_hooks(model())


@pytest.mark.slow
def test_what_takes_a_heads_place_is_found_where_attribution_alone_is_blind() -> None:
    truth = lh.planted_model(copiers=0, writers=0, suppressors=0, decoys=0, chains=0, backups=1, seed=1)
    listed = truth.trials(6)
    (main,), (backup,) = truth.of("main"), truth.of("backup")
    once = lh.attribute_ablation(truth.model, listed, kind="zero", progress=False)
    found = localize_heads(truth.model, listed, method="best_in_turn", k=2, progress=False, kind="zero")
    assert found.top(2) == [main, backup]
    assert once.ranking().index(backup) > 1


def test_a_question_that_holds_the_answer_is_its_own_needle() -> None:
    bare = [replace(trial, needle=None) for trial in MaskedMetric(model(), FOUND, progress=False).trials]
    assert set(localize_heads(model(), bare, method="best_in_turn", k=2, progress=False, kind="zero").top(2)) == {
        COPIER,
        WRITER,
    }


def test_what_it_cannot_do_is_said_before_anything_is_run() -> None:
    gqa = model()
    alone = lh.EncodedTrial([5, 6], None, "x", [7], "alone")
    bad: list[tuple[MaskedMetric, str]] = [
        (MaskedMetric(gqa, FOUND, kind="uniform", progress=False), "kind='uniform': best_in_turn ablates by"),
        (
            MaskedMetric(gqa, FOUND, unit="kv_head", progress=False),
            "unit='kv_head': best_in_turn ranks query heads",
        ),
        (MaskedMetric(gqa, [alone], progress=False), "trial alone has no needle, nor its answer in the prompt"),
    ]
    for one, message in bad:
        with passes(gqa) as seen, pytest.raises(ValueError, match=message):
            best_in_turn(one, 2)
        assert not seen
    assert head_geometry(gqa).n_heads * head_geometry(gqa).n_layers == measured().units[0] * measured().units[1]
