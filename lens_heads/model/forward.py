"""Forward passes into a KV cache, for both TransformerLens classes: prefill in chunks, decode, step back.

Every layer's cache keeps every position (also on sliding-window layers, where the mask hides what is out of reach), so
that positions are absolute and the cache can be cut back to any length. While nothing is hooked onto a bridge, prefill
and decode run through the wrapped Hugging Face attention (sdpa): the numbers are the same to rounding, memory stays
linear, and no attention pattern exists.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from lens_heads.model.geometry import Model, geometry, is_bridge

CHUNK = 512
"""Tokens per prefill chunk: an eager layer then holds at most heads x 512 x length of attention."""


class Cache:
    """Keys and values of all positions seen so far, for a batch of left-padded rows."""

    def __init__(self, model: Model, batch: int) -> None:
        self.bridge = is_bridge(model)
        self.store: Any
        if self.bridge:
            from transformers import DynamicCache

            self.store = DynamicCache()
        else:
            from transformer_lens.cache.key_value_cache import TransformerLensKeyValueCache

            self.store = TransformerLensKeyValueCache.init_cache(model.cfg, model.cfg.device, batch)

    def __len__(self) -> int:
        return self.store.get_seq_length() if self.bridge else self.store[0].past_keys.shape[1]

    def values(self, layer: int) -> Float[Tensor, "batch kv_head key d_head"]:
        """The value vectors of every position so far."""
        if self.bridge:
            return self.store.layers[layer].values
        return self.store[layer].past_values.transpose(1, 2)

    @property
    def row_bytes(self) -> int:
        """What the keys and values of one row take."""
        layers = self.store.layers if self.bridge else self.store.entries
        return 2 * sum(self.values(layer)[0].nbytes for layer in range(len(layers)))

    def crop(self, length: int) -> None:
        """Forget everything from position `length` on."""
        if self.bridge:
            for layer in self.store.layers:
                layer.keys, layer.values = layer.keys[..., :length, :], layer.values[..., :length, :]
            return
        for entry in self.store.entries:
            entry.past_keys, entry.past_values = entry.past_keys[:, :length], entry.past_values[:, :length]
        self.store.previous_attention_mask = self.store.previous_attention_mask[:, :length]

    def branch(self, row: int | Sequence[int] | None = None, times: int = 1) -> Cache:
        """A cache with the same rows, or with one of them `times` times, as views, or with copies of the rows listed.

        Neither sees what the other appends.
        """

        def views(x: Tensor) -> Tensor:
            if row is None:
                return x
            return x[row : row + 1].expand(times, *x.shape[1:]) if isinstance(row, int) else x[list(row)]

        other = copy.copy(self)
        other.store = copy.copy(self.store)
        if self.bridge:
            other.store.layers = [copy.copy(layer) for layer in self.store.layers]
            for layer in other.store.layers:
                layer.keys, layer.values = views(layer.keys), views(layer.values)
            return other
        other.store.entries = [copy.copy(entry) for entry in self.store.entries]
        for entry in other.store.entries:
            entry.past_keys, entry.past_values = views(entry.past_keys), views(entry.past_values)
        other.store.previous_attention_mask = views(self.store.previous_attention_mask)
        return other

    def borrow(self, other: Cache, layers: int, length: int) -> None:
        """Take the first `length` positions of the lowest `layers` layers from another cache of the same rows."""
        if self.bridge:
            mine = self.store.layers
            for i in range(layers):
                if i < len(mine):
                    mine[i] = copy.copy(other.store.layers[i])
                else:
                    mine.append(copy.copy(other.store.layers[i]))
                mine[i].keys, mine[i].values = mine[i].keys[..., :length, :], mine[i].values[..., :length, :]
            return
        for entry, theirs in list(zip(self.store.entries, other.store.entries, strict=True))[:layers]:
            entry.past_keys, entry.past_values = theirs.past_keys[:, :length], theirs.past_values[:, :length]


def left_pad(
    rows: list[Int[Tensor, " position"]], device: torch.device | str
) -> tuple[Int[Tensor, "batch position"], Int[Tensor, " batch"]]:
    """Rows of tokens padded on the left to the longest, and how many positions each was padded by."""
    longest = max(len(row) for row in rows)
    tokens = torch.zeros(len(rows), longest, dtype=torch.long)
    for i, row in enumerate(rows):
        tokens[i, longest - len(row) :] = row
    pads = torch.tensor([longest - len(row) for row in rows])
    return tokens.to(device), pads.to(device)


def advance(
    model: Model,
    tokens: Int[Tensor, "batch position"],
    cache: Cache,
    pads: Int[Tensor, " batch"],
    logits: int = 1,
) -> Float[Tensor, "batch row d_vocab"] | None:
    """Run the next tokens, append them to the cache, and return the logits of the last `logits` rows (None for 0)."""
    total = len(cache) + tokens.shape[1]
    mask = (torch.arange(total, device=tokens.device) >= pads[:, None]).long()
    if cache.bridge:
        # No rows is an empty list of them; the number 0 would mean all.
        rows = logits or torch.empty(0, dtype=torch.long, device=tokens.device)
        keep = {"logits_to_keep": rows} if _keeps_logits(model) else {}
        padded = {"attention_mask": mask} if bool(pads.any()) else {}
        out = model(tokens, past_key_values=cache.store, use_cache=True, **keep, **padded)
    else:
        # The mask of the new tokens is given even without padding: left to itself the model would hide every token
        # that happens to equal the padding token.
        out = model(
            tokens,
            past_kv_cache=cache.store,
            return_type="logits" if logits else None,
            attention_mask=mask[:, len(cache) :],
        )
    return out[:, -logits:] if logits else None


def _keeps_logits(model: Model) -> bool:
    return "logits_to_keep" in inspect.signature(model.original_model.forward).parameters


def prefill(
    model: Model, tokens: Int[Tensor, "batch position"], cache: Cache, pads: Int[Tensor, " batch"], chunk: int = CHUNK
) -> None:
    """Put tokens into the cache, chunk by chunk, with no logits."""
    for start in range(0, tokens.shape[1], chunk):
        advance(model, tokens[:, start : start + chunk], cache, pads, logits=0)


@contextmanager
def noting_tuples(model: Model) -> Iterator[list[bool]]:
    """Inside, a forward notes whether the model's blocks hand on a tuple (GPT-J, GPT-Neo, Falcon) or a tensor."""
    noted: list[bool] = []
    handle = model.blocks[0].register_forward_hook(lambda module, args, out: noted.append(isinstance(out, tuple)))
    try:
        yield noted
    finally:
        handle.remove()


@contextmanager
def resuming(
    model: Model, layer: int, residual: Float[Tensor, "batch row d_model"], tuples: bool = False
) -> Iterator[None]:
    """Inside, a forward starts at `layer` with this residual stream; the blocks below it compute nothing and append
    nothing to a cache, so that cache has to be thrown away. `tuples` as `noting_tuples` noted it.

    Works on either class; TransformerLens's own `start_at_layer` saves no time on a bridge, which runs every block.
    """

    def hand_on(last: bool) -> Any:
        def forward(x: Tensor, *_: Any, **__: Any) -> Any:
            # The stream is put in by the last block left out; those under it hand on whatever the embedding gave.
            return (residual if last else x,) if tuples else (residual if last else x)

        return forward

    blocks = list(model.blocks[:layer])
    before = [block.__dict__.get("forward") for block in blocks]
    try:
        for index, block in enumerate(blocks):
            block.__dict__["forward"] = hand_on(index == layer - 1)
        yield
    finally:
        for block, forward in zip(blocks, before, strict=True):
            block.__dict__.pop("forward")
            if forward is not None:
                block.__dict__["forward"] = forward


@contextmanager
def fast_attention(model: Model) -> Iterator[None]:
    """Inside, a bridge computes attention with Hugging Face's sdpa instead of the hookable eager form.

    Does nothing where that would change the result: a hook sits on something sdpa skips (patterns, scores, rotated
    queries), attention is soft-capped, or the architecture does not support sdpa; nor for a HookedTransformer. Hooks on
    queries, keys, values and z fire all the same wherever those are the model's own linear layers.
    """
    if not is_bridge(model) or not _sdpa_is_exact(model) or _hooked_inside_attention(model):
        yield
        return
    config = model.original_model.config
    before = config._attn_implementation
    attentions = [block.attn for block in model.blocks]
    try:
        config._attn_implementation = "sdpa"
        for attention in attentions:
            attention.__dict__["forward"] = attention.original_component.forward
        yield
    finally:
        for attention in attentions:
            attention.__dict__.pop("forward", None)
        config._attn_implementation = before


def _sdpa_is_exact(model: Model) -> bool:
    shape = geometry(model)
    q_norm = getattr(model.blocks[0].attn, "q_norm", None)
    # In half precision the bridge's norm over a whole projection (OLMo) leaves float32 keys, which a cache filled by
    # sdpa does not hold: the two ways do not mix there.
    mixes = model.cfg.dtype == torch.float32 or q_norm is None or q_norm.weight.numel() == shape.d_head
    # A second bridge over the same Hugging Face model wraps the first one's attention, which runs past its hooks.
    plain = not any(hasattr(block.attn.original_component, "original_component") for block in model.blocks)
    return (
        bool(getattr(model.original_model, "_supports_sdpa", False)) and shape.attn_softcap is None and mixes and plain
    )


def _hooked_inside_attention(model: Model) -> bool:
    """Whether a hook sits on a part of an attention bridge that the wrapped attention does not run through."""
    for block in model.blocks:
        reached = {id(module) for module in block.attn.original_component.modules()}
        for module in block.attn.modules():
            if (getattr(module, "fwd_hooks", None) or getattr(module, "bwd_hooks", None)) and id(module) not in reached:
                return True
    return False
