"""Gates are trained on a HookedTransformer as on a bridge (3.9)."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import lens_heads as lh
from lens_heads.heads.sets import every_head
from lens_heads.model.forward import uncached
from lens_heads.model.geometry import head_geometry
from lens_heads.model.hooks import has_hooks, hooked
from lens_heads.model.identity import fingerprint
from lens_heads.ranking.gates.duo import Duo
from lens_heads.ranking.gates.gate import GateBatch
from tests.conftest import random_trial
from tests.contract.test_hooked_transformer import CONFIGS, HookedTransformer, build

pytestmark = pytest.mark.skipif(HookedTransformer is None, reason="this TransformerLens has no HookedTransformer")

TRIALS = [random_trial(seed, 20 + seed) for seed in range(6)]
OTHERS = [random_trial(seed, 20 + seed) for seed in range(30, 32)]
QUIET: dict[str, Any] = {"steps": 3, "batch_size": 2, "progress": False}


@pytest.fixture(params=CONFIGS)
def hooked_model(request: pytest.FixtureRequest) -> Any:
    return build(request.param)


@torch.no_grad()
def test_closed_gates_are_kind_streaming(hooked_model: Any) -> None:
    gate, batch = Duo(1, 4, "mixed", 0.05), GateBatch.of(hooked_model, TRIALS[:1])
    shape = head_geometry(hooked_model)
    with hooked(hooked_model, gate.hooks(torch.zeros(shape.n_layers, shape.n_kv_heads), batch)):
        got = uncached(hooked_model, batch.tokens, batch.pads, 3)
    with lh.ablate(hooked_model, every_head(shape.n_layers, shape.n_heads), kind="streaming", sink=1, recent=4):
        torch.testing.assert_close(got, hooked_model(batch.tokens)[:, -3:], atol=1e-5, rtol=1e-4)


def test_every_method_trains_and_leaves_the_weights(hooked_model: Any) -> None:
    before, vectors = fingerprint(hooked_model), lh.task_vectors(hooked_model, OTHERS)
    found = [
        lh.ranking.duo(hooked_model, TRIALS, sink=1, recent=4, **QUIET),
        lh.ranking.duo(hooked_model, TRIALS, sink=1, recent=4, full="teacher", checkpoints=True, **QUIET),
        lh.ranking.lofit(hooked_model, TRIALS, **QUIET),
        lh.ranking.soft_injection(hooked_model, TRIALS, vectors, **QUIET),
        lh.ranking.head_gating(hooked_model, TRIALS, **QUIET).removed,
    ]
    assert all(one.parameter.isfinite().all() for one in found)
    assert fingerprint(hooked_model) == before
    assert all(weight.requires_grad for weight in hooked_model.parameters())
    assert not has_hooks(hooked_model)


def test_prune_and_streaming_caches_need_a_bridge(hooked_model: Any, tmp_path: Any) -> None:
    with pytest.raises(ValueError, match="needs the Hugging Face model inside a TransformerBridge"):
        lh.prune(hooked_model, ["L0H0"], tmp_path / "pruned")
    with (
        pytest.raises(ValueError, match="this needs a TransformerBridge"),
        lh.evidence.streaming_cache(hooked_model, []),
    ):
        pass
