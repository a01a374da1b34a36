"""What a model must fulfil before it is used: what fails refuses what rests on it, in one sentence, and leaves the rest."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from contextlib import nullcontext
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import AutoConfig, AutoModelForCausalLM

import lens_heads as lh
from lens_heads.model import forward, probe_run
from lens_heads.model import support as supporting
from lens_heads.model.delegated import gate_of
from lens_heads.model.geometry import output_weights
from lens_heads.model.hooks import has_hooks
from lens_heads.model.probe_run import Check, ProbeRun
from lens_heads.model.rope import fixed_below, rotates_by_length
from lens_heads.model.support import support
from lens_heads.trials.pairs import TokenPair
from tests import witnesses, zoo
from tests.conftest import random_trial, tiny
from tests.families import row
from tests.pairs import trial_of

TRIALS = [random_trial(seed) for seed in range(4)]
PAIR = trial_of(
    TokenPair(TRIALS[0].tokens, torch.cat([TRIALS[0].tokens[:9].roll(2), TRIALS[0].tokens[9:]]), (20, 24), "a")
)


LLAMA = row("OLMo 1")[1]
"""The settings of a plain model with grouped heads."""


@cache
def made(kind: str, settings: str = "") -> Any:
    """A tiny Hugging Face model. `settings`: the name of further ones."""
    given = {name: value for name, value in LLAMA.items() if kind != "bert" or name != "num_key_value_heads"}
    given |= MORE.get(settings or kind, {})
    torch.manual_seed(0)
    config = AutoConfig.for_model(kind, **given)
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager")
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter.copy_(0.3 * torch.randn_like(parameter))
    model.config.architectures = [type(model).__name__]
    return model.eval()


_HALF = witnesses.D_HEAD // 2
LONGROPE = {
    "rope_type": "longrope",
    "rope_theta": 10000.0,
    "original_max_position_embeddings": 40,
    "factor": 8.0,
    "short_factor": [1.0] * _HALF,
    "long_factor": [2.0 + i for i in range(_HALF)],
}
MORE: dict[str, dict[str, Any]] = {
    "falcon": dict(alibi=True, multi_query=True),
    "phi3": dict(max_position_embeddings=320, original_max_position_embeddings=40, rope_parameters=LONGROPE),
}


def bridged(kind: str) -> Any:
    return zoo.bridge(kind, hf=copy.deepcopy(made(kind)))


def logprob(model: Any, trial: lh.EncodedTrial) -> float:
    """Of the answer, by one forward of plain transformers."""
    tokens = torch.cat([trial.tokens, trial.answer_tokens[:-1]])
    with torch.no_grad():
        rows = model(tokens[None], use_cache=False).logits[0, len(trial) - 1 :].log_softmax(-1)
    return float(rows.gather(-1, trial.answer_tokens[:, None]).mean())


ZEROS = lh.HeadScores.from_trials("made", torch.rand(2, 4, 4, generator=torch.Generator().manual_seed(0)), ["p", "q"])
EVERYTHING: dict[str, Callable[[Any], Any]] = {
    "score_heads": lambda m: lh.score_heads(m, TRIALS, "attention_mass", teacher_forced=True, progress=False),
    "score_heads of texts": lambda m: lh.score_heads(m, lh.plain_texts(["a b c d e f"]), "sink", progress=False),
    "evaluate": lambda m: lh.evaluate(m, TRIALS, generate=False, progress=False),
    "ablate": lambda m: lh.ablate(m, "L0H1", kind="zero").__enter__(),
    "ablation_curve": lambda m: lh.ablation_curve(
        m, TRIALS, ZEROS, ks=[1], kind="zero", generate=False, progress=False
    ),
    "knockout_heads": lambda m: lh.knockout_heads(m, TRIALS, kind="zero", progress=False),
    "influence": lambda m: lh.influence(m, ["a b c d e f"], "L0H1", kind="zero", progress=False),
    "mean_activations": lambda m: lh.mean_activations(m, TRIALS, progress=False),
    "task_vectors": lambda m: lh.task_vectors(m, TRIALS),
    "patch_heads": lambda m: lh.patch_heads(m, [PAIR], progress=False),
    "patch": lambda m: lh.patch(m, "L0H1", PAIR).__enter__(),
    "attribution_patch": lambda m: lh.attribution_patch(m, [PAIR], progress=False, positions="all"),
    "path_patch": lambda m: lh.path_patch(m, [PAIR], "L0H1", "logits", progress=False),
    "faithfulness": lambda m: lh.faithfulness(m, [PAIR], ZEROS, ks=[1], progress=False, positions="all"),
    "localize_heads": lambda m: lh.localize_heads(m, TRIALS, n_masks=12, sparsity=0.2, progress=False, kind="zero"),
    "look": lambda m: lh.look(m, TRIALS[0]),
    "describe": lambda m: lh.describe(m, "L0H1", text=["a b c d e f g h"], progress=False),
    "probe_heads": lambda m: lh.probe_heads(m, TRIALS, labels=[0, 1, 0, 1], folds=2, progress=False),
    "head_gating": lambda m: lh.ranking.head_gating(m, TRIALS, steps=1, progress=False),
    "reinforce": lambda m: lh.reinforce(m, TRIALS, progress=False),
    "contrast": lambda m: lh.contrast(m, TRIALS, "L0H1", kind="zero", progress=False),
    "token_curves": lambda m: lh.token_curves(m, "a b c d e f g h"),
    "prune": lambda m: lh.prune(m, "L0H1", "/nowhere/pruned"),
}


@pytest.mark.parametrize("name", EVERYTHING)
def test_a_model_that_sees_later_tokens_is_refused(name: str) -> None:
    model = bridged("bert")
    with pytest.raises(
        ValueError, match=r"bert \(BertLMHeadModel\): .* rests on this: no token sees the future"
    ) as refused:
        EVERYTHING[name](model)
    assert "load a causal language model" in str(refused.value)
    assert not has_hooks(model)


def test_attention_that_sdpa_computes_differently_is_computed_as_written() -> None:
    """Falcon's ALiBi: transformers' sdpa and eager attention give different logits; those of the eager one are used."""
    model = bridged("falcon")
    assert support(model).avoided == ("fast",)
    found = lh.evaluate(model, TRIALS[0], generate=False, progress=False).mean("logprob")
    assert found == pytest.approx(logprob(made("falcon"), TRIALS[0]), rel=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("parts", [{"multi_query": True}, {"multi_query": False, "parallel_attn": False, "bias": True}])
def test_a_small_difference_of_sdpa_is_seen_too(parts: dict[str, bool], seed: int) -> None:
    """Falcon's ALiBi in weights of the usual size: sdpa is off by a few parts in ten thousand, and by .05 nats."""
    hf = small_falcon(seed, parts)
    model = zoo.bridge("falcon", hf=copy.deepcopy(hf))
    assert support(model).avoided == ("fast",)
    for length in (20, 80):
        trial = random_trial(seed, n=length)
        found = lh.evaluate(model, trial, generate=False, progress=False).mean("logprob")
        assert found == pytest.approx(logprob(hf, trial), rel=1e-5)


def small_falcon(seed: int, parts: dict[str, bool]) -> Any:
    torch.manual_seed(seed)
    sizes = {"vocab_size": zoo.VOCAB, "hidden_size": 32, "num_hidden_layers": 4, "num_attention_heads": 4}
    config = AutoConfig.for_model("falcon", **sizes, bos_token_id=1, eos_token_id=2, alibi=True, **parts)
    hf = AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
    hf.config.architectures = ["FalconForCausalLM"]
    return hf


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["dynamic", "yarn"])
def test_rotations_that_are_scaled_by_the_length(kind: str) -> None:
    scaled = {"rope_type": kind, "factor": 4.0, "rope_theta": 10000.0, "original_max_position_embeddings": 40}
    config = AutoConfig.for_model("llama", **{**LLAMA, "max_position_embeddings": 320, "rope_parameters": scaled})
    torch.manual_seed(0)
    hf = AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
    hf.config.architectures = ["LlamaForCausalLM"]
    model = zoo.bridge("llama", hf=copy.deepcopy(hf))
    for length in (30, 60, 200):
        trial = random_trial(5, n=length)
        found = lh.evaluate(model, trial, generate=False, progress=False).mean("logprob")
        assert found == pytest.approx(logprob(hf, trial), rel=2e-5)
        whole, parts = (
            lh.score_heads(model, trial, "locos", teacher_forced=True, chunk=chunk, progress=False)["locos"].values
            for chunk in (512, 7)
        )
        torch.testing.assert_close(parts, whole, atol=1e-5 * float(whole.abs().max()) + 1e-7, rtol=1e-4)


@pytest.mark.parametrize("length", [30, 38, 39, 60])
def test_rotations_are_those_of_the_whole_text(length: int) -> None:
    """LongRoPE with a table for texts of up to 40 tokens: prompts that end before it, and whose answers go beyond it."""
    model, trial = bridged("phi3"), random_trial(5, n=length)
    assert rotates_by_length(model)
    assert fixed_below(model) == 40
    expected = logprob(made("phi3"), trial)
    assert lh.evaluate(model, trial, generate=False, progress=False).mean("logprob") == pytest.approx(
        expected, rel=1e-5
    )
    both = lh.evaluate(model, [trial, random_trial(6, n=24)], generate=False, progress=False)
    assert float(both.metrics["logprob"][0]) == pytest.approx(expected, rel=1e-5)
    assert float(lh.look(model, trial).logprobs.mean()) == pytest.approx(expected, rel=1e-5)


def test_chunks_change_nothing_where_rotations_depend_on_the_length() -> None:
    model, trial = bridged("phi3"), random_trial(5, n=60)
    one, other = (
        lh.score_heads(model, trial, ["locos", "attention_mass"], teacher_forced=True, chunk=chunk, progress=False)
        for chunk in (512, 7)
    )
    for method in one:
        torch.testing.assert_close(one[method].values, other[method].values, atol=1e-5, rtol=1e-4)


def test_chunks_are_also_measured_where_rotations_are_those_of_long_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    model = bridged("phi3")
    (row,) = [row for row in lh.check_model(model).checks if "long texts" in row.name]
    assert row.passed
    assert row.note == "104 tokens"
    monkeypatch.setattr(forward, "rotating", lambda *_: nullcontext())
    (row,) = [row for row in lh.check_model(model).checks if "long texts" in row.name]
    assert not row.passed
    assert not [row for row in lh.check_model(tiny("gpt2")).checks if "long texts" in row.name]


class Adapted(nn.Module):
    """A projection with a low-rank adapter beside its weights, as PEFT's."""

    def __init__(self, plain: nn.Linear, rank: int = 2) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(1)
        self.base_layer = plain
        self.A = nn.Parameter(torch.randn(rank, plain.in_features, generator=generator) * 0.3)
        self.B = nn.Parameter(torch.randn(plain.out_features, rank, generator=generator) * 0.3)

    @property
    def weight(self) -> Tensor:
        return self.base_layer.weight

    @property
    def bias(self) -> Tensor | None:
        return self.base_layer.bias

    def forward(self, x: Tensor) -> Tensor:
        return self.base_layer(x) + x @ self.A.T @ self.B.T


def test_adapters_beside_the_weights_are_read_through_the_projection() -> None:
    hf, merged = (zoo.hf_model("llama-gqa") for _ in range(2))
    for layer, other in zip(hf.model.layers, merged.model.layers, strict=True):
        layer.self_attn.o_proj = adapted = Adapted(layer.self_attn.o_proj)
        other.self_attn.o_proj.weight.data += adapted.B.detach() @ adapted.A.detach()
    one, other = (zoo.bridge("llama-gqa", hf=each) for each in (hf, merged))
    torch.testing.assert_close(output_weights(one, 1), output_weights(other, 1))
    scores = [
        lh.score_heads(each, TRIALS[0], "dla", teacher_forced=True, progress=False)["dla"] for each in (one, other)
    ]
    torch.testing.assert_close(scores[0].values, scores[1].values, atol=1e-5, rtol=1e-4)


def test_measured_without_the_hooks_that_are_on_the_model() -> None:
    """An ablation around the first use is no property of the model, and is still there afterwards."""
    supporting._BY_WEIGHTS.clear()
    model = zoo.bridge("llama-gqa", seed=31)
    seen: list[int] = []
    model.add_hook("blocks.0.attn.hook_z", lambda z, hook: seen.append(0) or torch.zeros_like(z))
    known = support(model, "edits", "queries", "joined")
    assert all(check.passed for checks in known.checks.values() for check in checks)
    assert not seen
    with torch.no_grad():
        model(TRIALS[0].tokens[None])
    assert seen
    model.reset_hooks()


def test_the_same_weights_are_measured_once(monkeypatch: pytest.MonkeyPatch) -> None:
    first = support(zoo.bridge("qwen3", seed=32))

    def never(*_: Any, **__: Any) -> Any:
        raise AssertionError("measured again")

    monkeypatch.setattr(probe_run, "run", never)
    again = zoo.bridge("qwen3", seed=32)
    assert support(again) is first
    with torch.no_grad():
        next(again.original_model.parameters()).add_(1)
    assert all(
        not check.passed for check in support(again).checks["values"]
    )  # Other weights: what is measured has failed.


def test_an_identity_that_cannot_be_measured_has_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A foreign error inside a measurement becomes the sentence's note."""

    def broken(one: ProbeRun) -> Check:
        raise KeyError("attn")

    monkeypatch.setitem(supporting._MEASURED, "closing", (broken, "use direction='raw'"))
    model = zoo.bridge("llama-gqa", seed=33)
    with pytest.raises(
        ValueError, match=r"LlamaForCausalLM\): method 'locos_exact' rests on this.*KeyError.*use direction='raw'"
    ):
        lh.score_heads(model, TRIALS[0], "locos_exact", teacher_forced=True, progress=False)
    lh.score_heads(model, TRIALS[0], "locos", teacher_forced=True, progress=False)


def test_what_was_measured_stands_in_the_run_folder(tmp_path: Path) -> None:
    lh.evaluate(zoo.bridge("llama-gqa"), TRIALS, generate=False, out=tmp_path / "run", progress=False)
    stored = json.loads((tmp_path / "run" / "support.json").read_text())
    assert stored["architecture"] == "LlamaForCausalLM"
    assert {row["name"] for row in stored["checks"]} >= {"no token sees the future", "contributions close on the logit"}
    assert all(row["passed"] and float(row["error"]) <= row["tolerance"] for row in stored["checks"])


@pytest.mark.parametrize("arch", zoo.ARCHITECTURES)
def test_rounding_is_no_gate(arch: str) -> None:
    """In bfloat16, z is A v but for rounding, by which a gate read off their quotient would scatter what each position writes."""
    assert supporting.support(zoo.bridge(arch, dtype=torch.bfloat16)).gated == ()


def test_a_gate_is_not_read_off_rounding() -> None:
    read, g = torch.tensor([[1.0, -2.0, 1e-9, 0.5]]), torch.tensor([[0.5, 0.25, 0.9, 0.125]])
    found = gate_of(g * read + 1e-9, read, torch.float32)
    assert found is not None
    torch.testing.assert_close(found, torch.tensor([[0.5, 0.25, 0.0, 0.125]]))
    assert gate_of(read + 1e-5, read, torch.float32) is None
    assert gate_of(read + 1e-2, read, torch.bfloat16) is None
