"""Reference activations equal a plain computation from torch hooks."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import lens_heads as lh
from lens_heads.interventions import activations
from lens_heads.interventions.activations import MeanActivations, mean_activations, trial_activations
from lens_heads.model.geometry import head_geometry
from lens_heads.model.hooks import has_hooks
from lens_heads.trials.encoded import EncodedTrial
from tests import handmade, zoo
from tests.conftest import random_trial, tiny

TRIALS = [random_trial(0, 24), random_trial(1, 13), random_trial(2, 31)]


@cache
def plain(arch: str) -> Any:
    return zoo.hf_model(arch)


@torch.no_grad()
def by_hooks(hf: Any, trial: EncodedTrial) -> tuple[Tensor, Tensor]:
    """z and q of one prompt, both [layer, position, head, d_head], from the inputs and outputs of the projections."""
    z, q, handles = {}, {}, []
    e, heads = handmade.d_head(hf), hf.config.num_attention_heads
    for i, attention in enumerate(handmade.attentions(hf)):
        handles += [
            handmade.out_projection(attention).register_forward_pre_hook(lambda m, a, i=i: z.update({i: a[0][0]})),
            handmade.query_projection(attention).register_forward_hook(lambda m, a, o, i=i: q.update({i: o[0]})),
        ]
    handmade.logits(hf, trial.tokens)
    for handle in handles:
        handle.remove()
    split = [[x[i][:, : heads * e].reshape(len(trial), heads, e) for i in range(zoo.LAYERS)] for x in (z, q)]
    return torch.stack(split[0]), torch.stack(split[1])


def same(got: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(got, expected, atol=1e-5, rtol=1e-4)


def test_means_over_all_positions_of_all_trials(arch: str, model: Any) -> None:
    """Long prompts weigh more: every position counts the same."""
    seen = [by_hooks(plain(arch), trial) for trial in TRIALS]
    found = mean_activations(model, TRIALS, progress=False)
    same(found.z, torch.cat([z for z, _ in seen], 1).mean(1))
    same(found.q, torch.cat([q for _, q in seen], 1).mean(1))
    assert found.trial_ids == ("random-0", "random-1", "random-2")
    assert found.meta == {"model": head_geometry(model).name, "positions": 24 + 13 + 31}
    of_trial_means = torch.stack([z.mean(1) for z, _ in seen]).mean(0)
    assert not torch.allclose(found.z, of_trial_means, atol=1e-3)
    assert not has_hooks(model)


def test_chunks_do_not_matter(arch: str, model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, single = mean_activations(model, TRIALS, progress=False), trial_activations(model, TRIALS[2])
    calls: list[int] = []
    forward = activations.prefill

    def counted(model: Any, tokens: Tensor, cache: Any, pads: Tensor, chunk: int) -> None:
        calls.append(chunk)
        forward(model, tokens, cache, pads, chunk)

    monkeypatch.setattr(activations, "prefill", counted)
    monkeypatch.setattr(activations, "CHUNK", 5)
    in_chunks = mean_activations(model, TRIALS, progress=False)
    same(in_chunks.z, whole.z)
    same(in_chunks.q, whole.q)
    same(trial_activations(model, TRIALS[2]).z, single.z)
    assert calls == [5] * 4


def test_one_trial_position_by_position(arch: str, model: Any) -> None:
    found = trial_activations(model, TRIALS[1])
    same(found.z, by_hooks(plain(arch), TRIALS[1])[0])
    assert found.id == "random-1"
    assert not has_hooks(model)


def test_ablation_with_found_references_is_the_plain_models(arch: str, model: Any) -> None:
    """From trials to ablated logits: the mean and resample references reach the right layer, head and position."""
    hf, prompt = plain(arch), random_trial(5, 20).tokens
    seen = [by_hooks(hf, trial) for trial in TRIALS]
    mean = mean_activations(model, TRIALS, progress=False)
    made = {
        "mean": (mean, torch.cat([z for z, _ in seen], 1).mean(1)),
        "query_mean": (mean, torch.cat([q for _, q in seen], 1).mean(1)),
        "resample": (trial_activations(model, TRIALS[1]), seen[1][0]),
    }
    for kind, (reference, table) in made.items():
        with handmade.by_hand(hf, [(0, 1), (2, 3)], kind, table):
            expected = handmade.logits(hf, prompt)
        with lh.ablate(model, "L0H1,L2H3", kind=kind, reference=reference), torch.no_grad():
            torch.testing.assert_close(model(prompt[None])[0], expected, atol=3e-5, rtol=3e-4)


def test_n_limits_the_trials(gqa: Any) -> None:
    first_two = mean_activations(gqa, TRIALS[:2], progress=False)
    limited = mean_activations(gqa, TRIALS, n=2, progress=False)
    assert limited.trial_ids == ("random-0", "random-1")
    assert torch.equal(limited.z, first_two.z)
    assert torch.equal(limited.q, first_two.q)
    every = mean_activations(gqa, TRIALS, n=None, progress=False)
    assert every.trial_ids == ("random-0", "random-1", "random-2")
    assert not torch.allclose(every.z, limited.z, atol=1e-3)


def test_fifty_trials_unless_told(gqa: Any) -> None:
    many = [random_trial(seed, 12, needle=(1, 4)) for seed in range(51)]
    assert mean_activations(gqa, many, progress=False).trial_ids == tuple(f"random-{i}" for i in range(50))


@pytest.mark.parametrize(("trials", "n"), [([], 50), (TRIALS, 0)])
def test_no_trials_are_refused(gqa: Any, trials: list[EncodedTrial], n: int) -> None:
    with pytest.raises(ValueError, match=r"there are no trials|n=0: must be a positive integer"):
        mean_activations(gqa, trials, n=n, progress=False)


def test_a_prompt_beyond_the_window_is_refused(gqa: Any) -> None:
    with pytest.raises(ValueError, match=r"random-0: 512 prompt tokens and 3 to come exceed the context window of 512"):
        mean_activations(gqa, [random_trial(0, 512)], progress=False)


def test_saved_and_loaded_they_are_the_same(gqa: Any, tmp_path: Path) -> None:
    found = mean_activations(gqa, TRIALS, progress=False)
    loaded = MeanActivations.load(found.save(tmp_path / "means.safetensors"))
    assert torch.equal(loaded.z, found.z)
    assert torch.equal(loaded.q, found.q)
    assert not torch.equal(loaded.z, loaded.q)
    assert loaded.trial_ids == found.trial_ids
    assert loaded.meta == found.meta


def test_means_of_another_model_are_refused(gqa: Any) -> None:
    wide = mean_activations(tiny("qwen3"), TRIALS[:1], progress=False)
    with pytest.raises(ValueError, match=r"shape \(3, 4, 12\) \(qwen3\), but llama-gqa needs \(3, 4, 8\)"):
        wide.check(head_geometry(gqa))
    wide.check(head_geometry(tiny("qwen3")))


def test_halves_are_summed_in_full_precision() -> None:
    """A bfloat16 model's means are the means of its activations, not sums rounded at every trial."""
    model = zoo.bridge("llama-gqa", dtype=torch.bfloat16)
    many = [random_trial(seed, 40) for seed in range(8)]
    single = [mean_activations(model, [trial], progress=False) for trial in many]
    together = mean_activations(model, many, progress=False)
    torch.testing.assert_close(together.z, torch.stack([one.z for one in single]).mean(0), atol=1e-6, rtol=1e-5)


def test_processed_weights_are_refused() -> None:
    from transformer_lens.model_bridge import TransformerBridge

    model = TransformerBridge.boot_transformers(
        "gpt2", hf_model=zoo.hf_model("gpt2"), tokenizer=zoo.tokenizer(), device="cpu"
    )
    model.enable_compatibility_mode(disable_warnings=True)
    with pytest.raises(ValueError, match=r"gpt2 has processed weights"):
        mean_activations(model, TRIALS, progress=False)


@pytest.mark.parametrize("collect", [mean_activations, lambda model, trials: trial_activations(model, trials[0])])
def test_a_plain_model_is_refused(collect: Any) -> None:
    with pytest.raises(TypeError, match=r"LlamaForCausalLM is not a TransformerLens model: load it with lens_heads\."):
        collect(plain("llama-gqa"), TRIALS)


def test_a_token_beyond_the_vocabulary_is_refused(gqa: Any) -> None:
    beyond = EncodedTrial([5, zoo.VOCAB], None, "x", [5], "t")  # type: ignore[arg-type]
    for collect in (lambda: mean_activations(gqa, [beyond], progress=False), lambda: trial_activations(gqa, beyond)):
        with pytest.raises(ValueError, match="trial t: tokens contain the id 256, but the model's ids are 0 to 255"):
            collect()


def test_a_single_trial_is_one_and_references_hash(gqa: Any) -> None:
    one, other = mean_activations(gqa, TRIALS[0], progress=False), mean_activations(gqa, TRIALS[:1], progress=False)
    assert torch.equal(one.z, other.z)
    assert one == one
    assert len({one, other, trial_activations(gqa, TRIALS[0]), trial_activations(gqa, TRIALS[0])}) == 4
