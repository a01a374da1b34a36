"""Patterns of a forward's last rows under sdpa, which computes none: the rows' queries are noted, their patterns computed later.

    pattern = softmax(scaling q k + mask),   over all keys there are at the end; those that a row could not see have 0

A row's queries are small (heads x d_head), its pattern is not (heads x length): while an answer is written, nothing else is kept,
and no row is run a second time to be looked at.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from einops import einsum, rearrange
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import pad

from lens_heads.model.attending import Attend
from lens_heads.model.last_rows import LastRows


@dataclass
class _Layer:
    """What one layer's attention was given in the forwards so far; keys, values and scaling are those of the last."""

    queries: LastRows
    masks: list[Float[Tensor, "batch or_head row key"]] = field(default_factory=list)
    keys: Tensor = field(default_factory=lambda: torch.empty(0))
    values: Tensor = field(default_factory=lambda: torch.empty(0))
    scaling: float | None = None


class NotedQueries(Attend):
    """The queries of the last `rows` rows of every forward under `fast_attention(model, attend=...)`, by layer."""

    def __init__(self, rows: int) -> None:
        self.rows = rows
        self._layers: dict[int, _Layer] = {}
        self._masks: dict[tuple[Any, ...], tuple[Tensor | None, Tensor]] = {}

    def __call__(
        self, module: Any, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **options: Any
    ) -> tuple[Float[Tensor, "batch row head d_head"], None]:
        """sdpa, whose queries are noted."""
        from transformers.integrations.sdpa_attention import sdpa_attention_forward

        self.note(module, query, key, value, attention_mask, options)
        return sdpa_attention_forward(module, query, key, value, attention_mask, **options)

    def values(self, layer: int) -> Float[Tensor, "batch kv_head key d_head"]:
        """The value vectors of every position so far."""
        return self._layers[layer].values

    def pattern(self, layer: int) -> Float[Tensor, "batch head row key"]:
        """The pattern of every noted row, in float32."""
        held = self._layers[layer]
        queries, keys = held.queries.get().float(), held.keys.float()
        length, scaling = keys.shape[2], queries.shape[-1] ** -0.5 if held.scaling is None else held.scaling
        grouped = rearrange(queries, "b (kv g) row e -> b kv g row e", kv=keys.shape[1])
        scores = einsum(grouped, keys, "b kv g row e, b kv key e -> b kv g row key").flatten(1, 2) * scaling
        masks = [pad(mask, (0, length - mask.shape[-1]), value=-torch.inf) for mask in held.masks]
        return (scores + torch.cat(masks, 2)).softmax(-1)

    def note(self, module: Any, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, options: Any) -> None:
        """Keep what one forward gives a layer's attention."""
        if module.layer_idx not in self._layers:
            self._layers[module.layer_idx] = _Layer(LastRows(self.rows, dim=2))
        held = self._layers[module.layer_idx]
        seen, bias = self._additive(mask, query, key), options.get("position_bias")
        held.queries.add(query)
        held.masks.append(seen if bias is None else seen + bias[..., -self.rows :, :])
        held.keys, held.values, held.scaling = key, value, options.get("scaling")

    def _additive(self, mask: Tensor | None, query: Tensor, key: Tensor) -> Tensor:
        """The mask of the noted rows, 0 where one may look. Layers of one kind are given the same mask, which is made once."""
        length, rows, device = key.shape[2], min(self.rows, query.shape[2]), query.device
        place = id(mask), rows, length, device
        if place in self._masks:
            return self._masks[place][1]
        if mask is None:
            own = torch.arange(length - rows, length, device=device)
            allowed = (torch.arange(length, device=device) <= own[:, None])[None, None]
        else:
            allowed = mask[:, :, -rows:, :length]
        if allowed.dtype == torch.bool:
            allowed = torch.zeros(allowed.shape, device=device).masked_fill_(~allowed, -torch.inf)
        made = allowed.float().expand(len(query), -1, -1, -1)
        self._masks = {at: known for at, known in self._masks.items() if at[1:3] == (rows, length)}
        self._masks[place] = mask, made  # An id is its own only as long as the mask lives.
        return made
