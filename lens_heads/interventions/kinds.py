"""The kinds of ablation: each one small function of an activation; the table at the end says which hook it sits on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from lens_heads.interventions.activations import MeanActivations, TrialActivations
from lens_heads.model.geometry import HeadGeometry


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
