"""Forward passes into a KV cache, for both TransformerLens classes: prefill in chunks, decode, step back.

Every layer's cache keeps every position (sliding-window layers too, where the mask hides those out of reach), so positions
are absolute and the cache can be cropped to any length. Under `fast_attention`, prefill and decoding on a bridge use the
wrapped Hugging Face attention (sdpa): the numbers agree to rounding, memory stays linear, and no pattern is computed.
"""

from __future__ import annotations

import copy
import inspect
import warnings
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from lens_heads.model import attending
from lens_heads.model.architectures import attentions, linear, mixer_of
from lens_heads.model.attending import Attend
from lens_heads.model.changes import changing
from lens_heads.model.geometry import Model, head_geometry, is_bridge
from lens_heads.model.hooks import attach, running
from lens_heads.model.norms import unwatched_norms
from lens_heads.model.passes import Pass, announced
from lens_heads.model.rope import OUTGROWN, fixed_below, rotating
from lens_heads.runs.warned import users_line

CHUNK = 512
"""Tokens per prefill chunk: an eager layer then computes at most heads x 512 x length of attention at a time."""


class Cache:
    """Keys and values of all positions seen so far, for a batch of left-padded rows."""

    def __init__(self, model: Model, batch: int) -> None:
        self.bridge = is_bridge(model)
        self.whole = 0
        """The number of tokens that will be run in all, as far as that is known: see `rope`."""
        self.store: Any
        if self.bridge:
            from transformers import DynamicCache

            attending.check_free(model.original_model.config)
            self.store = store_of(model) or DynamicCache()
            self._layers, self._tensors = "layers", ("keys", "values")  # [batch, kv_head, key, d_head]
        else:
            from transformer_lens.cache.key_value_cache import TransformerLensKeyValueCache

            self.store = TransformerLensKeyValueCache.init_cache(model.cfg, model.cfg.device, batch)
            self._layers, self._tensors = "entries", ("past_keys", "past_values")  # [batch, key, kv_head, d_head]
        self.assign(1, batch)

    def assign(self, variants: int, prompts: int, named: Mapping[str, Int[Tensor, "prompt 2"]] | None = None) -> None:
        """Say that the rows are these variants of so many prompts, variant by variant, and where each prompt's parts are.

        Hooks find both in the `Pass` of a forward into this cache.
        """
        self.variants = torch.arange(variants).repeat_interleave(prompts)
        self.named = {name: repeated(rows, variants) for name, rows in (named or {}).items()}

    @property
    def layers(self) -> list[Any]:
        """The stored layers of either class."""
        return getattr(self.store, self._layers)

    def __len__(self) -> int:
        return self.store.get_seq_length() if self.bridge else self.store[0].past_keys.shape[1]

    def values(self, layer: int) -> Float[Tensor, "batch kv_head key d_head"]:
        """The value vectors of every position so far."""
        held = self.layers[layer]
        if hasattr(held, "reader"):  # Linear heads.
            return held.reader(held.keys)
        return held.values if self.bridge else held.past_values.transpose(1, 2)

    @property
    def row_bytes(self) -> int:
        """The memory taken by the keys and values of one row."""
        held = [getattr(layer, name, None) for layer in self.layers for name in self._tensors]
        return sum(x[0].nbytes for x in held if x is not None)

    @property
    def states(self) -> list[Any]:
        """The stored layers that keep a state, which is of all tokens so far, and of a position only where that is marked."""
        return [layer for layer in self.layers if hasattr(layer, "marked")]

    def mark(self) -> None:
        """Make it possible to crop the cache to what it holds now. Keys and values need no mark."""
        for layer in self.states:
            layer.mark(len(self))

    def crop(self, length: int) -> None:
        """Drop everything from position `length` on, which is marked where layers keep states."""
        for layer in self.states:
            layer.back(length)
        self._keys(self.layers, lambda x: self._first(x, length))
        if not self.bridge:
            self.store.previous_attention_mask = self.store.previous_attention_mask[:, :length]

    def branch(self, row: int | Sequence[int] | None = None, times: int = 1) -> Cache:
        """A cache that views the same rows, or one row repeated `times` times, or that copies the listed rows.

        Neither cache sees what is appended to the other.
        """
        if row is None:
            return self._with(lambda x: x)
        return self._with(lambda x: repeated(x[row : row + 1], times) if isinstance(row, int) else x[list(row)])

    def each(self, times: int) -> Cache:
        """A cache in which every row stands `times` times, one copy after the other."""
        return self._with(lambda x: repeated(x, times) if len(x) == 1 else x.repeat_interleave(times, 0))

    def joined(self, begins: Sequence[int], prompts: int) -> Cache:
        """Of a cache of all variants of `prompts` prompts: in each layer those that have joined a forward there (`joining`)."""
        other = self._with(lambda x: x)
        for layer, stored in enumerate(other.layers):
            here = sum(begin <= layer for begin in begins)
            rows = prompts * max(1, here)  # An empty cache would count as one of no tokens.
            self._change([stored], lambda x, rows=rows: x[:rows])
        if not self.bridge:  # The forward is given the prompts once, with their masks.
            other.store.previous_attention_mask = other.store.previous_attention_mask[:prompts]
        return other

    def complete(self, unchanged: Cache, variants: int) -> None:
        """Give variants that joined above a layer the unchanged run's keys and values there, so that every layer has all."""

        def fill(here: Tensor, there: Tensor) -> Tensor:
            missing = variants - len(here) // len(there)
            return torch.cat([here, repeated(there, missing)]) if missing else here

        for mine, theirs in zip(self.layers, unchanged.layers, strict=True):
            if hasattr(mine, "marked"):
                mine.complete(fill, theirs)
            for name in self._tensors:
                if getattr(mine, name, None) is not None:
                    setattr(mine, name, fill(getattr(mine, name), getattr(theirs, name)))
        if not self.bridge:
            self.store.previous_attention_mask = repeated(self.store.previous_attention_mask, variants)

    def borrow(self, other: Cache, layers: int, length: int) -> None:
        """Take the first `length` positions of the lowest `layers` layers from another cache, and the states that it has."""
        borrowed = [copy.copy(layer) for layer in other.layers[:layers]]
        self._keys(borrowed, lambda x: self._first(x, length))
        self.layers[:layers] = borrowed

    def _with(self, change: Callable[[Tensor], Tensor]) -> Cache:
        """A cache of the same model whose tensors, first of all their rows, are changed."""
        other = copy.copy(self)
        other.store = copy.copy(self.store)
        setattr(other.store, self._layers, [copy.copy(layer) for layer in self.layers])
        other.variants = change(self.variants)
        other.named = {name: change(rows) for name, rows in self.named.items()}
        self._change(other.layers, change)
        if not self.bridge:
            other.store.previous_attention_mask = change(self.store.previous_attention_mask)
        return other

    def _change(self, layers: list[Any], change: Callable[[Tensor], Tensor]) -> None:
        for layer in layers:
            if hasattr(layer, "marked"):
                layer.change(change)
        self._keys(layers, change)

    def _keys(self, layers: list[Any], change: Callable[[Tensor], Tensor]) -> None:
        for layer in layers:
            for name in self._tensors:
                if getattr(layer, name, None) is not None:  # Nothing yet, or a layer without.
                    setattr(layer, name, change(getattr(layer, name)))

    def _first(self, x: Tensor, length: int) -> Tensor:
        return x[..., :length, :] if self.bridge else x[:, :length]


def store_of(model: Model) -> Any | None:
    """An empty cache for a bridge of which some layers keep states or nothing; None for one with attention in every layer."""
    found = attentions(model)
    stateful = any(map(linear, found.values())) or any(map(mixer_of, model.blocks))
    if len(found) == len(model.blocks) and not stateful:
        return None
    from lens_heads.model.states import store_for

    return store_for(model.original_model.config)


def repeated(x: Tensor, times: int) -> Tensor:
    """All rows, then all again, `times` times; a single row is not copied."""
    return x.expand(times, *x.shape[1:]) if len(x) == 1 else x.repeat(times, *[1] * (x.ndim - 1))


def left_pad(
    rows: list[Int[Tensor, " position"]], device: torch.device | str
) -> tuple[Int[Tensor, "batch position"], Int[Tensor, " batch"]]:
    """Rows of tokens, left-padded to the longest, and the number of padding positions in each."""
    tokens = pad_sequence(rows, batch_first=True, padding_side="left")
    pads = torch.tensor([tokens.shape[1] - len(row) for row in rows])
    return tokens.to(device), pads.to(device)


def advance(
    model: Model,
    tokens: Int[Tensor, "batch position"],
    cache: Cache,
    pads: Int[Tensor, " batch"] | None = None,
    logits: int = 1,
) -> Float[Tensor, "batch row d_vocab"]:
    """Run the next tokens, which appends them to the cache, and return the logits of the last `logits` rows.

    `pads`: the number of padding positions on the left of each row of the batch; None for no padding.
    """
    total = len(cache) + tokens.shape[1]
    if len(cache) and total > max(cache.whole, fixed_below(model)):
        warnings.warn(OUTGROWN.format(len(cache), total), stacklevel=users_line())
    cache.whole = max(cache.whole, total)
    pads = tokens.new_zeros(len(tokens)) if pads is None else pads
    mask = (torch.arange(total, device=tokens.device) >= pads[:, None]).long()
    padded = bool(pads.any())
    with announced(cache.store, Pass(len(cache), pads if padded else None, cache.variants, cache.named)):
        if cache.bridge:
            masked = {"attention_mask": mask} if padded else {}
            with rotating(model, cache.whole), running(model, _stepped(model, cache)):
                out = model(tokens, past_key_values=cache.store, use_cache=True, **_keeping(model, logits), **masked)
        else:
            # The mask of the new tokens is passed even without padding, or the model would mask every token that happens to
            # equal the padding token.
            out = model(
                tokens,
                past_kv_cache=cache.store,
                return_type="logits" if logits else None,
                attention_mask=mask[:, len(cache) :],
            )
    return out[:, -logits:] if logits else torch.empty(len(tokens), 0, model.cfg.d_vocab)


def _stepped(model: Model, cache: Cache) -> list[tuple[Any, Callable[..., Any]]]:
    if not cache.states:
        return []
    from lens_heads.model.states import stepped

    return stepped(model, cache)


def _keeping(model: Model, logits: int) -> dict[str, Any]:
    """The argument by which a bridge's model computes the logits of its last rows alone, if it has one."""
    # 0 would mean all rows. A tensor would have to be where the last layer is, which may be another device.
    takes = inspect.signature(model.original_model.forward).parameters
    return {"logits_to_keep": logits or slice(0)} if "logits_to_keep" in takes else {}


def uncached(
    model: Model, tokens: Int[Tensor, "batch position"], pads: Int[Tensor, " batch"], logits: int
) -> Float[Tensor, "batch row d_vocab"]:
    """The logits of the last `logits` rows, by one forward without a cache, through which gradients flow. `pads`: as in
    `advance`."""
    mask = (torch.arange(tokens.shape[1], device=tokens.device) >= pads[:, None]).long()
    if is_bridge(model):
        padded = {"attention_mask": mask} if bool(pads.any()) else {}
        return model(tokens, use_cache=False, **_keeping(model, logits), **padded)[:, -logits:]
    return model(tokens, return_type="logits", attention_mask=mask)[:, -logits:]


def prefill(
    model: Model,
    tokens: Int[Tensor, "batch position"],
    cache: Cache,
    pads: Int[Tensor, " batch"] | None = None,
    chunk: int = CHUNK,
) -> None:
    """Run tokens into the cache, chunk by chunk, without logits."""
    cache.whole = max(cache.whole, len(cache) + tokens.shape[1])
    for start in range(0, tokens.shape[1], chunk):
        advance(model, tokens[:, start : start + chunk], cache, pads, logits=0)


@contextmanager
def noting_tuples(model: Model) -> Iterator[list[bool]]:
    """Inside, each forward notes whether the model's blocks return a tuple (GPT-J, GPT-Neo, Falcon) or a tensor."""
    noted: list[bool] = []
    first = model.blocks[0]

    def look(module: Any, args: Any, out: Any) -> None:
        noted.append(isinstance(out, tuple))

    with changing(model) as change:
        attach(change, first, lambda: first.register_forward_hook(look))
        yield noted


@contextmanager
def fast_attention(model: Model, alike: Cache | None = None, attend: Attend | None = None) -> Iterator[None]:
    """Inside, a bridge computes attention with Hugging Face's sdpa instead of the hookable eager form, and nothing beside norms.

    Does nothing for a HookedTransformer, and whenever sdpa would change the result: if there is a hook on something it
    skips (patterns, scores, rotated queries), attention is soft-capped, or the architecture does not support it. Hooks on
    queries, keys, values and z still fire if these are inputs or outputs of the model's own linear layers. Hooks on what norms
    divide by and what they have divided fire if they were there before.

    `alike`: a cache whose rows are all alike, for one forward inside: they are held once (`shared_prefix`), and the cache must
    not be used again. Only for models that `shares_prefix` names. `attend`: the function that computes attention instead of
    sdpa, such as one that notes queries (`noted_queries`). Only for models that `takes_attention` names.
    """
    with changing(model) as change:
        if not is_bridge(model) or not _sdpa_is_exact(model) or hooked_inside_attention(model):
            yield
            return
        if alike is not None and len(alike):
            from lens_heads.model.shared_prefix import SharedPrefix

            attend = SharedPrefix(alike.store)
        config = model.original_model.config
        attending.check_free(config, attend)
        change.note(partial(setattr, config, "_attn_implementation", config._attn_implementation))
        config._attn_implementation = "sdpa" if attend is None else attending.NAME
        attention = [(one, one.original_component.forward) for one in attentions(model).values() if not linear(one)]
        with (
            running(model, [*attention, *unwatched_norms(model)]),
            nullcontext() if attend is None else attending.attending(attend),
        ):
            yield


def shares_prefix(model: Model, rows: int) -> bool:
    """Whether variants of a prompt's last rows should read the keys and values before them from one copy.

    For many rows, a pattern that is written out costs more than copies, which sdpa reads without one.
    """
    return takes_attention(model) and 2 * rows <= int(model.cfg.d_head)


_AVOIDED: weakref.WeakKeyDictionary[Any, set[str]] = weakref.WeakKeyDictionary()


def avoid(model: Model, *shortcuts: str) -> None:
    """Take shortcuts no more on this model: "fast" attention by sdpa, patterns from "noted" queries."""
    _AVOIDED.setdefault(getattr(model, "original_model", model), set()).update(shortcuts)


def _avoids(model: Model, shortcut: str) -> bool:
    return shortcut in _AVOIDED.get(getattr(model, "original_model", model), ())


def notes_queries(model: Model) -> bool:
    """Whether a forward can note its last rows' queries (`noted_queries`), from which their patterns follow, and their z.

    Not with linear heads, which read by no query alone, and not where the wrapped attention bypasses the hook on z (GPT-2's
    kind, whose queries, keys and values are one projection).
    """
    if not takes_attention(model) or hooked_inside_attention(model) or _avoids(model, "noted"):
        return False
    if any(map(linear, attentions(model).values())):
        return False
    first, attention = next(iter(attentions(model).items()))
    z = model.hook_dict[f"blocks.{first}.attn.hook_z"]
    return any(module is z for module in attention.original_component.modules())


def takes_attention(model: Model) -> bool:
    """Whether the model computes its attention by any function of the same form as sdpa."""
    return bool(is_bridge(model) and model.original_model._supports_attention_backend and _sdpa_is_exact(model))


def _sdpa_is_exact(model: Model) -> bool:
    if _avoids(model, "fast"):
        return False
    shape, every = head_geometry(model), attentions(model)
    q_norm = next((getattr(one, "q_norm", None) for one in every.values() if not linear(one)), None)
    # In half precision the bridge's norm over a whole projection (OLMo) leaves the keys in float32, unlike those in a cache
    # filled by sdpa, so eager attention and sdpa cannot share one.
    mixes = model.cfg.dtype == torch.float32 or q_norm is None or q_norm.weight.numel() == shape.d_head
    # A second bridge over the same Hugging Face model wraps the attention of the first, which bypasses the hooks.
    plain = not any(hasattr(one.original_component, "original_component") for one in every.values())
    supported = bool(getattr(model.original_model, "_supports_sdpa", False))
    return supported and shape.attn_softcap is None and mixes and plain


def hooked_inside_attention(model: Model) -> bool:
    """Whether there is a hook on a part of an attention bridge that the wrapped attention bypasses."""
    for attention in attentions(model).values():
        reached = {id(module) for module in attention.original_component.modules()}
        for module in attention.modules():
            if (getattr(module, "fwd_hooks", None) or getattr(module, "bwd_hooks", None)) and id(module) not in reached:
                return True
    return False
