"""Variants that share what came before give the numbers of variants that each hold a copy of it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from lens_heads.answering.pair_runs import Z, run_pair
from lens_heads.heads.head import Head
from lens_heads.model import attending
from lens_heads.model.forward import Cache, fast_attention, shares_prefix
from lens_heads.model.geometry import head_geometry
from lens_heads.model.hooks import has_hooks
from lens_heads.model.shared_prefix import SharedPrefix
from lens_heads.trials.pairs import TokenPair
from tests import zoo
from tests.conftest import tiny


def variants(model: Any, answer: int = 3) -> Tensor:
    """The answer logits of every head patched."""
    tokens = torch.randint(3, zoo.VOCAB, (2, 24), generator=torch.Generator().manual_seed(0))
    tokens[1, -answer:] = tokens[0, -answer:]
    pair = TokenPair(tokens[0], tokens[1], (24 - answer, 24), "pair")
    runs = run_pair(model, pair, "answer")
    shape = head_geometry(model)
    heads = [Head(layer, head) for layer in range(shape.n_layers) for head in range(shape.n_heads)]
    hooks = [
        (Z.format(layer), lambda z, hook, layer=layer: runs.swapped(z, layer, heads, runs.z(layer, 0)))
        for layer in range(shape.n_layers)
    ]
    return runs.rerun(1, [head.layer for head in heads], hooks)


@pytest.mark.parametrize("answer", [1, 3])
@pytest.mark.parametrize("name", [name for name in zoo.ARCHITECTURES if name != "gemma2"])
def test_the_numbers_are_those_of_copies(name: str, answer: int, monkeypatch: pytest.MonkeyPatch) -> None:
    model, calls = zoo.bridge(name), []
    attend = SharedPrefix.__call__

    def counting(self: SharedPrefix, module: Any, query: Tensor, *args: Any, **options: Any) -> Any:
        calls.append(query.shape[0])
        return attend(self, module, query, *args, **options)

    monkeypatch.setattr(SharedPrefix, "__call__", counting)
    once = variants(model, answer)
    heads = head_geometry(model).n_heads
    used = name != "gpt2" and shares_prefix(model, answer)  # GPT-2 hooks z where sdpa has no module.
    assert calls == ([heads, 2 * heads, 3 * heads] if used else [])
    monkeypatch.setattr(type(model.original_model), "_supports_attention_backend", False)
    copies = variants(model, answer)
    torch.testing.assert_close(once, copies, atol=1e-5, rtol=1e-4)
    assert (once - once[:1]).abs().max() > 1e-3  # The variants differ.


def test_most_architectures_share() -> None:
    sharing = [name for name in zoo.ARCHITECTURES if shares_prefix(tiny(name), 1)]
    assert {"gpt2", "llama-gqa", "llama-mqa", "qwen3", "gemma3", "olmo2"} <= set(sharing)


def test_half_precision_agrees() -> None:
    model = tiny("llama-gqa", torch.bfloat16)
    exact = variants(tiny("llama-gqa"))
    assert (variants(model) - exact).abs().max() < 0.1 * exact.abs().max()


def test_many_rows_are_copied() -> None:
    model = tiny("llama-gqa")
    assert shares_prefix(model, 4)
    assert not shares_prefix(model, 5)  # More than half of d_head, 8.


def test_an_empty_cache_and_capped_attention_share_nothing() -> None:
    assert not shares_prefix(tiny("gemma2"), 1)
    for name in ("llama-gqa", "gemma2"):
        model = tiny(name)
        cache = Cache(model, 1)
        with fast_attention(model, cache):
            assert model.original_model.config._attn_implementation != attending.NAME
        assert not has_hooks(model)
