"""LoFiT (Yin et al., arXiv 2406.01563): heads whose output, scaled element by element, fits a task; then offsets on the best."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import ClassVar, Unpack

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from lens_heads.heads.geometry import HeadGeometry
from lens_heads.heads.head import Head
from lens_heads.heads.scores import HeadScores
from lens_heads.heads.styles import add_style
from lens_heads.interventions.activations import run_activations
from lens_heads.interventions.vectors import HeadVectors
from lens_heads.model.belonging import check_scores_of
from lens_heads.model.geometry import Model, head_geometry
from lens_heads.ranking.gates.fitted import Fitted, TrainingData
from lens_heads.ranking.gates.gate import Gate, GateBatch, Hooks, on_z
from lens_heads.ranking.gates.methods import training_method
from lens_heads.ranking.gates.training import Training, TrainingOptions
from lens_heads.runs import checks
from lens_heads.runs.typed import typed, typed_methods
from lens_heads.trials.checked_tokens import encode_all
from lens_heads.trials.trial import AnyTrial

DEFAULTS = Training(steps=100, lr=5e-3, batch_size=8, validate_every=10)


@dataclass(frozen=True)
class Scaling(Gate):
    """z <- (1 + A) z with A of every head and element; penalty = weight * sum |A|; score = |A| of a head."""

    weight: float

    name: ClassVar[str] = "lofit"

    def start(self, shape: HeadGeometry, seed: int) -> Float[Tensor, "layer head d_head"]:
        return _small(shape, seed)

    def hooks(self, parameter: Float[Tensor, "layer head d_head"], batch: GateBatch) -> Hooks:
        return on_z(batch.shape, lambda layer: lambda z: z * (1 + parameter[layer, :, : z.shape[-1]].to(z.device)))

    def read(self, parameter: Float[Tensor, "layer head d_head"]) -> Float[Tensor, "layer head"]:
        return parameter.norm(dim=-1)

    def penalty(self, parameter: Float[Tensor, "layer head d_head"], carried: float) -> Float[Tensor, ""]:
        return self.weight * parameter.abs().sum()


@dataclass(frozen=True)
class Offsets(Gate):
    """z <- z + v on the chosen heads; score = |v| of a head."""

    heads: tuple[str, ...]

    name: ClassVar[str] = "lofit_offsets"

    def start(self, shape: HeadGeometry, seed: int) -> Float[Tensor, "layer head d_head"]:
        return _small(shape, seed) * self.chosen(shape)[:, :, None]

    def chosen(self, shape: HeadGeometry) -> Bool[Tensor, "layer head"]:
        """Which heads have an offset."""
        found = torch.zeros(shape.n_layers, shape.n_heads, dtype=torch.bool)
        for head in shape.check_heads(self.heads):
            found[head.layer, head.head] = True
        return found

    def hooks(self, parameter: Float[Tensor, "layer head d_head"], batch: GateBatch) -> Hooks:
        offsets = parameter * self.chosen(batch.shape).to(parameter.device)[:, :, None]
        return on_z(batch.shape, lambda layer: lambda z: z + offsets[layer, :, : z.shape[-1]].to(z.device))

    def read(self, parameter: Float[Tensor, "layer head d_head"]) -> Float[Tensor, "layer head"]:
        return parameter.norm(dim=-1)


def _small(shape: HeadGeometry, seed: int) -> Float[Tensor, "layer head d_head"]:
    """Normal numbers of standard deviation 1e-3."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape.n_layers, shape.n_heads, shape.d_head, generator=generator) * 1e-3


@typed_methods
@dataclass(frozen=True, eq=False)
class Lofit(Fitted):
    """A `Fitted` of the scaling, and, if offsets were trained, these.

    `scores`, `parameter`, `history`: as in `Fitted`. `heads`: those that have offsets. `offsets`: what is added to them:
    `ablate(model, heads, kind="add", reference=offsets)`.

    Example:
        >>> fitted = lh.ranking.lofit(model, trials, k=1, steps=2)
        >>> len(fitted.heads), tuple(fitted.offsets.z.shape)
        (1, (2, 4, 32))
    """

    heads: tuple[Head, ...] = ()
    offsets: HeadVectors | None = None

    def changes(self, model: Model, trials: Iterable[AnyTrial] | AnyTrial) -> HeadScores:
        """||A o mean |z| ||, how far the scaling moves what a head passes on, in the units of z.

        `mean |z|`, element by element, is over all rows of these trials' prompts. A head that passes on little can be scaled a
        lot and change little: it is high in `scores` and low here. ValueError for another model than that of the training, and
        trials that do not fit its context window.
        """
        shape = head_geometry(model)
        shape.check_scores(self.scores, "the scaling")
        check_scores_of(model, {self.scores.method: self.scores})
        encoded = encode_all(trials, model.tokenizer, shape.n_ctx, d_vocab=shape.d_vocab)
        total = torch.zeros(shape.n_layers, shape.n_heads, shape.d_head, dtype=torch.float64)
        for trial in encoded:
            total += run_activations(model, trial.tokens, trial.id).z.double().abs().sum(1)
        mean = (total / sum(map(len, encoded))).float()
        values = shape.with_holes((self.parameter * mean).norm(dim=-1))
        return replace(self.scores, values=values, per_trial=values[None], method="lofit_change")


@typed(**DEFAULTS.options)
def lofit(
    model: Model,
    trials: Iterable[AnyTrial] | AnyTrial,
    *,
    weight: float = 5e-4,
    k: int = 0,
    **training: Unpack[TrainingOptions],
) -> Lofit:
    """Learn to scale what every head passes on so that the model answers; a head's score is how much it is scaled.

    Args:
        trials: trials with gold answers, whose negative log-likelihood is the loss. Every fifth is for validation.
        weight: of the penalty, the sum of absolute scalings. Larger: fewer heads.
        k: train offsets on so many of the best heads afterwards (the authors: 160 of Llama-2-7B's in the first stage, 32 in the
            second); 0 leaves it at the scores.
        **training: see `TrainingOptions`. By default 100 steps of 8 trials, lr 5e-3.

    Returns a `Lofit`: scores ||A|| of query heads, at the best of validation, penalty included; `changes` weighs A by what heads
    pass on. Scaling is no ablation: a head scores high where changing its output helps, also if it answers nothing as it stands.

    The authors train the offsets with lr 1e-2 and, on TruthfulQA, preferences by DPO; here both stages have the same loss.
    ValueError for fewer than five trials, and a loss that diverges.

    Example:
        >>> fitted = lh.ranking.lofit(model, trials, steps=5)
        >>> fitted.scores.unit
        'query_head'
    """
    shape = head_geometry(model)
    checks.whole_number("k", k, 0, shape.size, ", the number of heads")
    gate = Scaling(checks.finite("weight", weight, 0))
    material = TrainingData.of(model, gate, trials, DEFAULTS, training, validates=True, about={"k": k})
    found = material.fit(gate)
    if not k:
        return Lofit(found.scores, found.parameter, found.history)
    best = found.scores.top(k)
    second = replace(material, training=replace(material.training, lr=2 * material.training.lr))
    shifted = second.fit(Offsets(tuple(head.key for head in best)))
    trained = tuple(trial.id for trial in (*material.trials, *material.validation))
    about = {"method": "lofit", "heads": [str(head) for head in best]}
    return Lofit(
        found.scores,
        found.parameter,
        found.history,
        tuple(best),
        HeadVectors(shifted.parameter, trial_ids=trained, meta=about, model=shifted.scores.model),
    )


add_style("lofit_change", "LoFiT, change")
METHODS = (
    training_method(
        "lofit", lambda m, how: lofit(m.model, m.trials, **how).scores, 8,
        label="LoFiT", unit="length of the scaling", paper="LoFiT, arXiv 2406.01563",
        fails="finds heads whose change helps, not those that are needed",
    ),
)  # fmt: skip
