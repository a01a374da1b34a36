"""Gates of query heads: LoFiT, soft injection, causal head gating, each on a model whose heads' roles are known."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

import lens_heads as lh
from lens_heads.heads.head import Head
from lens_heads.heads.sets import every_head
from lens_heads.model.forward import uncached
from lens_heads.model.geometry import head_geometry
from lens_heads.model.hooks import hooked
from lens_heads.ranking.gates.gate import GateBatch
from lens_heads.ranking.gates.lofit import Offsets, Scaling
from lens_heads.ranking.gates.soft_injection import Injection
from lens_heads.sanity import planted_weights
from tests import planted, zoo
from tests.conftest import random_trial

QUIET: dict[str, Any] = {"progress": False}


def rows(model: Any, trial: Any, hooks: Any = ()) -> Any:
    batch = GateBatch.of(model, [trial])
    with torch.no_grad(), hooked(model, hooks):
        return batch.answers(uncached(model, batch.tokens, batch.pads, batch.longest))[0]


@pytest.mark.slow
def test_a_planted_sign_head_is_first_for_lofit() -> None:
    """The only head that could answer writes minus the answer: its sign decides, and scaling by less than zero turns it."""
    sign = Head(1, 2)
    roles: dict[Any, Any] = dict.fromkeys(every_head(2, 4), "noise") | {sign: "suppressor"}
    hf, _ = planted_weights.write_weights(roles, [], (2, 4, 4), False, None, zoo.tokenizer(), 0)
    model, trials = planted.model(hf), planted.trials(20)
    found = lh.ranking.lofit(model, trials, steps=60, lr=0.1, **QUIET)
    assert found.scores.top(1) == [sign]
    others = [found.scores[head] for head in roles if head != sign]
    assert found.scores[sign] > 2 * max(others)
    assert float(found.parameter[sign.layer, sign.head].min()) < -1
    assert found.history["validation"].iloc[-1] < found.history["validation"].iloc[0]


def test_changes_weigh_the_scaling_by_what_heads_pass_on(gqa: Any) -> None:
    trials = [random_trial(seed) for seed in range(7)]
    found = lh.ranking.lofit(gqa, trials[:5], steps=5, **QUIET)
    got = found.changes(gqa, trials[5:])
    rows = []
    for trial in trials[5:]:
        _, cache = gqa.run_with_cache(trial.tokens[None])
        rows.append(torch.stack([cache[f"blocks.{layer}.attn.hook_z"][0] for layer in range(got.n_layers)], 1))
    mean = torch.cat(rows).abs().mean(0)
    for layer, head in np.ndindex(got.n_layers, got.n_heads):
        expected = (found.parameter[layer, head] * mean[layer, head]).pow(2).sum().sqrt()
        torch.testing.assert_close(got.values[layer, head], expected)
    assert got.method == "lofit_change"
    assert got.selected
    assert got.made_on == found.scores.made_on
    with pytest.raises(ValueError, match=r"the scaling is for a model of \d layers x \d heads"):
        found.changes(planted.model(), planted.trials(1))


@pytest.mark.slow
def test_a_huge_penalty_leaves_nothing(gqa: Any) -> None:
    trials = [random_trial(seed) for seed in range(5)]
    found = lh.ranking.lofit(gqa, trials, weight=10.0, steps=40, lr=1e-4, batch_size=4, **QUIET)
    free = lh.ranking.lofit(gqa, trials, weight=0.0, steps=40, lr=1e-4, batch_size=4, **QUIET)
    assert found.scores.values.max() < 0.5 * free.scores.values.max()


def test_offsets_are_trained_on_the_best_heads_alone(gqa: Any) -> None:
    trials = [random_trial(seed) for seed in range(10)]
    found = lh.ranking.lofit(gqa, trials, k=3, steps=20, **QUIET)
    assert list(found.heads) == found.scores.top(3)
    assert found.offsets is not None
    assert found.offsets.trial_ids == tuple(trial.id for trial in (*found_trials(trials),))
    chosen = torch.zeros(found.scores.values.shape, dtype=torch.bool)
    for head in found.heads:
        chosen[head.layer, head.head] = True
    assert found.offsets.z.abs().sum(-1)[chosen].min() > 0
    assert found.offsets.z[~chosen].abs().max() == 0
    gate = Offsets(tuple(head.key for head in found.heads))
    batch = GateBatch.of(gqa, trials[:1])
    expected = rows(gqa, trials[0], gate.hooks(found.offsets.z, batch))
    with lh.ablate(gqa, found.heads, kind="add", reference=found.offsets):
        torch.testing.assert_close(rows(gqa, trials[0]), expected)
    with lh.steer(gqa, found.heads, found.offsets):
        assert torch.equal(rows(gqa, trials[0]), rows(gqa, trials[0]))
        torch.testing.assert_close(rows(gqa, trials[0]), expected)


def found_trials(trials: list[Any]) -> list[Any]:
    """Those of training, then those of validation."""
    return [trial for i, trial in enumerate(trials) if i % 5 != 4] + trials[4::5]


def test_scaling_multiplies_every_element(model: Any) -> None:
    shape, trial = head_geometry(model), random_trial()
    size = (shape.n_layers, shape.n_heads, shape.d_head)
    A = torch.randn(size, generator=torch.Generator().manual_seed(0))
    A[:-1] = 0
    seen: list[Any] = []
    top = f"blocks.{shape.n_layers - 1}.attn.hook_z"
    look = (top, lambda z, hook: seen.append(z.reshape(1, -1, *size[1:])))
    rows(model, trial, [look])
    rows(model, trial, [*Scaling(0.0).hooks(A, GateBatch.of(model, [trial])), look])
    torch.testing.assert_close(seen[1], seen[0] * (1 + A[-1]))


# Soft injection


def test_injection_at_its_two_ends(model: Any) -> None:
    """No gate open: the model itself. All of the top layer's: the write of the vectors, whatever the heads read."""
    shape, trial = head_geometry(model), random_trial(answer=1)
    vectors = lh.task_vectors(model, [random_trial(seed) for seed in (5, 6)])
    gate, batch = Injection("", vectors.z), GateBatch.of(model, [trial])
    closed = torch.full((shape.n_layers, shape.n_heads), -200.0)
    assert torch.equal(rows(model, trial, gate.hooks(closed, batch)), rows(model, trial))
    opened = closed.clone()
    opened[-1] = 200.0
    z = f"blocks.{shape.n_layers - 1}.attn.hook_z"

    def put(x: Any, hook: Any) -> Any:
        x = x.clone()
        x[:, -1] = vectors.z[-1].reshape(x[:, -1].shape)
        return x

    torch.testing.assert_close(rows(model, trial, gate.hooks(opened, batch)), rows(model, trial, [(z, put)]))
    heads = [Head(shape.n_layers - 1, head) for head in range(shape.n_heads)]
    with lh.ablate(model, heads, kind="mix", reference=vectors, span=(len(trial) - 1, len(trial))):
        torch.testing.assert_close(rows(model, trial), rows(model, trial, [(z, put)]))


@pytest.mark.slow
def test_injection_finds_the_planted_heads() -> None:
    """Donors answer one question, the trials lack its needle: only heads that write the answer can bring it."""
    model, answer = planted.model(), planted.trials(1)[0].answer
    donors = [trial for trial in planted.trials(24, seed=1) if trial.answer == answer]
    bare = [trial for trial in planted.trials(120, seed=2, corrupt=True) if trial.answer == answer]
    vectors = lh.task_vectors(model, donors)
    found = lh.ranking.soft_injection(model, bare, vectors, steps=100, **QUIET)
    assert set(found.scores.top(2)) == {planted.COPIER, planted.WRITER}
    assert found.scores[planted.SUPPRESSOR] < 0.2
    assert torch.equal(found.vectors.gates, found.scores.values)
    assert set(found.vectors.trial_ids) == {trial.id for trial in (*donors, *bare)}


def test_vectors_of_another_model_are_refused(gqa: Any) -> None:
    other = lh.HeadVectors(torch.zeros(2, 4, 8))
    with pytest.raises(ValueError, match=r"the vectors have shape \(2, 4, 8\), but .* needs \(3, 4, 8\)"):
        lh.ranking.soft_injection(gqa, [random_trial(seed) for seed in range(5)], other, **QUIET)


# Causal head gating


@pytest.mark.slow
def test_roles_of_planted_heads() -> None:
    model = planted.model()
    roles = lh.ranking.head_gating(model, planted.trials(8), steps=90, batch_size=4, **QUIET)
    frame = roles.frame.set_index("name")
    assert set(frame.index[frame["role"] == "facilitating"]) <= {str(planted.COPIER), str(planted.WRITER)}
    assert str(planted.COPIER) in set(frame.index[frame["role"] == "facilitating"])
    assert frame.loc[str(planted.SUPPRESSOR), "role"] == "interfering"
    for head in every_head(2, 4):
        if head not in planted.STRENGTH or head == planted.DECOY:
            assert frame.loc[str(head), "role"] == "irrelevant"
    assert frame.loc[str(planted.COPIER), "sufficient"]
    scores = roles.scores("interfering")
    assert scores.method == "head_gating_interfering"
    torch.testing.assert_close(scores.values, 1 - roles.kept.scores.values)
    irrelevant = roles.kept.scores.values * (1 - roles.removed.scores.values)
    torch.testing.assert_close(roles.scores("irrelevant").values, irrelevant)


@pytest.mark.slow
def test_pressure_moves_gates_its_own_way(gqa: Any) -> None:
    """Where no head matters more than another, pressure alone decides."""
    trials = [replace(random_trial(seed), answer_tokens=torch.tensor([5])) for seed in range(4)]
    roles = lh.ranking.head_gating(gqa, trials, weight=50.0, steps=30, lr=0.5, **QUIET)
    assert roles.kept.scores.values.median() > roles.free.scores.values.median() > roles.removed.scores.values.median()
    assert roles.kept.scores.values.median() > 0.9
    assert roles.removed.scores.values.median() < 0.1


def test_bad_roles_and_weights(gqa: Any) -> None:
    trials = [random_trial(seed) for seed in range(2)]
    with pytest.raises(ValueError, match="weight=0: without pressure there are no roles"):
        lh.ranking.head_gating(gqa, trials, weight=0, **QUIET)
    roles = lh.ranking.head_gating(gqa, trials, steps=1, **QUIET)
    with pytest.raises(ValueError, match="role='good': use facilitating, interfering, irrelevant"):
        roles.scores("good")  # type: ignore[arg-type]
