"""The kinds of ablation: each a small function of an activation; the table at the end assigns its hook."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from lens_heads.interventions.activations import MeanActivations, TrialActivations
from lens_heads.model.forward import repeated
from lens_heads.model.geometry import HeadGeometry


@dataclass
class Clock:
    """The running forward: the absolute position of its first row, the left padding of each batch row, and its variant."""

    offset: int = 0
    pads: Int[Tensor, " batch"] | None = None
    variants: Int[Tensor, " batch"] | None = None

    def positions(self, rows: int, device: torch.device) -> Int[Tensor, " row"]:
        return torch.arange(rows, device=device) + self.offset

    def padding(self, x: Float[Tensor, "batch ..."], device: torch.device) -> Int[Tensor, "#batch"]:
        """The left padding of each row, a single 0 without any. Variants of the prompts repeat them all (`model.joining`)."""
        if self.pads is None:
            return torch.zeros(1, dtype=torch.long, device=device)
        return repeated(self.pads.to(device), len(x) // len(self.pads))

    def keys(self, pattern: Float[Tensor, "batch head row key"]) -> Int[Tensor, " key"]:
        """Absolute position of each key, even if a sliding cache has dropped the oldest."""
        first = self.offset + pattern.shape[-2] - pattern.shape[-1]
        return torch.arange(pattern.shape[-1], device=pattern.device) + first

    def visible(
        self, pattern: Float[Tensor, "batch head row key"], window: int | None
    ) -> Bool[Tensor, "batch row key"]:
        """The keys that each row may attend to: causal, inside the window, no padding."""
        rows, keys = self.positions(pattern.shape[-2], pattern.device)[:, None], self.keys(pattern)
        seen = (keys <= rows) & (keys > rows - window) if window else keys <= rows
        return seen[None] & (keys >= self.padding(pattern, pattern.device)[:, None, None])


@dataclass(frozen=True)
class Setting:
    """The inputs of an intervention on one layer: its heads, reference, options and clock."""

    layer: int
    heads: list[int]
    shape: HeadGeometry
    clock: Clock
    reference: Any = None
    options: dict[str, float] = field(default_factory=dict)


Edit = Callable[[Tensor, Setting], Tensor]
"""Maps the activation of the chosen heads to a new one: [batch, row, head, d_head] for z and q, [batch, head, row, key] for
patterns."""


def _zero(x: Tensor, at: Setting) -> Tensor:
    return torch.zeros_like(x)


def _mean(x: Tensor, at: Setting, name: str) -> Tensor:
    return getattr(at.reference, name)[at.layer, at.heads].to(x).expand_as(x)


def _steps(x: Float[Tensor, "batch row head d_head"], at: Setting) -> Int[Tensor, "batch row"]:
    """Each row's position in the reference run, counted from the run's first position."""
    cpu = torch.device("cpu")
    return at.clock.positions(x.shape[1], cpu)[None] - at.clock.padding(x, cpu)[:, None] - at.reference.first


def _resample(x: Tensor, at: Setting) -> Tensor:
    """z of another trial at the same position; beyond its end, that of its last position."""
    z = at.reference.z[at.layer]
    return z[_steps(x, at).clamp(0, z.shape[0] - 1)][:, :, at.heads].to(x).expand_as(x)


def _patch(x: Tensor, at: Setting) -> Tensor:
    """z of another run at the positions of that run; unchanged elsewhere."""
    steps = _steps(x, at)
    inside = (steps >= 0) & (steps < at.reference.z.shape[1])
    return torch.where(inside[:, :, None, None].to(x.device), _resample(x, at), x)


def _uniform(x: Tensor, at: Setting) -> Tensor:
    """Equal weight for every key that the row may attend to (Ships, AttentionInfluence)."""
    seen = at.clock.visible(x, at.shape.windows[at.layer])[:, None].to(x)
    return (seen / seen.sum(-1, keepdim=True).clamp(min=1)).expand_as(x)


def _streaming(x: Tensor, at: Setting) -> Tensor:
    """Only the first `sink` and the last `recent` keys, renormalized (StreamingLLM)."""
    keys, rows = at.clock.keys(x), at.clock.positions(x.shape[-2], x.device)[:, None]
    first = at.clock.padding(x, x.device)[:, None, None]
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
    """One kind of ablation: its hook and edit, the reference it needs, and its options' defaults (None: required)."""

    hook: str
    edit: Edit
    reference: type | None = None
    options: dict[str, float | None] = field(default_factory=dict)


KINDS: dict[str, Kind] = {
    "zero": Kind("hook_z", _zero),
    "mean": Kind("hook_z", partial(_mean, name="z"), MeanActivations),
    "resample": Kind("hook_z", _resample, TrialActivations),
    "patch": Kind("hook_z", _patch, TrialActivations),
    "scale": Kind("hook_z", _scale, options={"factor": None}),
    "query_zero": Kind("hook_q", _zero),
    "query_mean": Kind("hook_q", partial(_mean, name="q"), MeanActivations),
    "uniform": Kind("hook_pattern", _uniform),
    "streaming": Kind("hook_pattern", _streaming, options={"sink": 4, "recent": 64}),
    "identity": Kind("hook_pattern", _identity, options={"u": 1.0}),
}
