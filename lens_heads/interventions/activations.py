"""Reference activations for interventions: means over calibration trials, or those of one trial at each position."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from itertools import islice
from operator import attrgetter
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from lens_heads.heads.geometry import HeadGeometry
from lens_heads.heads.made_on import MadeOn, records
from lens_heads.model.forward import CHUNK, Cache, fast_attention, prefill
from lens_heads.model.geometry import Model, head_geometry, require_raw_weights
from lens_heads.model.hooks import recording
from lens_heads.model.identity import identified
from lens_heads.model.modes import evaluating
from lens_heads.model.support import require
from lens_heads.model.workers import shared
from lens_heads.runs import checks, engine
from lens_heads.runs.identity import ModelIdentity
from lens_heads.runs.shards import Result
from lens_heads.runs.tensor_files import load_tensors, save_tensors
from lens_heads.runs.typed import typed, typed_fields, typed_methods
from lens_heads.trials.checked_tokens import encode_all, several
from lens_heads.trials.digests import prompt_digest
from lens_heads.trials.encoded import EncodedTrial
from lens_heads.trials.trial import AnyTrial


@typed_methods
@dataclass(frozen=True, eq=False)
class MeanActivations:
    """Mean over all prompt positions of all calibration trials.

    `z` [layer, head, d_head]: attention-weighted values (`hook_z`). `q` [layer, head, d_head]: queries as they leave
    the query projection (`hook_q`: before QK-norm and rotation). float32 on the CPU. `model`: the model they were made on, by
    whose weights another one is told. `prompts`: hashes of the trials' tokens, by which they are known under other ids.

    `trial_ids`, `meta`: which trials, and how many tokens.

    Example:
        >>> means = lh.mean_activations(model, others)
        >>> len(means.trial_ids), tuple(means.z.shape)
        (8, (2, 4, 32))
    """

    z: Float[Tensor, "layer head d_head"]
    q: Float[Tensor, "layer head d_head"]
    trial_ids: tuple[str, ...]
    meta: dict[str, Any] = field(default_factory=dict)
    model: ModelIdentity = ModelIdentity("")
    prompts: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"MeanActivations({list(self.z.shape)}, {len(self.trial_ids)} trials, {self.model})"

    @property
    def made_on(self) -> tuple[MadeOn, ...]:
        """The trials, as rankings record theirs."""
        return records(self.trial_ids, self.prompts)

    def __post_init__(self) -> None:
        typed_fields(self)
        for name in ("z", "q"):
            check_finite(name, getattr(self, name), "the means")

    def save(self, path: str | Path) -> Path:
        """Write a safetensors file. OSError naming it if that fails."""
        about = {"trial_ids": self.trial_ids, "meta": self.meta, "model": self.model.record, "prompts": self.prompts}
        return save_tensors(path, {"z": self.z, "q": self.q}, about)

    @classmethod
    def load(cls, path: str | Path) -> MeanActivations:
        """Read what `save` wrote. FileNotFoundError if there is no such file, ValueError if it is damaged or another one."""

        def made(tensors: dict[str, Tensor], about: dict[str, Any]) -> MeanActivations:
            z, q = tensors["z"], tensors["q"]
            if z.ndim != 3 or z.shape != q.shape or not (z.is_floating_point() and q.is_floating_point()):
                raise ValueError(f"z {list(z.shape)} and q {list(q.shape)} must be [layer, head, d_head]")
            model = ModelIdentity.read(about.get("model"))
            prompts = tuple(map(str, about.get("prompts", ())))
            return cls(z, q, tuple(map(str, about["trial_ids"])), dict(about["meta"]), model, prompts)

        return load_tensors(path, made, "saved mean activations", "save mean activations there first")

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
    """`z` [layer, position, head, d_head] of one run from position `first` on, for resample ablation and patching.

    `model`: the model that ran, if known. `prompt`: the hash of the trial's tokens.

    `id`: of the trial.

    Example:
        >>> run = lh.trial_activations(model, trials[0])
        >>> run.id, run.z.shape[1] == len(trials[0].tokens)
        ('planted-0-0', True)
    """

    z: Float[Tensor, "layer position head d_head"]
    id: str
    first: int = 0
    model: ModelIdentity = ModelIdentity("")
    prompt: str = ""

    @property
    def made_on(self) -> tuple[MadeOn, ...]:
        """The trial, as rankings record theirs."""
        return records([self.id], [self.prompt])

    def __post_init__(self) -> None:
        typed_fields(self)
        check_finite("z", self.z, f"the run of trial {self.id}")
        checks.whole_number("first", self.first, 0)

    def check(self, shape: HeadGeometry) -> None:
        """ValueError if these are from a model of another shape."""
        if (self.z.shape[0], *self.z.shape[2:]) != (shape.n_layers, shape.n_heads, shape.d_head):
            raise ValueError(
                f"the reference of trial {self.id} is from another model: make it with "
                "lens_heads.interventions.activations.trial_activations(model, other_trial)"
            )


def check_finite(name: str, values: Tensor, what: str) -> None:
    """ValueError naming the first value that is not finite."""
    bad = values[~values.isfinite()]
    if len(bad):
        raise ValueError(f"{what}: {name} contains {float(bad[0])}: load the model in float32 or bfloat16")


def _collect(
    model: Model,
    tokens: Int[Tensor, " position"],
    names: Iterable[str],
    keep: Callable[[Tensor], Tensor],
    first: int = 0,
    fast: bool = True,
) -> dict[str, list[Tensor]]:
    """Run tokens and collect `keep(activation)` at these hooks, from position `first` on, once per chunk."""
    batch, cache = tokens[None].to(model.W_U.device), Cache(model, 1)
    attention = fast_attention if fast else nullcontext
    with torch.no_grad(), evaluating(model):
        if first:
            with attention(model):
                prefill(model, batch[:, :first], cache, None, CHUNK)
        with recording(model, names, keep) as seen, attention(model):
            prefill(model, batch[:, first:], cache, None, CHUNK)
    return seen


def _by_head(
    x: Float[Tensor, "1 position ..."], shape: HeadGeometry, layer: int
) -> Float[Tensor, "position head d_head"]:
    return shape.by_head(x, layer)[0, ..., : shape.layers[layer].d_head]


@typed
@shared
def mean_activations(
    model: Model, trials: Iterable[AnyTrial] | AnyTrial, *, n: int | None = 50, progress: bool = True
) -> MeanActivations:
    """Mean `z` and `q` over the prompt positions of the first `n` trials (None: all), the usual ablation reference.

    All positions have equal weight. `workers=` as in `lh.worker_pool`. A trial that fails is left out, with a warning. Raises
    ValueError for no trials, prompts beyond the context window, and processed weights; TypeError for anything but a
    TransformerLens model.

    `progress`: whether to show a bar.

    Cost: a pass for each of the `n` trials.

    Example:
        >>> means = lh.mean_activations(model, others)
        >>> with lh.ablate(model, heads, kind="mean", reference=means):
        ...     without = lh.evaluate(model, trials, generate=False)
        >>> without.metrics["greedy_match"].mean().item() < 0.5
        True
    """
    if n is not None:
        checks.count("n", n, remedy=", or None for all trials")
    require_raw_weights(model)
    shape = require(model, "mean_activations", "writes")
    encoded = encode_all(
        islice(several(trials), n), model.tokenizer, shape.n_ctx, d_vocab=shape.d_vocab, answered=False
    )
    names = {f"blocks.{layer}.attn.hook_z": ("z", layer) for layer in shape.attending}
    names |= {f"blocks.{layer}.attn.hook_q": ("q", layer) for layer in shape.softmax}

    def work(batch: list[EncodedTrial]) -> list[Result]:
        return [Result({"sums": summed(trial)}, {}) for trial in batch]

    def summed(trial: EncodedTrial) -> Float[Tensor, "kind layer head d_head"]:
        seen = _collect(model, trial.tokens, names, lambda x: x.float().sum(1, keepdim=True).cpu().double())
        sums: dict[str, dict[int, Tensor]] = {"z": {}, "q": {}}
        for name, parts in seen.items():
            kind, layer = names[name]
            sums[kind][layer] = _by_head(torch.cat(parts, 1), shape, layer).sum(0)
        sums["q"] = {layer: sums["q"].get(layer, torch.zeros_like(z)) for layer, z in sums["z"].items()}
        return torch.stack([shape.stacked(found, heads=-2) for found in sums.values()])

    results = engine.run(encoded, work, progress=progress, description="mean activations")
    done = [(trial, result.arrays["sums"]) for trial, result in zip(encoded, results, strict=True) if result.keep]
    positions = sum(len(trial) for trial, _ in done)
    z, q = (torch.stack([sums for _, sums in done]).sum(0) / positions).float()
    meta = {"model": shape.name, "positions": positions}
    ids, prompts = (tuple(map(each, (trial for trial, _ in done))) for each in (attrgetter("id"), prompt_digest))
    return MeanActivations(z, q, ids, meta, identified(model, "activations"), prompts)


@typed
def trial_activations(model: Model, trial: AnyTrial) -> TrialActivations:
    """`z` of every head at every prompt position of one trial: the reference of kinds "resample" and "patch".

    Memory: 4 bytes per layer, position, head and d_head. ValueError for a prompt longer than the context window.

    `model`: that runs.

    Cost: one pass.

    Example:
        >>> run = lh.trial_activations(model, trials[0])
        >>> run.id, run.z.shape[1] == len(trials[0].tokens)
        ('planted-0-0', True)
    """
    shape = head_geometry(model)
    (encoded,) = encode_all(trial, model.tokenizer, shape.n_ctx, d_vocab=shape.d_vocab)
    found = run_activations(model, encoded.tokens, encoded.id)
    return replace(found, model=identified(model, "activations"), prompt=prompt_digest(encoded))


def run_activations(model: Model, tokens: Int[Tensor, " position"], id: str, first: int = 0) -> TrialActivations:
    """`z` of every head on these tokens, from position `first` on; if one chunk suffices, bit-identical to a plain forward."""
    shape = head_geometry(model)
    names = {f"blocks.{layer}.attn.hook_z": layer for layer in shape.attending}
    seen = _collect(model, tokens, names, lambda x: x.float().cpu(), first, fast=len(tokens) > CHUNK)
    found = {names[name]: _by_head(torch.cat(parts, 1), shape, names[name]) for name, parts in seen.items()}
    return TrialActivations(shape.stacked(found, heads=-2), id, first)
