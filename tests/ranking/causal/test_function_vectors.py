"""Average indirect effects: patching with a mean donor, against a plain loop, and on a planted model."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

import lens_heads as lh
from lens_heads.model.geometry import head_geometry
from lens_heads.model.hooks import hooked
from lens_heads.trials.pairs import TokenPair
from tests import planted
from tests.conftest import random_trial
from tests.pairs import trial_of

QUIET: dict[str, Any] = {"progress": False}


def one_token(seed: int, n: int = 24) -> Any:
    return random_trial(seed, n, answer=1)


@pytest.mark.slow
@torch.no_grad()
def test_aie_equals_a_plain_loop(model: Any) -> None:
    vectors = lh.task_vectors(model, [one_token(5), one_token(6, 17)])
    trials = [one_token(0), one_token(1, 19)]
    found = lh.average_indirect_effect(model, trials, vectors=vectors, **QUIET, metric="first_token_prob")
    assert (found.method, found.score_unit) == ("aie", "probability")
    shape = head_geometry(model)
    for i, trial in enumerate(trials):
        gold = int(trial.answer_tokens[0])
        base = model(trial.tokens[None])[0, -1].softmax(-1)[gold]
        for layer in range(shape.n_layers):
            for head in range(shape.n_heads):

                def put(z: Any, hook: Any, layer: int = layer, head: int = head) -> Any:
                    split = z.clone().reshape(*z.shape[:2], shape.n_heads, -1)
                    split[0, -1, head] = vectors.z[layer, head]
                    return split.reshape(z.shape)

                with hooked(model, [(f"blocks.{layer}.attn.hook_z", put)]):
                    after = model(trial.tokens[None])[0, -1].softmax(-1)[gold]
                torch.testing.assert_close(found.per_trial[i, layer, head], after - base, atol=2e-5, rtol=1e-3)


def test_aie_equals_patching_from_a_single_donor(model: Any) -> None:
    """With one clean prompt as the mean, on the same corrupt prompt, it is activation patching."""
    clean, corrupt = one_token(0), replace(one_token(1), answer_tokens=one_token(0).answer_tokens)
    whole = [torch.cat([trial.tokens, clean.answer_tokens]) for trial in (clean, corrupt)]
    pair = TokenPair(*whole, (len(clean), len(clean) + 1), "pair")
    patched = lh.patch_heads(model, trial_of(pair), metric="first_token_prob", positions="answer", **QUIET)
    found = lh.average_indirect_effect(
        model, corrupt, vectors=lh.task_vectors(model, clean), **QUIET, metric="first_token_prob"
    )
    torch.testing.assert_close(found.values, patched.values, atol=1e-5, rtol=1e-4)
    vectors = replace(
        lh.task_vectors(model, clean), prompts=()
    )  # Of the very pair, which is refused where it is known.
    donated = lh.patch_heads(model, trial_of(pair), metric="first_token_prob", donor=vectors, **QUIET)
    torch.testing.assert_close(donated.values, patched.values, atol=1e-5, rtol=1e-4)


def test_planted_heads_have_the_largest_effect() -> None:
    model, answer = planted.model(), planted.trials(1)[0].answer
    donors = [trial for trial in planted.trials(24, seed=1) if trial.answer == answer]
    bare = [trial for trial in planted.trials(24, seed=2, corrupt=True) if trial.answer == answer]
    found = lh.average_indirect_effect(
        model, bare, vectors=lh.task_vectors(model, donors), **QUIET, metric="first_token_prob"
    )
    assert found.top(2) == [planted.COPIER, planted.WRITER]
    assert found[planted.SUPPRESSOR] < 0


def test_vectors_and_their_files(gqa: Any, tmp_path: Any) -> None:
    trials = [one_token(seed, 12 + seed) for seed in range(3)]
    vectors = lh.task_vectors(gqa, trials)
    seen = [gqa.run_with_cache(trial.tokens[None])[1] for trial in trials]
    for layer in range(3):
        expected = torch.stack([cache["z", layer][0, -1] for cache in seen]).mean(0).reshape(4, -1)
        torch.testing.assert_close(vectors.z[layer], expected.detach(), atol=1e-6, rtol=1e-5)
    again = lh.HeadVectors.load(replace(vectors, gates=torch.rand(3, 4)).save(tmp_path / "vectors.safetensors"))
    assert torch.equal(again.z, vectors.z)
    assert again.trial_ids == tuple(trial.id for trial in trials)
    assert again.digest != vectors.digest
    (tmp_path / "other.safetensors").write_bytes(b"nothing")
    with pytest.raises(ValueError, match="not saved vectors of heads"):
        lh.HeadVectors.load(tmp_path / "other.safetensors")
    with pytest.raises(ValueError, match=r"z of shape \[3, 4\]"):
        lh.HeadVectors(torch.zeros(3, 4))
    with pytest.raises(ValueError, match=r"gates of shape \[4\]: must be \[layer, head\]"):
        lh.HeadVectors(torch.zeros(3, 4, 8), torch.zeros(4))
    with pytest.raises(ValueError, match="z holds nan: vectors must be finite"):
        lh.HeadVectors(torch.full((3, 4, 8), torch.nan))
