"""Queries that are noted under sdpa, the rows that are kept beside them, and hooks on norms where attention is fast."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from lens_heads.model.forward import fast_attention
from lens_heads.model.last_rows import LastRows
from lens_heads.model.noted_queries import NotedQueries
from lens_heads.trials.encoded import EncodedTrial


def test_an_additive_mask_and_a_bias_count() -> None:
    """What a model without boolean masks, or with position biases, would hand to its attention."""
    generator = torch.Generator().manual_seed(0)
    query, key, value = (torch.randn(1, heads, 6, 4, generator=generator) for heads in (4, 2, 2))
    bias = torch.randn(1, 4, 6, 6, generator=generator)
    causal = torch.full((6, 6), -torch.inf).triu(1)[None, None]
    module = type("Module", (), {"layer_idx": 0})()
    noted = NotedQueries(2)
    noted.note(module, query, key, value, causal, {"scaling": 0.5, "position_bias": bias})
    wanted = (query @ key.repeat_interleave(2, 1).mT * 0.5 + bias + causal).softmax(-1)[:, :, -2:]
    torch.testing.assert_close(noted.pattern(0), wanted)
    assert torch.equal(noted.values(0), value)


def test_last_rows_grow_past_their_first_room() -> None:
    whole = torch.randn(2, 500, 3, generator=torch.Generator().manual_seed(0))
    parts = whole.split([40, *[1] * 460], dim=1)
    kept, first = LastRows(5), LastRows(500)
    for part in parts:
        kept.add(part)
        first.add(part)
    assert torch.equal(first.get(), whole)
    assert torch.equal(kept.get(), whole[:, 35:])
    assert len(kept) == 465


@pytest.mark.parametrize("place", ["ln1.hook_scale", "ln1.hook_normalized", "ln2.hook_in", "ln2.hook_out"])
def test_hooks_on_norms_are_obeyed_where_attention_is_fast(gqa: Any, trial: EncodedTrial, place: str) -> None:
    tokens = trial.tokens[None]
    with torch.no_grad():
        plain = gqa(tokens)
        with gqa.hooks(fwd_hooks=[(f"blocks.0.{place}", lambda x, hook: x.roll(1, 1))]):
            slow = gqa(tokens)
            with fast_attention(gqa):
                fast = gqa(tokens)
        with fast_attention(gqa):
            torch.testing.assert_close(gqa(tokens), plain, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(fast, slow, atol=5e-5, rtol=1e-5)
    assert (slow - plain).abs().max() > 1e-3
