"""Scores of texts, pairs and weights, and the causal methods beside them, on a HookedTransformer (3.9)."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import lens_heads as lh
from lens_heads.answering.patch_metrics import answer_logprob
from lens_heads.heads.conditions import Condition
from lens_heads.model.geometry import head_geometry
from lens_heads.model.hooks import has_hooks
from lens_heads.ranking.one_pass.scorers import TEXT_SCORERS
from tests.conftest import random_trial
from tests.contract.test_hooked_transformer import CONFIGS, Cached, HookedTransformer, build
from tests.evidence.test_repair import HEADS
from tests.evidence.test_repair import plain as moved_by_hand
from tests.ranking.one_pass.rows import LOOPS

pytestmark = pytest.mark.skipif(HookedTransformer is None, reason="this TransformerLens has no HookedTransformer")


@pytest.fixture(params=CONFIGS)
def hooked_model(request: pytest.FixtureRequest) -> Any:
    return build(request.param)


def test_scores_of_texts_match_loops(hooked_model: Any) -> None:
    tokens = torch.randint(3, 40, (30,), generator=torch.Generator().manual_seed(0))
    names = [name for name in TEXT_SCORERS if name != "far_mass"]
    probe = lh.plain_texts([tokens], min_distance=4)
    found = lh.score_heads(hooked_model, probe, names, progress=False)
    (text,) = probe.encode(hooked_model.tokenizer, head_geometry(hooked_model))
    A, rows = Cached(hooked_model, tokens).A, range(1, 30)
    for name in names:
        expected = torch.tensor([[LOOPS[name](head, list(rows), text) for head in layer] for layer in A]).float()
        torch.testing.assert_close(found[name].values, expected, atol=2e-5, rtol=2e-4)
    with pytest.raises(ValueError, match="is no TransformerBridge"):
        lh.score_heads(hooked_model, probe, ["far_mass"], progress=False)
    assert not has_hooks(hooked_model)


def test_scores_of_pairs_and_weights_match_loops(hooked_model: Any) -> None:
    trial, shape = random_trial(), head_geometry(hooked_model)
    found = lh.score_heads(hooked_model, lh.context_pairs(trial), ["context_divergence"], progress=False)
    apart = []
    for prompt in (trial.tokens, torch.cat([trial.tokens[:7], trial.tokens[11:]])):
        cached = Cached(hooked_model, torch.cat([prompt, trial.answer_tokens[:-1]]))
        apart.append([cached.cache["z", layer][0, len(prompt) - 1 :] for layer in range(3)])
    pairs = [(token, token + 1) for token in range(5, 12)]
    maps = lh.score_heads(hooked_model, lh.token_maps({"m": pairs}), ["token_map_raw"], progress=False)["token_map_raw"]
    ids = torch.arange(5, 13)
    for layer in range(3):
        attention = hooked_model.blocks[layer].attn
        with torch.no_grad():
            x = hooked_model.blocks[0].mlp(hooked_model.embed(ids[None]))[0]
            for head in range(4):
                difference = (apart[0][layer][:, head] - apart[1][layer][:, head]) @ attention.W_O[head]
                expected = float(difference.norm(dim=-1).mean())
                assert found["context_divergence"].values[layer, head] == pytest.approx(expected, abs=2e-5, rel=2e-4)
                W_V = attention.W_V[head if len(attention.W_V) == 4 else head // shape.group]
                logits = x @ W_V @ attention.W_O[head] @ hooked_model.W_U[:, ids]
                hits = sum(int(logits[i].argmax()) == i + 1 for i in range(7)) / 7 if layer else 0
                assert maps.values[layer, head] == pytest.approx(hits)


def test_causal_methods_are_the_slopes_of_real_runs(hooked_model: Any) -> None:
    trial, step = random_trial(), 2e-2
    found = lh.attribute_ablation(hooked_model, trial, kind="zero", progress=False)
    tokens = torch.cat([trial.tokens, trial.answer_tokens[:-1]])[None]
    values = []
    for factor in (1 + step, 1 - step):
        with torch.no_grad(), lh.ablate(hooked_model, "L1H2", kind="scale", factor=factor):
            logits = hooked_model(tokens)[:, len(trial.tokens) - 1 :]
        values.append(float(answer_logprob(logits.double(), trial.answer_tokens)[0]))
    assert found["L1H2"] == pytest.approx((values[0] - values[1]) / (2 * step), abs=2e-3, rel=2e-2)
    queries = lh.ranking.attribute_queries(hooked_model, trial, progress=False)
    assert torch.isfinite(queries.values).all()
    knocked = lh.knockout_heads(hooked_model, [trial.tokens], progress=False, kind="uniform")
    with torch.no_grad():
        p = hooked_model(trial.tokens[None])[0, -1].log_softmax(-1)
        with lh.ablate(hooked_model, "L2H0", kind="uniform"):
            q = hooked_model(trial.tokens[None])[0, -1].log_softmax(-1)
    assert knocked["L2H0"] == pytest.approx(float((p.exp() * (p - q)).sum()), abs=2e-5, rel=2e-3)
    assert not has_hooks(hooked_model)


def test_heads_are_described(hooked_model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    maps = {name: lh.ranking.TokenMap(((5, 6), (6, 7))) for name in ("successor", "copying", "copy_suppression")}
    monkeypatch.setattr("lens_heads.ranking.one_pass.token_maps.packaged_maps", lambda tokenizer, d_vocab: maps)
    monkeypatch.setattr("lens_heads.inspection.cards.BLOCK", 5)
    text = torch.randint(3, 250, (20,), generator=torch.Generator().manual_seed(0)).tolist()
    found = lh.describe(hooked_model, text=[text], progress=False)
    assert len(found.frame) == 12
    assert found.frame["promotes"].str.len().min() > 0


def test_moved_attention_matches_hooks_in_a_full_forward(hooked_model: Any) -> None:
    ids = 3 + torch.randperm(36, generator=torch.Generator().manual_seed(0))[:30]
    choices = tuple(ids[at : at + 2] for at in (4, 9))
    trial = lh.EncodedTrial(ids, None, "a", choices[0], "random", choices=("a", "b"), choice_tokens=choices)
    found = lh.evidence.repair(
        hooked_model, trial, HEADS, controls=lh.Controls(("random", "random_like"), 2), progress=False
    )
    expected, _ = moved_by_hand(hooked_model, trial, HEADS, [9, 10])
    assert found.values(Condition.top("moved", 3), "logprob").item() == pytest.approx(expected, abs=1e-4)
    assert not has_hooks(hooked_model)
