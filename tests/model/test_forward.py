"""The cache: what a forward must leave in it."""

from __future__ import annotations

from typing import Any

import torch

from lens_heads.model.forward import Cache, advance, prefill


def test_tokens_in_the_cache_stand_for_the_prompt(model: Any) -> None:
    """A release of transformers that TransformerLens does not know may drop the cache without a word."""
    tokens = torch.arange(3, 23)[None]
    whole, parts = Cache(model, 1), Cache(model, 1)
    with torch.no_grad():
        expected = advance(model, tokens, whole)
        prefill(model, tokens[:, :-1], parts, chunk=7)
        found = advance(model, tokens[:, -1:], parts)
    assert len(whole) == len(parts) == tokens.shape[1]
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)
