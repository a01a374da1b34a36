"""Heads of linear attention and Mamba-2 in the place of a layer's attention, so that what looks into heads looks into them.

`blocks[layer].attn` is then a `LinearHeads`, with `hook_pattern` [batch, head, row, key], the signed weights of `recurrence`, and
`hook_z`, what enters the output projection: z = g * (w v), with a norm and a gate in g. Both act before the layer goes on.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch
from einops import einsum
from jaxtyping import Float
from torch import Tensor
from transformer_lens.hook_points import HookPoint
from transformer_lens.model_bridge.generalized_components.base import GeneralizedComponent

from lens_heads.model.architectures import MIXERS, architecture_of, unsuited
from lens_heads.model.recurrence import heads_of, kind_of, projections, recurrence

_NORMS, _OUTPUTS = ("norm", "o_norm"), ("out_proj", "o_proj")
"""What a mixer may call the norm after its recurrence, and its output projection."""


def _part(mixer: Any, names: tuple[str, ...]) -> Any:
    return next(getattr(mixer, name) for name in names if hasattr(mixer, name))


class LinearHeads(GeneralizedComponent):
    """What transformers' module does, with hooks on what its heads read and on what they hand to the output projection."""

    def __init__(self, name: str, mixer: Any) -> None:
        super().__init__(name)
        self.set_original_component(mixer)
        self.hook_pattern, self.hook_z = HookPoint(), HookPoint()
        self.n_heads, self.d_head = heads_of(mixer)
        self.linear = kind_of(mixer)
        """What the heads are: "gated delta rule" or "Mamba-2"."""
        projection = _part(mixer, _OUTPUTS)
        self.o = SimpleNamespace(original_component=getattr(projection, "original_component", None) or projection)

    @property
    def b_O(self) -> Tensor | None:  # noqa: N802  # TransformerLens's name
        return self.o.original_component.bias

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        mixer: Any = self.original_component
        stored, mask = self._stored(kwargs.get("cache_params")), kwargs.get("attention_mask")
        held: dict[str, Tensor] = {}

        def note(name: str) -> Callable[..., None]:
            return lambda module, given, out: held.update({name: out})

        def read(module: Any, given: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
            past = self._past(getattr(stored, "keys", None), [held[name] for name in projections(mixer)], mask)
            if stored is not None:
                stored.keys, stored.reader = past, self.values
            return (self._reread(given[0], past), *given[1:]) if self.hook_pattern._forward_hooks else given

        def write(module: Any, given: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
            return (self.hook_z(given[0]), *given[1:])

        handles = [getattr(mixer, name).register_forward_hook(note(name)) for name in projections(mixer)]
        for names, function in ((_NORMS, read), (_OUTPUTS, write)):
            handles.append(_part(mixer, names).register_forward_pre_hook(function))
        try:
            return super().forward(*args, **kwargs)
        finally:
            for handle in handles:
                handle.remove()

    def _stored(self, cache: Any) -> Any | None:
        """The stored layer of a `Cache`, which keeps what heads read; None without one. ValueError for weights over the tokens of
        another cache, which keeps the state alone."""
        mixer: Any = self.original_component
        layer = None if cache is None else cache.layers[mixer.layer_idx]
        if layer is None or hasattr(layer, "marked"):
            return layer
        if self.hook_pattern._forward_hooks and any(layer.has_previous_state.values()):
            raise ValueError(
                "hook_pattern of linear heads: the cache holds earlier tokens as a state alone, without what each of them was: "
                "run the whole text at once, or into lens_heads.model.forward.Cache"
            )
        return None

    def values(self, past: Float[Tensor, "batch 1 key width"]) -> Float[Tensor, "batch head key d_head"]:
        """The values of all positions, of what a cache keeps."""
        return self._recurrence(past).v

    def _recurrence(self, past: Float[Tensor, "batch 1 key width"]) -> Any:
        mixer: Any = self.original_component
        widths = [getattr(mixer, name).out_features for name in projections(mixer)]
        *projected, there = past[:, 0].split([*widths, 1], -1)
        return recurrence(mixer, projected, there[..., 0])

    def _past(
        self, before: Tensor | None, parts: list[Tensor], mask: Tensor | None
    ) -> Float[Tensor, "batch 1 key width"]:
        """What the projections have made of every position so far, and whether it is a token."""
        rows = parts[0].shape[1]
        there = torch.ones_like(parts[0][..., :1]) if mask is None else mask[:, -rows:, None].to(parts[0])
        new = torch.cat([*parts, there], -1)[:, None]
        return new if before is None else torch.cat([before, new], 2)

    def _reread(self, o: Tensor, past: Float[Tensor, "batch 1 key width"]) -> Tensor:
        """What the heads have read, after the hooks on their weights: unchanged weights leave it as it is."""
        found = self._recurrence(past)
        rows = o.numel() // (len(past) * self.n_heads * self.d_head)
        weights = found.weights(rows)
        after = self.hook_pattern(weights)
        if after is weights:
            return o
        v, changed = found.v.to(weights), (after != weights).any(-1).transpose(1, 2)[..., None]
        new = einsum(after, v, "batch head row key, batch head key e -> batch row head e").to(o)
        return torch.where(changed, new, o.reshape(new.shape)).reshape(o.shape)


def show_linear_heads(model: Any, name: str) -> None:
    """Put heads in the place of attention in every layer that has linear ones alone. ValueError for a model without."""
    shown = 0
    for block in model.blocks:
        if getattr(block, "attn", None) is not None:
            continue
        part = next((part for part in MIXERS if part in block._modules), "")
        mixer = getattr(block._modules.get(part), "original_component", None)
        if mixer is None or not kind_of(mixer):
            continue
        old = block._modules.pop(part)
        heads = LinearHeads(old.name, mixer)
        setattr(block.original_component, old.name, heads)
        block.add_module("attn", heads)
        block.submodules = {name: one for name, one in block.submodules.items() if name != part} | {"attn": heads}
        moved = {
            name: to for name, to in block.hook_aliases.items() if isinstance(to, str) and to.startswith(f"{part}.")
        }
        block.hook_aliases = block.hook_aliases | {name: f"attn.{to[len(part) + 1 :]}" for name, to in moved.items()}
        # Granite: what is written is multiplied outside of the module.
        if hasattr(block, "residual_contribution_scale"):
            block.hook_attn_out = HookPoint()
        shown += 1
    if not shown:
        architecture = architecture_of(model.original_model.config)
        why = "has no layer of linear heads (gated delta rule, Mamba-2) that are alone in their layer"
        raise unsuited(name, architecture, why, "load it without linear_heads")
    model.clear_hook_registry()
    model._initialize_hook_registry()
