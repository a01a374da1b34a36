"""A run of one short prompt with all that is noted of it, and the `Check`s that are made of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from einops import einsum, repeat
from jaxtyping import Float, Int
from torch import Tensor

from lens_heads.heads.geometry import HeadGeometry
from lens_heads.model.architectures import attentions
from lens_heads.model.forward import Cache, advance, noting_tuples, uncached
from lens_heads.model.geometry import Model, head_geometry, is_bridge
from lens_heads.model.hooks import hooked, recording

ROWS = 16
"""Last rows whose logits are compared."""


@dataclass(frozen=True)
class Check:
    """One statement about the model: the measured error, the tolerance, and a note on what was compared."""

    name: str
    error: float
    tolerance: float
    note: str = ""
    shortcut: bool = False
    """Whether a failure costs time alone: the shortcut is then not taken."""

    @property
    def passed(self) -> bool:
        return self.error <= self.tolerance  # False for NaN.


@dataclass
class ProbeRun:
    """A forward of one prompt with all that the identities are about; float32. `seen`: activations by hook, rows first."""

    model: Model
    shape: HeadGeometry
    ids: Int[Tensor, " position"]
    tolerance: float
    seen: dict[str, Tensor] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)
    values: dict[int, Float[Tensor, "kv_head key d_head"]] = field(default_factory=dict)
    logits: Float[Tensor, "row d_vocab"] = field(default_factory=lambda: torch.empty(0))
    tuples: bool = False

    def pattern(self, layer: int) -> Float[Tensor, "head row key"]:
        return self.seen[f"blocks.{layer}.attn.hook_pattern"]

    def z(self, layer: int) -> Float[Tensor, "row head d_head"]:
        z = self.seen[f"blocks.{layer}.attn.hook_z"]
        return self.shape.by_head(z[None], layer)[0]

    def read(self, layer: int) -> Float[Tensor, "row head d_head"]:
        """A v: the values that each head attends to, of its own kv head."""
        values = self.values[layer].to(self.pattern(layer))
        v = repeat(values, "kv key e -> (kv group) key e", group=len(self.pattern(layer)) // len(values))
        return einsum(self.pattern(layer), v, "head row key, head key e -> row head e")

    @cached_property
    def _uncached(self) -> Float[Tensor, "2 row d_vocab"]:
        """The last logits of this prompt and of the same prompt with another last token, from a forward without a cache."""
        other = self.ids.clone()
        other[-1] = other[-2] if int(other[-1]) != int(other[-2]) else (int(other[-1]) + 1) % self.shape.d_vocab
        tokens = torch.stack([self.ids, other]).to(self.model.W_U.device)
        rows = min(ROWS, len(self.ids))
        try:
            return uncached(self.model, tokens, tokens.new_zeros(2), rows).float()
        except RuntimeError:  # OLMo in half precision: TransformerLens mixes dtypes where no cache casts them.
            return advance(self.model, tokens, Cache(self.model, 2), logits=rows).float()

    @property
    def plain(self) -> Float[Tensor, "row d_vocab"]:
        return self._uncached[0]

    @property
    def plain_beside(self) -> Float[Tensor, "row d_vocab"]:
        return self._uncached[1]

    @property
    def batch(self) -> Int[Tensor, "1 position"]:
        return self.ids[None].to(self.model.W_U.device)


HOOKS = ("attn.hook_pattern", "attn.hook_z")
ASKED = ("attn.hook_q", "attn.hook_k", "attn.hook_v")
"""Of softmax attention, beside `HOOKS`."""
ENDS = ("hook_resid_pre", "hook_resid_post")
STREAM = ("hook_resid_pre", "hook_attn_out", "hook_mlp_out", "hook_resid_post")


def run(model: Model, ids: Int[Tensor, " position"], tolerance: float, hooks: Any = ()) -> ProbeRun:
    """Run a prompt under some hooks and note everything."""
    shape = head_geometry(model)
    names = [f"blocks.{layer}.{hook}" for layer in shape.attending for hook in (*HOOKS, *STREAM)]
    names += [f"blocks.{layer}.{hook}" for layer in shape.softmax for hook in ASKED]
    names += [
        f"blocks.{layer}.{hook}" for layer in range(shape.n_layers) if layer not in shape.attending for hook in ENDS
    ]
    found, cache = ProbeRun(model, shape, ids, tolerance), Cache(model, 1)
    points = model.hook_dict
    there = [name for name in names if name in points]
    with hooked(model, hooks), recording(model, there, lambda x: x[0].float()) as fired, noting_tuples(model) as tuples:
        found.logits = advance(model, found.batch, cache, logits=min(ROWS, len(ids)))[0].float()
    found.seen = {name: values[-1] for name, values in fired.items() if values}
    shared = {
        f"blocks.{layer}.attn.hook_v"
        for layer, one in attentions(model).items()
        if is_bridge(model) and not hasattr(one, "v")
    }
    found.missing = [name for name in names if name not in found.seen and name not in shared]
    found.values = {layer: cache.values(layer)[0].float() for layer in shape.attending}
    found.tuples = any(tuples)
    return found


def relative(error: Tensor, size: Tensor) -> float:
    return float((error.abs().max() / size.abs().max().clamp(min=1e-12)).detach())
