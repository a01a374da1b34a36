"""Attention that TransformerLens leaves to transformers (OPT, GPT-J, GPT-Neo, XGLM, Llama 4, AFMoE): its pattern acts before z.

There the pattern's hook fires after the module has used the pattern, so that an edit of it changes nothing. Here the module runs
up to its output projection, which is held back until the hook on the pattern has fired:

    z' = g * (A' v),   A': the pattern that the hooks leave;   g: z / (A v), what the module does to A v before it projects it

Heads whose pattern no hook changes keep their z to the bit. The hook on z then fires with z', as in attention that
TransformerLens computes itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from einops import einsum, repeat
from jaxtyping import Float
from torch import Tensor

from lens_heads.model.changes import replacing
from lens_heads.model.geometry import Model, head_geometry, is_bridge


def delegates(model: Model, layer: int) -> bool:
    """Whether a layer's attention is computed by transformers' own module, which hands out its pattern when it has used it."""
    if not is_bridge(model):
        return False
    from transformer_lens.model_bridge.generalized_components import AttentionBridge

    attention = model.blocks[layer].attn
    inside = getattr(attention.original_component, "accepts_pattern_fn", False)
    return type(attention).forward is AttentionBridge.forward and not inside and hasattr(attention, "o")


def pattern_first(model: Model, layers: Iterable[int]) -> list[tuple[Any, Callable[..., Any]]]:
    """(attention, forward) of each of these layers that delegates its attention, for `hooks.running`."""
    return [
        (model.blocks[layer].attn, partial(_forward, model, layer))
        for layer in sorted(set(layers))
        if delegates(model, layer)
    ]


def _forward(model: Model, layer: int, *args: Any, **kwargs: Any) -> Any:
    attention = model.blocks[layer].attn
    if "hidden_states" in kwargs:
        kwargs["hidden_states"] = attention.hook_in(kwargs["hidden_states"])
    else:
        args = (attention.hook_in(args[0]), *args[1:])
    cache = kwargs.get("past_key_values", kwargs.get("layer_past"))
    with _held_back(model, attention, cache) as held:
        out = attention.original_component(*args, **kwargs)
    pattern = attention.hook_pattern(out[1])
    z = held["z"]
    if pattern is not out[1]:
        values = held.get("values")
        if values is None:
            values = _read(model, layer, held.get("v"))
        z = _with_pattern(z, out[1], pattern, values)
    return (attention.hook_out(attention.o(z)), pattern, *out[2:])


def _read(model: Model, layer: int, v: Tensor | None) -> Float[Tensor, "batch kv_head key d_head"]:
    """The values that attention reads, of what the value projection makes. ValueError where more becomes of them (Gemma 4)."""
    if v is None or getattr(model.blocks[layer].attn.original_component, "v_norm", None) is not None:
        raise ValueError(
            "patterns of this model are edited in forwards with a cache alone: use another method, or kind"
        )
    return v.reshape(*v.shape[:2], head_geometry(model).layers[layer].n_kv_heads, -1).transpose(1, 2)


@contextmanager
def _held_back(model: Model, attention: Any, cache: Any) -> Iterator[dict[str, Tensor]]:
    """Inside, the output projection only notes what it is given; the value projection and the cache note what they hand out."""
    held: dict[str, Tensor] = {}
    width = int(model.cfg.d_model)

    def hold(z: Tensor) -> Tensor:
        held["z"] = z
        return z.new_zeros(*z.shape[:-1], width)

    def note(run: Callable[..., Tensor], *given: Any, **options: Any) -> Tensor:
        held["v"] = run(*given, **options)
        return held["v"]

    def update(run: Callable[..., tuple[Tensor, Tensor]], *given: Any, **options: Any) -> tuple[Tensor, Tensor]:
        # What a cache stores of a layer with a sliding window is less than what its attention reads.
        keys, held["values"] = run(*given, **options)
        return keys, held["values"]

    replaced = [(attention.o, "forward", hold)]
    if hasattr(attention, "v"):  # Not where values are keys (global layers of Gemma 4).
        replaced.append((attention.v, "forward", partial(note, attention.v.forward)))
    replaced += [(cache, "update", partial(update, cache.update))] if cache is not None else []
    with replacing(model, replaced):
        yield held


def _with_pattern(
    z: Float[Tensor, "batch row width"],
    before: Float[Tensor, "batch head row key"],
    after: Float[Tensor, "batch head row key"],
    values: Float[Tensor, "batch kv_head key d_head"],
) -> Float[Tensor, "batch row width"]:
    """z where the pattern has changed; unchanged heads and rows keep theirs."""
    by_head = z.reshape(*z.shape[:2], before.shape[1], -1)
    v = repeat(values, "batch kv key e -> batch (kv group) key e", group=before.shape[1] // values.shape[1])
    own, new = (einsum(A.to(v), v, "batch head row key, batch head key e -> batch row head e") for A in (before, after))
    gate = gate_of(by_head, own, z.dtype)
    new = new if gate is None else gate * new
    changed = (before != after).any(-1).transpose(1, 2)[..., None]
    return torch.where(changed, new.to(z), by_head).reshape(z.shape)


def gate_of(
    z: Float[Tensor, "... e"], read: Float[Tensor, "... e"], dtype: torch.dtype
) -> Float[Tensor, "... e"] | None:
    """g of z = g * (A v), number by number, from z and A v; None where z is A v but for rounding.

    `dtype`: what the model computes in, whatever these tensors are in. Where A v is next to nothing beside the other numbers of
    its head, its quotient would be rounding alone; g is 0 there.
    """
    close = 1e-3 if dtype in (torch.float32, torch.float64) else 3e-2
    if float((z - read).abs().max()) <= close * float(z.abs().max()):
        return None
    enough = read.abs() > 4 * torch.finfo(dtype).eps * read.abs().amax(-1, keepdim=True)
    return torch.where(enough, z / torch.where(enough, read, 1), 0)
