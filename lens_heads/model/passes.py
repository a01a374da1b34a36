"""What hooks need to know of the running forward, in one object: where its rows are, which variant each is, where its parts are.

`advance` announces it for the forwards of this package. Of a forward that a user runs, its own cache and mask say it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from lens_heads.heads.geometry import HeadGeometry
from lens_heads.model.changes import changing
from lens_heads.model.geometry import Model, is_bridge
from lens_heads.model.hooks import attach, running


@dataclass(frozen=True, eq=False)
class Pass:
    """One forward: the absolute position of its first row, and of each row of the batch its left padding, variant and parts.

    `named`: (start, end) of each row's needle, say, in tokens from the prompt's first.
    """

    offset: int = 0
    pads: Int[Tensor, " batch"] | None = None
    variants: Int[Tensor, " batch"] | None = None
    named: Mapping[str, Int[Tensor, "batch 2"]] = field(default_factory=dict)

    @classmethod
    def of_call(cls, options: Mapping[str, Any]) -> Pass:
        """The pass that a model is called for with these options: the announced one, or what its cache and mask say."""
        cache, hooked_cache = options.get("past_key_values"), options.get("past_kv_cache")
        store, announced = hooked_cache if cache is None else cache, _ANNOUNCED.get()
        if announced is not None and announced[0] is store:
            return announced[1]
        mask, offset = options.get("attention_mask"), 0
        if cache is not None:
            offset = int(cache.get_seq_length())
        elif hooked_cache is not None:
            offset = hooked_cache[0].past_keys.shape[1]
            if mask is not None:
                mask = torch.cat([hooked_cache.previous_attention_mask.to(mask), mask], 1)
        return cls(offset, (mask == 0).sum(-1) if mask is not None and mask.ndim == 2 else None)

    def positions(self, rows: int, device: torch.device) -> Int[Tensor, " row"]:
        return torch.arange(rows, device=device) + self.offset

    def padding(self, x: Float[Tensor, "batch ..."], device: torch.device) -> Int[Tensor, "#batch"]:
        """The left padding of each row, a single 0 without any. Variants of the prompts repeat them all (`model.joining`)."""
        if self.pads is None:
            return torch.zeros(1, dtype=torch.long, device=device)
        return self.pads.to(device).repeat(len(x) // len(self.pads))

    def keys(self, pattern: Float[Tensor, "batch head row key"]) -> Int[Tensor, " key"]:
        """Absolute position of each key, even if a sliding cache has dropped the oldest."""
        first = self.offset + pattern.shape[-2] - pattern.shape[-1]
        return torch.arange(pattern.shape[-1], device=pattern.device) + first

    def visible(
        self, pattern: Float[Tensor, "batch head row key"], shape: HeadGeometry, layer: int
    ) -> Bool[Tensor, "#batch row key"]:
        """The keys that each row may attend to: causal, inside the layer's window or chunk, no padding."""
        rows, keys = self.positions(pattern.shape[-2], pattern.device), self.keys(pattern)
        return shape.reaches(layer, rows[:, None], keys, first=self.padding(pattern, pattern.device)[:, None, None])


_ANNOUNCED: ContextVar[tuple[Any, Pass] | None] = ContextVar("announced", default=None)
"""A cache and the pass that runs into it. It counts for a forward with this very cache alone, whatever an interrupt left here."""


@contextmanager
def announced(store: Any, one: Pass) -> Iterator[None]:
    """Inside, a forward into this cache is this pass."""
    _ANNOUNCED.set((store, one))
    try:
        yield
    finally:
        _ANNOUNCED.set(None)


@dataclass
class Running:
    """Where hooks find the pass that runs now."""

    now: Pass = field(default_factory=Pass)


@contextmanager
def following(model: Model) -> Iterator[Running]:
    """Inside, the object that this gives knows the pass of each forward from its start on."""
    found = Running()

    def look(module: Any, args: tuple[Any, ...], options: dict[str, Any]) -> None:
        found.now = Pass.of_call(options)

    if is_bridge(model):
        wrapped = model.original_model
        with changing(model) as change:
            attach(change, wrapped, lambda: wrapped.register_forward_pre_hook(look, with_kwargs=True))
            yield found
        return
    # To generate, a HookedTransformer calls its own `forward` directly, which bypasses module hooks.
    before = model.forward

    def forward(*args: Any, **options: Any) -> Any:
        look(model, args, options)
        return before(*args, **options)

    with running(model, [(model, forward)]):
        yield found
