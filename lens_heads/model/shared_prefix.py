"""Attention of many variants of a prompt's last rows to keys and values that they all share, which are never copied.

Variants that differ only in their last rows read the same keys and values of all rows before. A cache would hold them once for
each variant; here they stand once, and one product serves the queries of all variants:

    softmax([q k_before, q k_own]) [v_before, v_own],   k_before, v_before: one copy;  k_own, v_own: each variant's own rows
"""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from transformers.cache_utils import DynamicLayer

from lens_heads.model.attending import Attend


class _Before(DynamicLayer):
    """A cache layer that keeps what came before, and hands out the new rows alone."""

    def __init__(self, keys: Tensor, values: Tensor) -> None:
        super().__init__()
        self.keys, self.values = keys, values
        self.dtype, self.device, self.is_initialized = keys.dtype, keys.device, True

    def update(self, key_states: Tensor, value_states: Tensor, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        return key_states, value_states


class SharedPrefix(Attend):
    """Attention to a cache whose rows are all alike, which it holds once. It keeps nothing new."""

    def __init__(self, store: Any) -> None:
        # Layers that keep a state have one of every variant.
        self.layers = store.layers = [
            _Before(layer.keys[:1], layer.values[:1]) if hasattr(layer, "values") else layer for layer in store.layers
        ]

    def __call__(
        self,
        module: Any,
        query: Float[Tensor, "variant head row d_head"],
        key: Float[Tensor, "variant kv_head row d_head"],
        value: Float[Tensor, "variant kv_head row d_head"],
        attention_mask: Tensor | None,
        scaling: float | None = None,
        **_: Any,
    ) -> tuple[Float[Tensor, "variant row head d_head"], None]:
        """The mask is that of one variant, or the same for each."""
        before = self.layers[module.layer_idx]
        variants, heads, rows, width = query.shape
        kv, past = key.shape[1], before.keys.shape[-2]
        q = query.reshape(variants, kv, -1, width)  # Query heads of a kv head side by side.
        together = q.transpose(0, 1).reshape(kv, -1, width)
        old = together @ before.keys[0].to(q).mT
        own = (q @ key.mT).transpose(0, 1).reshape(kv, -1, rows)
        scores = torch.cat([old, own], -1) * (width**-0.5 if scaling is None else scaling)
        scores = scores.view(kv, -1, rows, past + rows)
        if attention_mask is None and rows > 1:
            attention_mask = torch.ones(rows, past + rows, dtype=torch.bool, device=q.device).tril(past)[None, None]
        if attention_mask is not None:
            mask = attention_mask[0, 0, :, : past + rows]
            scores = scores.masked_fill(~mask, -torch.inf) if mask.dtype == torch.bool else scores + mask
        pattern = scores.softmax(-1, dtype=torch.float32).to(q.dtype).view(kv, -1, past + rows)
        out = (pattern[..., :past] @ before.values[0].to(q)).view(kv, variants, -1, value.shape[-1])
        mine = pattern[..., past:].reshape(kv, variants, -1, rows).transpose(0, 1)
        out = out.transpose(0, 1) + mine @ value
        return out.reshape(variants, heads, rows, -1).transpose(1, 2).contiguous(), None
