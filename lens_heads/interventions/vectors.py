"""HeadVectors: a vector for every head, to add to what it passes on, or to mix in."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from lens_heads.heads.geometry import HeadGeometry
from lens_heads.heads.made_on import MadeOn, records
from lens_heads.interventions.activations import run_activations
from lens_heads.model.geometry import Model
from lens_heads.model.identity import identified
from lens_heads.model.support import require
from lens_heads.runs.digests import digest, tensor_digest
from lens_heads.runs.identity import ModelIdentity
from lens_heads.runs.tensor_files import load_tensors, save_tensors
from lens_heads.runs.typed import typed, typed_fields, typed_methods
from lens_heads.trials.checked_tokens import encode_all
from lens_heads.trials.digests import prompt_digest
from lens_heads.trials.trial import AnyTrial


@typed_methods
@dataclass(frozen=True, eq=False)
class HeadVectors:
    """A vector `z` [layer, head, d_head] for every head, in the units of `hook_z`; float32 on the CPU.

    `gates` [layer, head]: how much of it each head takes, for kind "mix"; 1 by default. `trial_ids`: the trials it
    was made on, and `prompts` the hashes of their tokens. `meta`: how, for readers. `model`: the model they were made on, if
    known, by whose weights another one is told.

    Example:
        >>> vectors = lh.task_vectors(model, trials)
        >>> vectors.gates.min().item(), len(vectors.trial_ids)
        (1.0, 8)
    """

    z: Float[Tensor, "layer head d_head"]
    gates: Float[Tensor, "layer head"] = None  # type: ignore[assignment]  # ones by default
    trial_ids: tuple[str, ...] = ()
    meta: dict[str, Any] = field(default_factory=dict)
    model: ModelIdentity = ModelIdentity("")
    prompts: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"HeadVectors({list(self.z.shape)}, {len(self.trial_ids)} trials, {self.model})"

    def __post_init__(self) -> None:
        typed_fields(self)
        if self.z.ndim != 3:
            raise ValueError(f"z has shape {list(self.z.shape)}: must be [layer, head, d_head]")
        gates = torch.ones(self.z.shape[:2]) if self.gates is None else self.gates
        if gates.shape != self.z.shape[:2]:
            raise ValueError(f"gates has shape {list(gates.shape)}: must be {list(self.z.shape[:2])}, as z has it")
        for name, values in (("z", self.z), ("gates", gates)):
            if values.layout is not torch.strided or values.is_complex():
                raise ValueError(
                    f"{name} is a tensor of {values.layout}, {values.dtype}: pass a dense one of real numbers"
                )
            held = values.detach().to("cpu", torch.float32)
            if not held.isfinite().all():
                raise ValueError(f"{name} holds {float(held[~held.isfinite()][0])}: vectors must be finite")
            object.__setattr__(self, name, held)

    def check(self, shape: HeadGeometry) -> None:
        """ValueError if these are for a model of another shape."""
        wanted = (shape.n_layers, shape.n_heads, shape.d_head)
        if tuple(self.z.shape) != wanted:
            raise ValueError(
                f"the vectors have shape {tuple(self.z.shape)}, but {shape.name} needs {wanted}: make them on this model"
            )

    @property
    def made_on(self) -> tuple[MadeOn, ...]:
        """The trials, as rankings record theirs."""
        return records(self.trial_ids, self.prompts)

    @property
    def digest(self) -> str:
        """Hash of all values."""
        return digest([tensor_digest(self.z), tensor_digest(self.gates)])

    def save(self, path: str | Path) -> Path:
        """Write a safetensors file. OSError naming it if that fails."""
        about = {"trial_ids": self.trial_ids, "meta": self.meta, "model": self.model.record, "prompts": self.prompts}
        return save_tensors(path, {"z": self.z, "gates": self.gates}, about)

    @classmethod
    def load(cls, path: str | Path) -> HeadVectors:
        """Read what `save` wrote. FileNotFoundError if there is no such file, ValueError if it is damaged or another one."""

        def made(tensors: dict[str, Tensor], about: dict[str, Any]) -> HeadVectors:
            known = tuple(map(str, about["trial_ids"])), dict(about["meta"]), ModelIdentity.read(about.get("model"))
            return cls(tensors["z"], tensors["gates"], *known, tuple(map(str, about.get("prompts", ()))))

        return load_tensors(path, made, "saved vectors of heads", "save HeadVectors there first")


@typed
@torch.no_grad()
def task_vectors(model: Model, trials: Iterable[AnyTrial] | AnyTrial) -> HeadVectors:
    """The mean of every head's z at the last row of the prompts: what heads hold when the model is about to answer.

    Of prompts with examples of a task it is what function-vector heads carry (Todd et al., arXiv 2310.15213) and what
    `soft_injection` puts in. ValueError for no trials, and prompts longer than the context window.

    Cost: a pass for each trial.

    Example:
        >>> vectors = lh.task_vectors(model, trials)
        >>> len(vectors.trial_ids)
        8
    """
    shape = require(model, "task_vectors", "writes")
    encoded = encode_all(trials, model.tokenizer, shape.n_ctx, d_vocab=shape.d_vocab)
    rows = [run_activations(model, trial.tokens, trial.id, len(trial) - 1).z[:, -1] for trial in encoded]
    mean = torch.stack(rows).double().mean(0).float()
    ids, prompts = tuple(trial.id for trial in encoded), tuple(map(prompt_digest, encoded))
    return HeadVectors(
        mean, trial_ids=ids, meta={"model": shape.name}, model=identified(model, "vectors"), prompts=prompts
    )
