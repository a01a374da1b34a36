"""ablate: change what heads do, during any forward, cached or generated, and leave the model as it was.

Every kind is one small function of an activation; the table at the end says which hook it sits on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from einops import rearrange
from jaxtyping import Bool, Float, Int
from torch import Tensor

from lens_heads.heads.head import Head
from lens_heads.interventions.activations import MeanActivations, TrialActivations
from lens_heads.model.geometry import HeadGeometry, Model, geometry, is_bridge
from lens_heads.model.hooks import hooked


@dataclass
class Clock:
    """Where the running forward stands: absolute position of its first row, and each batch row's left padding."""

    offset: int = 0
    pads: Int[Tensor, " batch"] | None = None

    def positions(self, rows: int, device: torch.device) -> Int[Tensor, " row"]:
        return torch.arange(rows, device=device) + self.offset

    def keys(self, pattern: Float[Tensor, "batch head row key"]) -> Int[Tensor, " key"]:
        """Absolute position of each key, also where a sliding cache has dropped the oldest."""
        first = self.offset + pattern.shape[-2] - pattern.shape[-1]
        return torch.arange(pattern.shape[-1], device=pattern.device) + first

    def visible(
        self, pattern: Float[Tensor, "batch head row key"], window: int | None
    ) -> Bool[Tensor, "batch row key"]:
        """The keys each row may attend to: causal, inside the window, no padding."""
        rows, keys = self.positions(pattern.shape[-2], pattern.device)[:, None], self.keys(pattern)
        seen = (keys <= rows) & (keys > rows - window if window else keys <= rows)
        first = (self.pads if self.pads is not None else torch.zeros(1)).to(pattern.device)
        return seen[None] & (keys >= first[:, None, None])


@dataclass(frozen=True)
class Setting:
    """What an intervention on one layer may use: which heads, the reference, options, the clock."""

    layer: int
    heads: list[int]
    shape: HeadGeometry
    clock: Clock
    reference: Any = None
    options: dict[str, float] = field(default_factory=dict)


Edit = Callable[[Tensor, Setting], Tensor]
"""Returns the new activation of the chosen heads: [batch, row, head, d_head] at z and q, [batch, head, row, key] at patterns."""


def _zero(x: Tensor, at: Setting) -> Tensor:
    return torch.zeros_like(x)


def _mean_z(x: Tensor, at: Setting) -> Tensor:
    return at.reference.z[at.layer, at.heads].to(x).expand_as(x)


def _mean_q(x: Tensor, at: Setting) -> Tensor:
    return at.reference.q[at.layer, at.heads].to(x).expand_as(x)


def _steps(x: Float[Tensor, "batch row head d_head"], at: Setting) -> Int[Tensor, "batch row"]:
    """Where each row of a forward stands in the reference run, counted from the run's first position."""
    positions = at.clock.positions(x.shape[1], x.device).cpu()
    pads = at.clock.pads.cpu() if at.clock.pads is not None else torch.zeros(1, dtype=torch.long)
    return positions[None] - pads[:, None] - at.reference.first


def _resample(x: Tensor, at: Setting) -> Tensor:
    """z of another trial at the same position; beyond its end, of its last position."""
    z = at.reference.z[at.layer]
    return z[_steps(x, at).clamp(0, z.shape[0] - 1)][:, :, at.heads].to(x).expand_as(x)


def _patch(x: Tensor, at: Setting) -> Tensor:
    """z of another run at its own positions; elsewhere what it was."""
    z, steps = at.reference.z[at.layer], _steps(x, at)
    inside = ((steps >= 0) & (steps < z.shape[0]))[:, :, None, None].to(x.device)
    return torch.where(inside, z[steps.clamp(0, z.shape[0] - 1)][:, :, at.heads].to(x), x)


def _uniform(x: Tensor, at: Setting) -> Tensor:
    """Every key the row may attend to weighs the same (Ships, AttentionInfluence)."""
    seen = at.clock.visible(x, at.shape.windows[at.layer])[:, None].to(x)
    return (seen / seen.sum(-1, keepdim=True).clamp(min=1)).expand_as(x)


def _streaming(x: Tensor, at: Setting) -> Tensor:
    """Only the first `sink` and the last `recent` keys, renormalised (StreamingLLM)."""
    keys, rows = at.clock.keys(x), at.clock.positions(x.shape[-2], x.device)[:, None]
    first = (at.clock.pads if at.clock.pads is not None else torch.zeros(1)).to(x.device)[:, None, None]
    keep = (keys > rows - at.options["recent"])[None] | (keys < first + at.options["sink"])
    kept = x * keep[:, None].to(x)
    return kept / kept.sum(-1, keepdim=True).clamp(min=torch.finfo(x.dtype).tiny)


def _scale(x: Tensor, at: Setting) -> Tensor:
    return x * at.options["factor"]


def _identity(x: Tensor, at: Setting) -> Tensor:
    """(1 - u) A + u I: a row attends to itself."""
    rows = at.clock.positions(x.shape[-2], x.device)[:, None]
    return (1 - at.options["u"]) * x + at.options["u"] * (at.clock.keys(x) == rows).to(x)


@dataclass(frozen=True)
class Kind:
    """One intervention: its hook, its edit, the reference it needs and its options with their defaults (None: required)."""

    hook: str
    edit: Edit
    reference: type | None = None
    options: dict[str, float | None] = field(default_factory=dict)


KINDS: dict[str, Kind] = {
    "zero": Kind("hook_z", _zero),
    "mean": Kind("hook_z", _mean_z, MeanActivations),
    "resample": Kind("hook_z", _resample, TrialActivations),
    "patch": Kind("hook_z", _patch, TrialActivations),
    "scale": Kind("hook_z", _scale, options={"factor": None}),
    "query_zero": Kind("hook_q", _zero),
    "query_mean": Kind("hook_q", _mean_q, MeanActivations),
    "uniform": Kind("hook_pattern", _uniform),
    "streaming": Kind("hook_pattern", _streaming, options={"sink": 4, "recent": 64}),
    "identity": Kind("hook_pattern", _identity, options={"u": 1.0}),
}

_MAKE = {
    MeanActivations: "mean_activations(model, calibration_trials)",
    TrialActivations: "lens_heads.interventions.activations.trial_activations(model, other_trial)",
}


@contextmanager
def ablate(
    model: Model,
    heads: Iterable[Head | str | Sequence[int]] | Head | str,
    kind: str = "mean",
    reference: MeanActivations | TrialActivations | None = None,
    **options: float,
) -> Iterator[None]:
    """Inside the block, the heads are ablated in every forward of the model, cached or not, and while generating.

    Args:
        heads: `Head`s, "L12H1" strings or pairs; none at all is allowed and changes nothing.
        kind: at `hook_z`: "zero", "mean" (default; mean over calibration trials and positions), "resample" (same
            position of another trial), "patch" (the same, at the positions of that run only; see `causal.patch`),
            "scale" (`factor`). At the query before QK-norm and rotation: "query_mean" (what
            the LOCOS authors' code does; not uniform attention), "query_zero". At the pattern: "uniform", "streaming"
            (`sink`=4, `recent`=64), "identity" (`u`=1).
        reference: `mean_activations(...)` for the means, `trial_activations(...)` for "resample".

    Contexts nest; the innermost acts last. The hooks are gone when the block ends, also by an exception.

    Raises:
        ValueError: a head that does not exist, an unknown kind or option, a missing or foreign reference.
    """
    shape = geometry(model)
    chosen = shape.check_heads(heads)
    settings = check_ablation(model, kind, reference, **options)
    clock = Clock()
    by_layer: dict[int, list[int]] = {}
    for head in chosen:
        by_layer.setdefault(head.layer, []).append(head.head)
    hooks = [
        (
            f"blocks.{layer}.attn.{KINDS[kind].hook}",
            _hook(kind, Setting(layer, index, shape, clock, reference, settings)),
        )
        for layer, index in by_layer.items()
    ]
    with _ticking(model, clock), hooked(model, hooks):
        yield


def check_ablation(
    model: Model, kind: str, reference: MeanActivations | TrialActivations | None = None, **options: float
) -> dict[str, float]:
    """The options with their defaults, of an ablation that `ablate` accepts; ValueError, before anything is run, where not."""
    settings = _settings(kind, options)
    _check_reference(kind, reference, geometry(model))
    return settings


def _settings(kind: str, options: dict[str, float]) -> dict[str, float]:
    if kind not in KINDS:
        raise ValueError(f"unknown kind of ablation {kind!r}: the kinds are {', '.join(KINDS)}")
    known = KINDS[kind].options
    unknown = sorted(options.keys() - known.keys())
    if unknown:
        raise ValueError(f"kind={kind!r} has no option {unknown[0]!r}: it takes {', '.join(known) or 'none'}")
    settings = {**known, **options}
    missing = [name for name, value in settings.items() if value is None]
    if missing:
        raise ValueError(f"kind={kind!r} needs {missing[0]}=..., e.g. ablate(model, heads, {kind!r}, {missing[0]}=0.5)")
    return {name: float(value) for name, value in settings.items() if value is not None}


def _check_reference(kind: str, reference: Any, shape: HeadGeometry) -> None:
    needed = KINDS[kind].reference
    if needed is None:
        return
    if not isinstance(reference, needed):
        got = "none was given" if reference is None else f"got {type(reference).__name__}"
        raise ValueError(f"kind={kind!r} needs a reference, {got}: pass reference={_MAKE[needed]}")
    if isinstance(reference, MeanActivations):
        reference.check(shape)
    elif (reference.z.shape[0], *reference.z.shape[2:]) != (shape.n_layers, shape.n_heads, shape.d_head):
        raise ValueError(f"the reference of trial {reference.id} is another model's: make it with {_MAKE[needed]}")


def _hook(kind: str, at: Setting) -> Any:
    """The hook function: edits the chosen heads of a copy, whichever axis the heads are on."""
    edit, on_pattern = KINDS[kind].edit, KINDS[kind].hook == "hook_pattern"

    def apply(x: Tensor, hook: Any) -> Tensor:
        flat = x.ndim == 3  # A fused projection shows heads side by side.
        split = rearrange(x, "b r (h e) -> b r h e", h=at.shape.n_heads) if flat else x
        changed = split.clone()
        if on_pattern:
            changed[:, at.heads] = edit(split[:, at.heads], at)
        else:
            changed[:, :, at.heads] = edit(split[:, :, at.heads], at)
        return rearrange(changed, "b r h e -> b r (h e)") if flat else changed

    return apply


@contextmanager
def _ticking(model: Model, clock: Clock) -> Iterator[None]:
    """Keep the clock at the start of every forward, from the cache and mask the forward is called with."""

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
        handle = model.original_model.register_forward_pre_hook(look, with_kwargs=True)
        try:
            yield
        finally:
            handle.remove()
        return
    # A HookedTransformer calls its own `forward` when it generates, past any module hook.
    before, own = model.forward, "forward" in vars(model)

    def forward(*args: Any, **kwargs: Any) -> Any:
        look(model, args, kwargs)
        return before(*args, **kwargs)

    vars(model)["forward"] = forward
    try:
        yield
    finally:
        vars(model)["forward"] = before
        if not own:
            del vars(model)["forward"]
