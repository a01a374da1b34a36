"""Causal head gating (Nam et al., NeurIPS 2025, arXiv 2505.13737): gates under pressure to open, and under pressure to close."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal, Unpack, get_args

import pandas as pd
import torch
from jaxtyping import Float
from torch import Tensor

from lens_heads.heads.geometry import HeadGeometry
from lens_heads.heads.scores import HeadScores
from lens_heads.model.geometry import Model
from lens_heads.ranking.gates.fitted import Fitted, TrainingData
from lens_heads.ranking.gates.gate import Gate, GateBatch, Hooks, on_z
from lens_heads.ranking.gates.methods import training_method
from lens_heads.ranking.gates.training import Training, TrainingOptions
from lens_heads.runs import checks
from lens_heads.runs.drawn import Tabled
from lens_heads.runs.typed import typed, typed_methods
from lens_heads.trials.trial import AnyTrial

GateRole = Literal["facilitating", "interfering", "irrelevant"]
DEFAULTS = Training(steps=100, lr=0.3, batch_size=8, clip=1.0)
"""The authors take 500 steps of 32 texts for each of the three fits, with lr 1."""
CLAMP = 4.0
"""The penalty leaves logits beyond this alone."""


@dataclass(frozen=True)
class HeadGate(Gate):
    """z <- G z at every row, G = sigmoid(m) of every head; penalty = - weight * mean of m, clipped to -4 .. 4."""

    weight: float

    name: ClassVar[str] = "head_gating"

    def start(self, shape: HeadGeometry, seed: int) -> Float[Tensor, "layer head"]:
        generator = torch.Generator().manual_seed(seed)
        return torch.rand(shape.n_layers, shape.n_heads, generator=generator).logit(1e-6)

    def hooks(self, parameter: Float[Tensor, "layer head"], batch: GateBatch) -> Hooks:
        return on_z(batch.shape, lambda layer: lambda z: z * parameter[layer].sigmoid()[:, None].to(z.device))

    def read(self, parameter: Float[Tensor, "layer head"]) -> Float[Tensor, "layer head"]:
        return parameter.sigmoid()

    def penalty(self, parameter: Float[Tensor, "layer head"], carried: float) -> Float[Tensor, ""]:
        return -self.weight * parameter.clamp(-CLAMP, CLAMP).mean()


@typed_methods
@dataclass(frozen=True, eq=False)
class HeadRoles(Tabled):
    """Gates of every head: `free` of pressure, `kept` under pressure to open, `removed` under pressure to close.

    `removed`: the heads whose gates stay open together suffice for the task. `kept`: those whose gates close anyway are in
    its way.

    Example:
        >>> roles = lh.ranking.head_gating(model, trials[:2], steps=1, batch_size=1)
        >>> roles.scores().method
        'head_gating_facilitating'
    """

    free: Fitted = field(repr=False)
    kept: Fitted = field(repr=False)
    removed: Fitted = field(repr=False)

    def scores(self, role: GateRole = "facilitating") -> HeadScores:
        """facilitating: G-; interfering: 1 - G+; irrelevant: G+ (1 - G-); all 0 to 1. ValueError for another role."""
        if role not in get_args(GateRole):
            raise ValueError(f"role={role!r}: use {', '.join(get_args(GateRole))}")
        opened, closed = self.kept.scores.values, self.removed.scores.values
        values = {"facilitating": closed, "interfering": 1 - opened, "irrelevant": opened * (1 - closed)}[role]
        return replace(self.removed.scores, method=f"head_gating_{role}", values=values, per_trial=values[None])

    @property
    def frame(self) -> pd.DataFrame:
        """`at(0.5)`: a row per head, with its role at a threshold of a half."""
        return self.at(0.5)

    def at(self, threshold: float) -> pd.DataFrame:
        """A row per head, the most facilitating first: its gates, its three scores, and its role.

        `sufficient`: its gate stays open under pressure to close. `necessary`: and it does under no pressure as well, so that the
        fit never found a way without it. Whether the task fails without one is for an ablation to say. A role is the one whose
        score is above the threshold; "mixed" for a head without.
        """
        checks.share("threshold", threshold, "0.5")
        by_role = {role: self.scores(role) for role in get_args(GateRole)}
        rows = []
        for head in by_role["facilitating"].ranking():
            found = {role: scores[head] for role, scores in by_role.items()}
            best = max(found, key=lambda role: found[role])
            gates = {name: getattr(self, name).scores[head] for name in ("free", "kept", "removed")}
            sufficient = gates["removed"] >= threshold
            about = {"sufficient": sufficient, "necessary": sufficient and gates["free"] >= threshold}
            role = best if found[best] >= threshold else "mixed"
            rows.append(
                {"layer": head.layer, "head": head.head, "name": str(head), **gates, **found, **about, "role": role}
            )
        return pd.DataFrame(rows)

    def __repr__(self) -> str:
        roles = self.frame["role"].value_counts()
        return f"HeadRoles({', '.join(f'{n} {role}' for role, n in roles.items())})"


@typed(**DEFAULTS.options)
def head_gating(
    model: Model,
    trials: Iterable[AnyTrial] | AnyTrial,
    *,
    weight: float = 0.1,
    **training: Unpack[TrainingOptions],
) -> HeadRoles:
    """Fit a gate for every head to a task three times: freely, then from there with pressure to open and with pressure to close.

    Args:
        trials: trials with gold answers, whose negative log-likelihood is the loss.
        weight: of the pressure, the mean logit of the gates (clipped to -4 .. 4).
        **training: see `TrainingOptions`; each fit takes so many steps. By default 100 of 8 trials, lr .3, from random gates.

    Returns `HeadRoles`; `roles.scores()` ranks heads by facilitation. A closed gate is zero ablation, and many are closed
    together, so a role belongs to the rest as it is fitted: another seed may find another circuit.

    Pressure begins at the free gates clipped to where it acts; in the authors' code it never reaches those that the free fit
    drove beyond. That code's comments name the two pressures the other way round; its formulas are those here and in the paper.
    ValueError for a loss that diverges.

    `model`: as in `rank`.

    Cost: three trainings, each of `steps` passes forward and backward of `batch_size` trials, and of the validation trials
    forward every `validate_every` steps.

    Example:
        >>> roles = lh.ranking.head_gating(model, trials, steps=8, batch_size=4)
        >>> [planted.roles[head] for head in roles.scores().top(2)]
        ['copier', 'writer']
    """
    weight = checks.finite("weight", weight, 0)
    if weight == 0:
        raise ValueError("weight=0: without pressure there are no roles to tell apart; the authors' is 0.1")
    material = TrainingData.of(model, HeadGate(0.0), trials, DEFAULTS, training, about={"pressure": weight})
    free = material.fit(HeadGate(0.0), name="head_gating_free")
    begin = free.parameter.clamp(-CLAMP, CLAMP)
    fits = {
        name: material.fit(HeadGate(sign * weight), begin, f"head_gating_{name}")
        for name, sign in (("kept", 1), ("removed", -1))
    }
    return HeadRoles(free, **fits)


METHODS = (
    training_method(
        "head_gating", lambda m, how: head_gating(m.model, m.trials, **how).scores(), 8,
        fits=3, paper="causal head gating, arXiv 2505.13737",
        fails="heads that stand in for each other share one gate between them",
    ),
)  # fmt: skip
