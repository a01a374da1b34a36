"""Soft injection of a task vector (SITE, arXiv 2507.20906): through which heads do in-context runs turn into the answer?

Its baseline is the average indirect effect by which function-vector heads were found (`average_indirect_effect`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Unpack

import torch
from jaxtyping import Float
from torch import Tensor

from lens_heads.heads.geometry import HeadGeometry
from lens_heads.heads.scores import HeadScores
from lens_heads.interventions.checked_kind import check_belongs
from lens_heads.interventions.independence import check_reference
from lens_heads.interventions.vectors import HeadVectors, task_vectors
from lens_heads.model.geometry import Model, head_geometry
from lens_heads.ranking.gates.fitted import Fitted, TrainingData
from lens_heads.ranking.gates.gate import Gate, GateBatch, Hooks, on_z
from lens_heads.ranking.gates.methods import training_method
from lens_heads.ranking.gates.training import Training, TrainingOptions
from lens_heads.ranking.material import Material
from lens_heads.runs.typed import typed
from lens_heads.trials.checked_tokens import encode_all
from lens_heads.trials.digests import made_on, prompt_digest
from lens_heads.trials.trial import AnyTrial

DEFAULTS = Training(steps=400, lr=0.2, validate_every=50)


@dataclass(frozen=True)
class Injection(Gate):
    """z <- (1 - alpha) z + alpha t at the last row of the prompt, alpha = sigmoid(g) of every head, g = 0 at first."""

    vectors: str
    t: Float[Tensor, "layer head d_head"] = field(compare=False, repr=False)

    name: ClassVar[str] = "soft_injection"

    def start(self, shape: HeadGeometry, seed: int) -> Float[Tensor, "layer head"]:
        return torch.zeros(shape.n_layers, shape.n_heads)

    def hooks(self, parameter: Float[Tensor, "layer head"], batch: GateBatch) -> Hooks:
        def edit(layer: int) -> Any:
            alpha, t = parameter[layer].sigmoid()[:, None], self.t[layer]

            def mixed(z: Float[Tensor, "batch row head d_head"]) -> Tensor:
                a = alpha.to(z.device)
                last = (1 - a) * z[:, -1:] + a * t[:, : z.shape[-1]].to(z.device)
                return torch.cat([z[:, :-1], last.to(z.dtype)], 1)

            return mixed

        return on_z(batch.shape, edit)

    def read(self, parameter: Float[Tensor, "layer head"]) -> Float[Tensor, "layer head"]:
        return parameter.sigmoid()

    @property
    def settings(self) -> dict[str, Any]:
        return {"vectors": self.vectors}


@dataclass(frozen=True, eq=False)
class Injected(Fitted):
    """A `Fitted`, and the vectors with their gates: `ablate(model, heads, kind="mix", reference=vectors)`.

    `scores`, `parameter`, `history`: as in `Fitted`. `vectors`: what is put in, each head's with its gate.

    Example:
        >>> vectors = lh.task_vectors(model, trials)
        >>> fitted = lh.ranking.soft_injection(model, lh.sanity.without_needle(others), vectors, steps=2)
        >>> fitted.vectors.gates.shape == fitted.scores.values.shape
        True
    """

    vectors: HeadVectors = None  # type: ignore[assignment]  # always given


@typed(**DEFAULTS.options)
def soft_injection(
    model: Model,
    trials: Iterable[AnyTrial] | AnyTrial,
    vectors: HeadVectors,
    **training: Unpack[TrainingOptions],
) -> Injected:
    """Learn through which heads a task vector has to be put in so that the model does the task without examples (SITE).

    Args:
        trials: prompts without examples, with gold answers, whose first token's negative log-likelihood is the loss. Every fifth
            is for validation.
        vectors: what the heads write with examples: `task_vectors(model, trials with examples)`.
        **training: see `TrainingOptions`. By default 400 steps of one trial, lr .2, validated every 50 steps.

    Returns an `Injected` whose scores are the gates alpha, 0 to 1, at the best of validation. (The authors' code never
    updates the best loss, so that its last validated gates win.) ValueError for vectors of another model or of these trials, and
    fewer than five trials.

    Cost: `steps` passes forward and backward of `batch_size` trials, and the validation trials forward every `validate_every`
    steps.

    Example:
        >>> vectors = lh.task_vectors(model, trials)
        >>> fitted = lh.ranking.soft_injection(model, lh.sanity.without_needle(others), vectors, steps=5)
        >>> fitted.scores.unit
        'query_head'
    """
    shape = head_geometry(model)
    check_belongs(model, vectors)
    encoded = encode_all(trials, model.tokenizer, shape.n_ctx, d_vocab=shape.d_vocab)
    check_reference(vectors, made_on(encoded), "trials that gates are trained on", "make the vectors on others")
    first = [replace(trial, answer_tokens=trial.answer_tokens[:1]) for trial in encoded]
    gate = Injection(vectors.digest, vectors.z)
    found = TrainingData.of(model, gate, first, DEFAULTS, training, validates=True).fit(gate)
    scores = replace(found.scores, made_on=(*found.scores.made_on, *vectors.made_on))
    trained = (*vectors.trial_ids, *(trial.id for trial in encoded))
    prompts = (*vectors.prompts, *map(prompt_digest, encoded)) if vectors.prompts else ()
    gated = replace(vectors, gates=scores.values.nan_to_num(), trial_ids=trained, prompts=prompts)
    return Injected(scores, found.parameter, found.history, gated)


def rank_by_injection(material: Material, how: dict[str, Any]) -> HeadScores:
    """Gates by which the mean of other clean prompts goes into the corrupt ones."""
    vectors = task_vectors(material.model, material.others)
    asked = [replace(one, tokens=one.corrupt, needle=None, question=None) for one in material.pairs]
    return soft_injection(material.model, asked, vectors, **how).scores


METHODS = (
    training_method(
        "soft_injection", rank_by_injection, 2, needs="pairs and others", paper="SITE, arXiv 2507.20906",
        fails="says where a vector works, not where it is made",
    ),
)  # fmt: skip
