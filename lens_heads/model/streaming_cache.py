"""A KV cache in which only some kv heads keep everything: the others keep the first tokens and the most recent.

Keys keep the rotary phase of their own position, so the numbers are those of kind "streaming" on the other heads, while memory is
really smaller (DuoAttention's deployment, Xiao et al., arXiv 2410.10819). In layers with a sliding window no head keeps more.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from transformers.cache_utils import DynamicCache, DynamicLayer

from lens_heads.model.attending import Attend
from lens_heads.model.forward import fast_attention, hooked_inside_attention, store_of, takes_attention
from lens_heads.model.geometry import Model, head_geometry
from lens_heads.runs import checks


class _Rows(DynamicLayer):
    """A cache layer that counts tokens and hands out the new rows alone."""

    count = 0

    def update(self, key_states: Tensor, value_states: Tensor, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        self.count += key_states.shape[-2]
        return key_states, value_states

    def get_seq_length(self) -> int:
        return self.count


class _Part:
    """Some kv heads of a layer with what they keep: the first `sink` keys and those fewer than `reach` (None: all) back."""

    def __init__(self, heads: list[int], sink: int, reach: int | None) -> None:
        self.heads, self.sink, self.reach = heads, sink, reach
        self.keys: Tensor | None = None
        self.values: Tensor | None = None
        self.places: Int[Tensor, " key"] | None = None

    def append(self, key: Float[Tensor, "batch kv_head row d_head"], value: Tensor, rows: Int[Tensor, " row"]) -> None:
        key, value = key[:, self.heads], value[:, self.heads]
        if self.keys is not None and self.values is not None and self.places is not None:
            key, value = torch.cat([self.keys, key], 2), torch.cat([self.values, value], 2)
            rows = torch.cat([self.places, rows])
        self.keys, self.values, self.places = key, value, rows

    def reads(self, row: Int[Tensor, "row 1"], window: int | None) -> Bool[Tensor, "row key"]:
        """Which of its keys each row may attend to."""
        assert self.places is not None
        seen = (self.places <= row) & ((self.places > row - (self.reach or 2**62)) | (self.places < self.sink))
        return seen & (self.places > row - window) if window else seen

    def forget(self, next_row: int, window: int | None) -> None:
        """Drop what no later row reads."""
        assert self.keys is not None
        assert self.values is not None
        assert self.places is not None
        reach, sink = min(self.reach or 2**62, window or 2**62), self.sink
        kept = (self.places > next_row - reach) | ((self.places < sink) & (self.places > next_row - (window or 2**62)))
        if not kept.all():
            self.keys, self.values, self.places = self.keys[:, :, kept], self.values[:, :, kept], self.places[kept]

    @property
    def bytes(self) -> int:
        return 0 if self.keys is None or self.values is None else self.keys.nbytes + self.values.nbytes


class StreamingCache(Attend):
    """A cache for `prefill`, `advance` and `greedy` of a bridge, inside its own `attending(model)`.

    `full` [layer, kv_head]: the heads that keep everything. The others keep the first `sink` and the last `recent` tokens.
    Prompts of a batch must have equal lengths. ValueError for a model whose attention cannot be computed by another
    function.
    """

    bridge = True
    alone = True

    def __init__(self, model: Model, full: Bool[Tensor, "layer kv_head"], sink: int = 4, recent: int = 64) -> None:
        shape = head_geometry(model)
        checks.whole_number("sink", sink, 0)
        checks.whole_number("recent", recent, remedy=": a token always reads itself")
        both = any(layer.n_heads and layer.mixer for layer in shape.layers)
        # A cache drops what is behind a window, not behind a chunk.
        if not takes_attention(model) or any(shape.chunks) or both:
            raise ValueError(
                f"{shape.name} cannot decode with a streaming cache: this needs a TransformerBridge "
                "(lens_heads.load_model) whose attention can be computed by another function, without capped scores; use "
                "ablate(model, heads, 'streaming') for the numbers"
            )
        if tuple(full.shape) != (shape.n_layers, shape.n_kv_heads):
            raise ValueError(
                f"full has shape {list(full.shape)}: {shape.name} has {shape.n_layers} layers of {shape.n_kv_heads} kv heads"
            )
        self.model = model
        self.counts, self.whole = [0] * shape.n_layers, 0  # `whole`: as in `Cache`.
        self.store: Any = store_of(model) or DynamicCache()
        states = self.store.layers or [None] * shape.n_layers
        self.store.layers = [_Rows() if here.n_heads else kept for here, kept in zip(shape.layers, states, strict=True)]
        self.variants, self.named = None, {}  # As in `Cache`: nothing is known of its rows.
        self.shape = shape
        self.parts: list[list[_Part]] = []
        for row, here in zip(full, shape.layers, strict=True):
            row = row[: here.n_kv_heads]
            both = _Part(row.nonzero()[:, 0].tolist(), 0, None), _Part((~row).nonzero()[:, 0].tolist(), sink, recent)
            self.parts.append([part for part in both if part.heads])

    def __len__(self) -> int:
        return self.store.layers[self.shape.attending[0]].count

    @property
    def states(self) -> list[Any]:
        """As in `Cache`."""
        return [layer for layer in self.store.layers if hasattr(layer, "marked")]

    @property
    def bytes(self) -> int:
        """The memory that its keys and values take."""
        return sum(part.bytes for parts in self.parts for part in parts)

    def branch(self) -> StreamingCache:
        """A cache that keeps the same now. Neither sees what is appended to the other."""
        other = copy.copy(self)
        other.store = copy.copy(self.store)
        other.store.layers = [copy.copy(layer) for layer in self.store.layers]
        other.counts = list(self.counts)
        other.parts = [[copy.copy(part) for part in parts] for parts in self.parts]
        return other

    @contextmanager
    def attending(self, model: Model) -> Iterator[StreamingCache]:
        """Inside, the model's attention reads this cache, and no other cache may be used. ValueError for hooks on patterns."""
        self._check_unhooked()
        with fast_attention(model, attend=self):
            yield self

    def _check_unhooked(self) -> None:
        if hooked_inside_attention(self.model):
            raise ValueError(
                "the model has hooks inside its attention, which a streaming cache bypasses: remove them first"
            )

    def __call__(
        self,
        module: Any,
        query: Float[Tensor, "batch head row d_head"],
        key: Float[Tensor, "batch kv_head row d_head"],
        value: Float[Tensor, "batch kv_head row d_head"],
        attention_mask: Tensor | None,
        scaling: float | None = None,
        **_: Any,
    ) -> tuple[Float[Tensor, "batch row head d_head"], None]:
        """Attention of the new rows to what is kept and to each other."""
        layer, out = module.layer_idx, query.new_empty(*query.shape[:-1], value.shape[-1])
        end, window, group = self.store.layers[layer].count, self.shape.windows[layer], self.shape.layers[layer].group
        if layer == self.shape.attending[0]:  # Hooks may come inside the block too.
            self._check_unhooked()
        if end == self.counts[layer]:
            raise ValueError(
                "the model runs without its streaming cache: inside the block, give the cache to prefill, advance or greedy"
            )
        self.counts[layer] = end
        rows = torch.arange(end - key.shape[-2], end, device=key.device)
        for part in self.parts[layer]:
            part.append(key, value, rows)
            heads = [head * group + i for head in part.heads for i in range(group)]
            seen = part.reads(rows[:, None], window)
            mask = None if seen.all() else seen
            assert part.keys is not None
            assert part.values is not None
            given = query[:, heads], part.keys, part.values
            out[:, heads] = scaled_dot_product_attention(*given, attn_mask=mask, scale=scaling, enable_gqa=group > 1)
            part.forget(end, window)
        return out.transpose(1, 2).contiguous(), None
