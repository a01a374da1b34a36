"""Reference activations for interventions: means over calibration trials, or those of one trial at each position."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from lens_heads.model.forward import CHUNK, Cache, fast_attention, left_pad, prefill
from lens_heads.model.geometry import HeadGeometry, Model, geometry, is_bridge, require_raw_weights
from lens_heads.model.hooks import hooked
from lens_heads.model.modes import evaluating
from lens_heads.trials.encoding import encode_all, several
from lens_heads.trials.trial import AnyTrial


@dataclass(frozen=True, eq=False)
class MeanActivations:
    """Mean over all prompt positions of all calibration trials.

    `z` [layer, head, d_head]: attention-weighted values (`hook_z`). `q` [layer, head, d_head]: queries as they leave
    the query projection (`hook_q`: before QK-norm and rotation). float32 on the CPU.
    """

    z: Float[Tensor, "layer head d_head"]
    q: Float[Tensor, "layer head d_head"]
    trial_ids: tuple[str, ...]
    meta: dict[str, Any] = field(default_factory=dict)

    def save(self, path: str | Path) -> Path:
        """Write a safetensors file."""
        from safetensors.torch import save_file

        meta = {"trial_ids": json.dumps(self.trial_ids), "meta": json.dumps(self.meta)}
        save_file({"z": self.z.contiguous(), "q": self.q.contiguous()}, path, metadata=meta)
        return Path(path)

    @classmethod
    def load(cls, path: str | Path) -> MeanActivations:
        """Read what `save` wrote."""
        from safetensors import safe_open

        with safe_open(path, framework="pt") as file:
            meta = file.metadata()
            z, q = file.get_tensor("z"), file.get_tensor("q")
        return cls(z, q, tuple(json.loads(meta["trial_ids"])), json.loads(meta["meta"]))

    def check(self, shape: HeadGeometry) -> None:
        """ValueError if these are from a model of another shape."""
        wanted = (shape.n_layers, shape.n_heads, shape.d_head)
        if tuple(self.z.shape) != wanted:
            raise ValueError(
                f"the reference has activations of shape {tuple(self.z.shape)} "
                f"({self.meta.get('model', 'model unknown')}), but {shape.name} needs {wanted}: "
                "compute mean_activations(model, trials) on this model"
            )


@dataclass(frozen=True, eq=False)
class TrialActivations:
    """`z` [layer, position, head, d_head] of one run from position `first` on, for resample ablation and patching."""

    z: Float[Tensor, "layer position head d_head"]
    id: str
    first: int = 0


def _collect(
    model: Model,
    run: Int[Tensor, " position"],
    see: Callable[[str, int, Tensor], None],
    kinds: tuple[str, ...],
    first: int = 0,
    fast: bool = True,
) -> None:
    """Run tokens and pass every layer's activations from position `first` on to `see`, chunk by chunk."""
    shape = geometry(model)

    def hook_for(kind: str, layer: int) -> Any:
        return lambda x, hook: see(kind, layer, x[0].detach().float())

    hooks = [
        (f"blocks.{layer}.attn.hook_{kind}", hook_for(kind, layer)) for layer in range(shape.n_layers) for kind in kinds
    ]
    tokens, pads = left_pad([run], model.W_U.device)
    cache = Cache(model, 1)
    with torch.no_grad(), evaluating(model):
        if first:
            with fast_attention(model) if fast else nullcontext():
                prefill(model, tokens[:, :first], cache, pads, CHUNK)
        with hooked(model, hooks), fast_attention(model) if fast else nullcontext():
            prefill(model, tokens[:, first:], cache, pads, CHUNK)


def mean_activations(
    model: Model, trials: Iterable[AnyTrial] | AnyTrial, n: int | None = 50, progress: bool = True
) -> MeanActivations:
    """Mean `z` and `q` over the prompt positions of the first `n` trials (None: all), the usual ablation reference.

    All positions have equal weight. Raises ValueError for no trials, prompts beyond the context window, and processed
    weights; TypeError for anything but a TransformerLens model.
    """
    from rich.progress import track

    require_raw_weights(model)
    shape = geometry(model)
    encoded = encode_all(islice(several(trials), n), model.tokenizer, shape.n_ctx, d_vocab=shape.d_vocab)
    sums = {kind: torch.zeros(shape.n_layers, shape.n_heads, shape.d_head, dtype=torch.float64) for kind in ("z", "q")}

    def see(kind: str, layer: int, x: Tensor) -> None:
        sums[kind][layer] += x.reshape(x.shape[0], shape.n_heads, shape.d_head).sum(0).cpu().double()

    for trial in track(encoded, "mean activations", disable=not progress, transient=True):
        _collect(model, trial.tokens, see, ("z", "q"))
    positions = sum(len(trial) for trial in encoded)
    means = {kind: (total / positions).float() for kind, total in sums.items()}
    meta = {"model": shape.name, "positions": positions}
    return MeanActivations(means["z"], means["q"], tuple(trial.id for trial in encoded), meta)


def trial_activations(model: Model, trial: AnyTrial) -> TrialActivations:
    """`z` of every head at every prompt position of one trial."""
    is_bridge(model)  # A TypeError for other models before an attribute is missing.
    shape = geometry(model)
    (encoded,) = encode_all(trial, model.tokenizer, shape.n_ctx, d_vocab=shape.d_vocab)
    return run_activations(model, encoded.tokens, encoded.id)


def run_activations(model: Model, tokens: Int[Tensor, " position"], id: str, first: int = 0) -> TrialActivations:
    """`z` of every head on these tokens, from position `first` on; if one chunk suffices, bit-identical to a plain forward."""
    shape = geometry(model)
    parts: list[list[Tensor]] = [[] for _ in range(shape.n_layers)]

    def see(kind: str, layer: int, x: Tensor) -> None:
        parts[layer].append(x.reshape(x.shape[0], shape.n_heads, shape.d_head).cpu())

    _collect(model, tokens, see, ("z",), first, fast=len(tokens) > CHUNK)
    return TrialActivations(torch.stack([torch.cat(part) for part in parts]), id, first)
