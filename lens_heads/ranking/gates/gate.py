"""A gate: something small that is learned for every head of a frozen model, and the batch of prompts it is learned from."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from lens_heads.heads.geometry import HeadGeometry
from lens_heads.heads.head import Unit
from lens_heads.model.forward import left_pad, uncached
from lens_heads.model.geometry import Model, head_geometry
from lens_heads.model.hooks import HookFunction
from lens_heads.model.passes import Pass
from lens_heads.model.support import Need
from lens_heads.trials.encoded import EncodedTrial

Hooks = list[tuple[str, HookFunction]]
EditZ = Callable[[Float[Tensor, "batch row head d_head"]], Float[Tensor, "batch row head d_head"]]


@dataclass(frozen=True, eq=False)
class GateBatch:
    """Prompts with their answers but for the last token, left-padded. `step`: how many steps came before; -1 in validation.

    `teacher` holds what `Gate.teacher` noted of the intact model on this batch.
    """

    trials: tuple[EncodedTrial, ...]
    tokens: Int[Tensor, "batch position"]
    pads: Int[Tensor, " batch"]
    shape: HeadGeometry
    step: int = -1
    seed: int = 0
    teacher: Any = None

    @classmethod
    def of(cls, model: Model, trials: Sequence[EncodedTrial], step: int = -1, seed: int = 0) -> GateBatch:
        rows = [torch.cat([trial.tokens, trial.answer_tokens[:-1]]) for trial in trials]
        tokens, pads = left_pad(rows, model.W_U.device)
        return cls(tuple(trials), tokens, pads, head_geometry(model), step, seed)

    @property
    def forward(self) -> Pass:
        """What the kinds of ablation need to know of this forward."""
        return Pass(pads=self.pads)

    @property
    def longest(self) -> int:
        """Tokens of the longest answer."""
        return max(len(trial.answer_tokens) for trial in self.trials)

    def answers(self, x: Float[Tensor, "batch row ..."]) -> list[Float[Tensor, "step ..."]]:
        """The rows that produce each trial's answer, out of the last rows of all."""
        return [x[i, -len(trial.answer_tokens) :] for i, trial in enumerate(self.trials)]


class Gate(ABC):
    """What one method learns: the shape of its parameter, its edit of the forward, its loss and its penalty.

    A dataclass whose fields identify it in a run folder. `unit`: what it has a parameter for. `fast`: its hooks fire under sdpa.
    """

    name: ClassVar[str]
    unit: ClassVar[Unit] = "query_head"
    fast: ClassVar[bool] = True

    @property
    def needs(self) -> tuple[Need, ...]:
        """What the edit rests on (`model.support`)."""
        return ("gradients", "writes") if self.fast else ("gradients", "edits", "pattern")

    @abstractmethod
    def start(self, shape: HeadGeometry, seed: int) -> Float[Tensor, "layer ..."]:
        """The parameter before training, float32."""

    @abstractmethod
    def hooks(self, parameter: Float[Tensor, "layer ..."], batch: GateBatch) -> Hooks:
        """The edit of the forward."""

    @abstractmethod
    def read(self, parameter: Float[Tensor, "layer ..."]) -> Float[Tensor, "layer head"]:
        """A score for every head, higher for those that matter more, from the trained parameter."""

    def teacher(self, model: Model, batch: GateBatch) -> Any:
        """What the loss or the edit needs of the intact model; nothing by default."""
        return None

    def loss(self, model: Model, batch: GateBatch) -> Float[Tensor, ""]:
        """Mean negative log-likelihood of an answer's tokens, in nats, under the edit; a mean of trials' means."""
        logits = batch.answers(uncached(model, batch.tokens, batch.pads, batch.longest).float())
        return torch.stack(
            [
                torch.nn.functional.cross_entropy(rows, trial.answer_tokens.to(rows.device))
                for rows, trial in zip(logits, batch.trials, strict=True)
            ]
        ).mean()

    def penalty(self, parameter: Float[Tensor, "layer ..."], carried: float) -> Float[Tensor, ""]:
        """What is added to the loss for the parameter itself."""
        return parameter.new_zeros(())

    def clamp(self, parameter: Float[Tensor, "layer ..."]) -> None:
        """Put the parameter back where it may be, in place, before and after each step."""
        return

    carry: ClassVar[float] = 0.0
    """The number that a method carries from step to step, before the first."""

    def after(self, parameter: Float[Tensor, "layer ..."], carried: float) -> float:
        """That number after a step."""
        return carried

    @property
    def settings(self) -> dict[str, Any]:
        """Its fields, for a run folder."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}  # type: ignore[arg-type]


def on_z(shape: HeadGeometry, edits: Callable[[int], EditZ]) -> Hooks:
    """Hooks that edit every layer's z by head, in whatever form the model's projections have it."""

    def hook(layer: int) -> HookFunction:
        edit = edits(layer)
        return lambda z, hook: edit(shape.by_head(z, layer)).reshape(z.shape).to(z.dtype)

    return [(f"blocks.{layer}.attn.hook_z", hook(layer)) for layer in shape.attending]
