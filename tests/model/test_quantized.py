"""A model whose output projections are quantized: W_O is read through them, and nothing else changes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformer_lens.model_bridge import TransformerBridge

import lens_heads as lh
from lens_heads.model.geometry import output_weights, require_raw_weights
from tests import zoo
from tests.conftest import random_trial

TRIALS = [random_trial(seed) for seed in range(2)]


class Eight(nn.Module):
    """Weights as integers of eight bits, with a scale for each row."""

    def __init__(self, plain: nn.Linear) -> None:
        super().__init__()
        self.scale = nn.Parameter(plain.weight.detach().abs().amax(1, keepdim=True) / 127, requires_grad=False)
        self.weight = nn.Parameter((plain.weight.detach() / self.scale).round().to(torch.int8), requires_grad=False)
        self.bias = plain.bias

    @property
    def dense(self) -> Tensor:
        return self.weight.float() * self.scale

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.linear(x, self.dense.to(x.dtype), self.bias)


def bridge(name: str, quantized: bool) -> Any:
    """A model that computes with the rounded weights, stored as integers or as plain numbers."""
    model = zoo.hf_model(name)
    for layer in model.model.layers:
        eight = Eight(layer.self_attn.o_proj)
        if quantized:
            layer.self_attn.o_proj = eight
        else:
            layer.self_attn.o_proj.weight.data.copy_(eight.dense)
    made = TransformerBridge.boot_transformers("local/eight", hf_model=model, tokenizer=zoo.tokenizer())
    made.enable_compatibility_mode(no_processing=True, disable_warnings=True)
    return made.eval()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["llama-gqa", "qwen3", "gemma3"])
def test_scores_and_ablations_are_those_of_the_rounded_weights(name: str) -> None:
    eight, plain = bridge(name, True), bridge(name, False)
    with pytest.raises(NotImplementedError):
        _ = eight.blocks[0].attn.W_O
    require_raw_weights(eight)
    torch.testing.assert_close(output_weights(eight, 1), output_weights(plain, 1))
    one, other = (lh.score_heads(model, TRIALS, teacher_forced=True, progress=False) for model in (eight, plain))
    for method, scores in other.items():
        torch.testing.assert_close(one[method].values, scores.values, atol=1e-5, rtol=1e-4)
    patched, expected = (lh.patch_heads(model, TRIALS, progress=False) for model in (eight, plain))
    torch.testing.assert_close(patched.values, expected.values, atol=1e-5, rtol=1e-4)
