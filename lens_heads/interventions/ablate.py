"""ablate: change the activations of heads in every forward, including cached ones, and restore the model afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from lens_heads.heads.head import AnyHeads
from lens_heads.heads.sets import by_layer
from lens_heads.interventions.ablation import Ablation, Reference
from lens_heads.interventions.kinds import KINDS, Clock, Setting
from lens_heads.model.changes import changing
from lens_heads.model.geometry import Model, geometry, is_bridge
from lens_heads.model.hooks import attach, hooked, running


@contextmanager
def ablate(
    model: Model,
    heads: AnyHeads,
    kind: str | Ablation = "mean",
    reference: Reference | None = None,
    **options: float,
) -> Iterator[None]:
    """Inside the block, the heads are ablated in every forward of the model, cached or not, including generation.

    Args:
        heads: `Head`s, "L12H1" strings or pairs; an empty list is allowed and changes nothing.
        kind: at `hook_z`: "zero", "mean" (default; mean over calibration trials and positions), "resample" (same
            position of another trial), "patch" (the same, but only at the positions of that run; see `causal.patch`),
            "scale" (`factor`). At the query before QK-norm and rotation: "query_mean" (as in the LOCOS authors' code; not
            uniform attention), "query_zero". At the pattern: "uniform", "streaming" (`sink`=4, `recent`=64), "identity"
            (`u`=1). Or an `Ablation`, which includes reference and options.
        reference: `mean_activations(...)` for the means, `trial_activations(...)` for "resample".

    Contexts can be nested; the innermost acts last. The hooks are removed when the block ends, even with an exception.

    Raises ValueError for a head that does not exist, an unknown kind or option, and a missing reference or one from another
    model.
    """
    shape = geometry(model)
    chosen = by_layer(shape.check_heads(heads))
    ablation = Ablation.of(model, kind, reference, options)
    clock = Clock()
    hooks = [
        (
            f"blocks.{layer}.attn.{KINDS[ablation.kind].hook}",
            _hook(ablation.kind, Setting(layer, index, shape, clock, ablation.reference, dict(ablation.options))),
        )
        for layer, index in chosen.items()
    ]
    with _ticking(model, clock), hooked(model, hooks):
        yield


def _hook(kind: str, at: Setting) -> Any:
    """The hook function, which edits the chosen heads in a copy of the activation."""
    edit, on_pattern = KINDS[kind].edit, KINDS[kind].hook == "hook_pattern"
    chosen = (slice(None), at.heads) if on_pattern else (slice(None), slice(None), at.heads)

    def apply(x: Tensor, hook: Any) -> Tensor:
        # In a fused projection the heads are side by side.
        split = x if on_pattern else x.reshape(*x.shape[:2], at.shape.n_heads, -1)
        changed = split.clone()
        changed[chosen] = edit(split[chosen], at)
        return changed.reshape(x.shape)

    return apply


@contextmanager
def _ticking(model: Model, clock: Clock) -> Iterator[None]:
    """Set the clock at the start of every forward, from the cache and mask passed to it."""

    def look(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        cache = kwargs.get("past_key_values")
        mask = kwargs.get("attention_mask")
        if cache is not None:
            clock.offset = int(cache.get_seq_length())
        elif kwargs.get("past_kv_cache") is not None:
            clock.offset = kwargs["past_kv_cache"][0].past_keys.shape[1]
            if mask is not None:
                mask = torch.cat([kwargs["past_kv_cache"].previous_attention_mask.to(mask), mask], 1)
        else:
            clock.offset = 0
        clock.pads = (mask == 0).sum(-1) if mask is not None and mask.ndim == 2 else None

    if is_bridge(model):
        wrapped = model.original_model
        with changing(model) as change:
            attach(change, wrapped, lambda: wrapped.register_forward_pre_hook(look, with_kwargs=True))
            yield
        return
    # To generate, a HookedTransformer calls its own `forward` directly, which bypasses module hooks.
    before = model.forward

    def forward(*args: Any, **kwargs: Any) -> Any:
        look(model, args, kwargs)
        return before(*args, **kwargs)

    with running(model, [(model, forward)]):
        yield
