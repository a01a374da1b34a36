"""The kinds of ablation: each a small function of an activation; the table at the end assigns its hook."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from lens_heads.heads.geometry import HeadGeometry
from lens_heads.interventions.activations import MeanActivations, TrialActivations
from lens_heads.interventions.row_activations import RowActivations
from lens_heads.interventions.spans import END, LAST, PLACE, check_within, inside, spans_in_batch
from lens_heads.interventions.vectors import HeadVectors
from lens_heads.model.passes import Pass, Running
from lens_heads.model.support import Need


@dataclass
class Effect:
    """What an ablation is found not to do while it runs: `idle` says why rows stayed as they are, `acted` whether any did not.

    `beyond`: why rows got what was not meant for them. `fitted`: whether any prompt was as long as the run that is patched in.
    """

    idle: str = ""
    acted: bool = False
    beyond: str = ""
    fitted: bool = False

    def note(self, acts: bool, idle: str) -> None:
        self.acted |= acts
        self.idle = self.idle or ("" if acts else idle)


@dataclass(frozen=True)
class Setting:
    """The inputs of an intervention on one layer: its heads, reference and options, and where to find the running pass."""

    layer: int
    heads: list[int]
    shape: HeadGeometry
    running: Running
    reference: Any = None
    options: Mapping[str, Any] = field(default_factory=dict)
    effect: Effect = field(default_factory=Effect)

    @property
    def now(self) -> Pass:
        """The pass that runs."""
        return self.running.now

    def chosen(self, places: Int[Tensor, " place"], x: Float[Tensor, "batch ..."]) -> Bool[Tensor, "#batch place"]:
        """Which absolute places lie in the option `span`, counted from each row's first token; all without spans."""
        spans, now = self.options["span"], self.now
        if isinstance(spans, str) and spans not in now.named:
            why = (
                "a trial has no needle: leave it out"
                if now.named
                else "it is, where trials run (evaluate, score_heads, ...)"
            )
            raise ValueError(f"span={spans!r} is not known here: {why}, or pass (start, end) in tokens")
        # Rows of a layer that not all variants have joined are the first ones.
        batch, rows = len(x), None
        if isinstance(spans, str):
            rows = now.named[spans][:batch]
        elif spans is not None:
            prompts = batch if now.variants is None else int((now.variants[:batch] == 0).sum())
            rows = spans_in_batch(spans, now.named.get(PLACE), prompts, batch)
            if END in now.named:
                check_within(rows, now.named[END][:batch, 1])
        return inside(rows, places, now.padding(x, places.device), batch)


Edit = Callable[[Tensor, Setting], Tensor]
"""Maps the activation of the chosen heads to a new one: [batch, row, head, d_head] for z and q, [batch, head, row, key] for
patterns."""


def _within(edit: Edit) -> Edit:
    """The edit of z, at the rows of the option `span` alone."""

    def apply(x: Tensor, at: Setting) -> Tensor:
        edited = edit(x, at)
        return edited if at.options["span"] is None else torch.where(_rows(x, at), edited, x)

    return apply


def _zero(x: Tensor, at: Setting) -> Tensor:
    return torch.zeros_like(x)


def _mean(x: Tensor, at: Setting, name: str) -> Tensor:
    return _own(getattr(at.reference, name)[at.layer, at.heads], x).expand_as(x)


def _own(given: Float[Tensor, "... d_head"], x: Float[Tensor, "... d_head"]) -> Tensor:
    """What a reference has for a layer, without what fills up heads narrower than others'."""
    return given[..., : x.shape[-1]].to(x)


def _steps(x: Float[Tensor, "batch row head d_head"], at: Setting) -> Int[Tensor, "batch row"]:
    """Each row's position in the reference run, counted from the run's first position."""
    cpu = torch.device("cpu")
    return at.now.positions(x.shape[1], cpu)[None] - at.now.padding(x, cpu)[:, None] - at.reference.first


def _resample(x: Tensor, at: Setting) -> Tensor:
    """z of another trial at the same position; beyond its end, that of its last position."""
    z, steps = at.reference.z[at.layer], _steps(x, at)
    if x.shape[1] > 1 and int(steps.max()) >= len(z):  # Not while it decodes.
        asked = f"a prompt has {int(steps.max()) + 1}, whose last ones get that of its end: use a longer trial"
        at.effect.beyond = f"the reference has {len(z)} positions and {asked}"
    return _at(z, steps, x, at)


def _at(z: Tensor, steps: Tensor, x: Tensor, at: Setting) -> Tensor:
    """z at these positions of its run, or at the nearest."""
    return _own(z[steps.clamp(0, z.shape[0] - 1)][:, :, at.heads], x).expand_as(x)


def _patch(x: Tensor, at: Setting) -> Tensor:
    """z of another run at the positions of that run; unchanged elsewhere."""
    steps = _steps(x, at)
    inside, run = (steps >= 0) & (steps < at.reference.z.shape[1]), at.reference.first + at.reference.z.shape[1]
    if x.shape[1] > 1:  # Not while it decodes; without a cache, the first of its forwards decides.
        rows = int(steps.max()) + at.reference.first + 1
        at.effect.fitted |= rows <= run
        longer = f"a prompt has {rows}, where the same rows are other words: use pairs of one length"
        at.effect.beyond = "" if at.effect.fitted else f"the run that is patched in has {run} positions and {longer}"
    at.effect.note(bool(inside.any()), "no row that ran is one of the run that is patched in")
    return torch.where(inside[:, :, None, None].to(x.device), _at(at.reference.z[at.layer], steps, x, at), x)


def _interchange(x: Tensor, at: Setting) -> Tensor:
    """z of the trial's own donor at the last row of the prompt; unchanged elsewhere."""
    if PLACE not in at.now.named:
        raise ValueError(
            "kind='interchange' has a donor for each trial, which are known where trials run (evaluate, ablation_curve, ...): "
            "use patch(model, heads, donor) for a forward of your own"
        )
    donors = at.now.named[PLACE][: len(x), 0]
    given = _own(at.reference.z[donors, at.layer][:, None, at.heads], x)
    return torch.where(_rows(x, replace(at, options={"span": LAST})), given, x)


def _uniform(x: Tensor, at: Setting) -> Tensor:
    """Equal weight for every key that the row may attend to (Ships, AttentionInfluence)."""
    seen = at.now.visible(x, at.shape, at.layer)[:, None].to(x)
    return (seen / seen.sum(-1, keepdim=True).clamp(min=1)).expand_as(x)


def _streaming(x: Tensor, at: Setting) -> Tensor:
    """Only the first `sink` and the last `recent` keys, renormalized (StreamingLLM)."""
    keys, rows = at.now.keys(x), at.now.positions(x.shape[-2], x.device)[:, None]
    first = at.now.padding(x, x.device)[:, None, None]
    whole = at.options["sink"] + at.options["recent"]
    at.effect.note(_length(x, at) > whole, f"no prompt has more than sink + recent = {whole} tokens")
    keep = (keys > rows - at.options["recent"])[None] | (keys < first + at.options["sink"])
    kept = x * keep[:, None].to(x)
    return kept / kept.sum(-1, keepdim=True).clamp(min=torch.finfo(x.dtype).tiny)


def _length(x: Float[Tensor, "batch head row key"], at: Setting) -> int:
    """The tokens of the longest prompt of a batch, as far as it has run."""
    pads = at.now.padding(x, torch.device("cpu"))
    return at.now.offset + x.shape[-2] - int(pads.min())


def _scale(x: Tensor, at: Setting) -> Tensor:
    return x * at.options["factor"]


def _rows(x: Float[Tensor, "batch row head d_head"], at: Setting) -> Bool[Tensor, "#batch row 1 1"]:
    """The rows that an edit of z is for."""
    return at.chosen(at.now.positions(x.shape[1], x.device), x)[:, :, None, None]


def _add(x: Tensor, at: Setting) -> Tensor:
    """z + factor * v (activation addition; LoFiT's offsets)."""
    v = _own(at.reference.z[at.layer, at.heads], x)
    return torch.where(_rows(x, at), x + at.options["factor"] * v, x)


def _mix(x: Tensor, at: Setting) -> Tensor:
    """(1 - a g) z + a g t (SITE), g the head's gate."""
    t, g = _own(at.reference.z[at.layer, at.heads], x), at.reference.gates[at.layer, at.heads].to(x)
    a = at.options["a"] * g[:, None]
    return torch.where(_rows(x, at), (1 - a) * x + a * t, x)


def _emphasise(x: Tensor, at: Setting) -> Tensor:
    """The attention to a span times a factor, renormalized (PASTA, which divides the rest instead)."""
    chosen = at.chosen(at.now.keys(x), x)[:, None, None]
    weighted = torch.where(chosen, x * at.options["factor"], x)
    return weighted / weighted.sum(-1, keepdim=True).clamp(min=torch.finfo(x.dtype).tiny)


def _chunks(x: Float[Tensor, "batch head row key"], at: Setting) -> Tensor:
    """Only so many chunks of keys for each head and row, renormalized: the first, the row's own, the one before it, and the best
    by q.k.

    LongHeads (arXiv 2402.10685), which finds the best by a mean of keys weighted by attention within the chunk; here all count
    alike: the mean of log A over a chunk is q times the mean key, but for a number that all chunks share.
    """
    size, pads = int(at.options["chunk_size"]), at.now.padding(x, x.device)
    keys, rows = at.now.keys(x), at.now.positions(x.shape[-2], x.device)
    whole = size * int(at.options["n_chunks"])
    at.effect.note(_length(x, at) > whole, f"no prompt has more than n_chunks * chunk_size = {whole} tokens")
    chunk = torch.div(keys - pads[:, None], size, rounding_mode="floor").clamp(min=0)  # [batch, key]
    own = torch.div(rows - pads[:, None], size, rounding_mode="floor")  # [batch, row]
    seen = at.now.visible(x, at.shape, at.layer)
    chunk, own, seen = (each.expand(len(x), *each.shape[1:]) for each in (chunk, own, seen))
    member = torch.nn.functional.one_hot(chunk, int(chunk.max()) + 1).float()  # [batch, key, chunk]
    logs = x.float().clamp(min=torch.finfo(torch.float32).tiny).log() * seen[:, None]
    counts = torch.einsum("brk,bkc->brc", seen.float(), member)
    scores = torch.einsum("bhrk,bkc->bhrc", logs, member) / counts.clamp(min=1)[:, None]
    places = torch.arange(member.shape[-1], device=x.device)
    always = (places == 0) | (places == own[..., None]) | (places == own[..., None] - 1)
    scores = scores.masked_fill(always[:, None], torch.inf).masked_fill((counts == 0)[:, None], -torch.inf)
    best = scores.topk(min(int(at.options["n_chunks"]), scores.shape[-1]), dim=-1).indices
    chosen = torch.zeros_like(scores).scatter_(-1, best, 1.0)
    kept = x * torch.einsum("bhrc,bkc->bhrk", chosen, member).to(x)
    return kept / kept.sum(-1, keepdim=True).clamp(min=torch.finfo(x.dtype).tiny)


def _identity(x: Tensor, at: Setting) -> Tensor:
    """(1 - u) A + u I: a row attends to itself."""
    rows = at.now.positions(x.shape[-2], x.device)[:, None]
    return (1 - at.options["u"]) * x + at.options["u"] * (at.now.keys(x) == rows).to(x)


REQUIRED: Any = object()
"""In place of the default of an option that has none."""


@dataclass(frozen=True)
class Kind:
    """One kind of ablation: its hook and edit, the reference it needs, and its options' defaults (`REQUIRED`: none)."""

    hook: str
    edit: Edit
    reference: type | None = None
    options: dict[str, Any] = field(default_factory=dict)


NEEDS: dict[str, tuple[Need, ...]] = {
    "hook_z": ("writes",),
    "hook_q": ("queries",),
    "hook_pattern": ("edits", "pattern"),
}
"""What editing the activation at each hook rests on."""

KINDS: dict[str, Kind] = {
    "zero": Kind("hook_z", _within(_zero), options={"span": None}),
    "mean": Kind("hook_z", _within(partial(_mean, name="z")), MeanActivations, {"span": None}),
    "resample": Kind("hook_z", _within(_resample), TrialActivations, {"span": None}),
    "interchange": Kind("hook_z", _interchange, RowActivations),
    "patch": Kind("hook_z", _patch, TrialActivations),
    "scale": Kind("hook_z", _scale, options={"factor": REQUIRED}),
    "add": Kind("hook_z", _add, HeadVectors, {"factor": 1.0, "span": None}),
    "mix": Kind("hook_z", _mix, HeadVectors, {"a": 1.0, "span": None}),
    "query_zero": Kind("hook_q", _zero),
    "query_mean": Kind("hook_q", partial(_mean, name="q"), MeanActivations),
    "uniform": Kind("hook_pattern", _uniform),
    "streaming": Kind("hook_pattern", _streaming, options={"sink": 4, "recent": 64}),
    "identity": Kind("hook_pattern", _identity, options={"u": 1.0}),
    "emphasise": Kind("hook_pattern", _emphasise, options={"span": REQUIRED, "factor": 100.0}),
    "chunks": Kind("hook_pattern", _chunks, options={"n_chunks": REQUIRED, "chunk_size": 256}),
}
