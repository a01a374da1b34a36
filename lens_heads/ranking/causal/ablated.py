"""Attribution of an ablation: what ablating each head would cost, estimated for all heads from one forward and one backward.

The first-order form of testing every head alone: sum over positions of (z - the z that the ablation sets) . d metric / d z.
Michel et al. (arXiv 1905.10650) call the absolute value for zero ablation, per layer normalised, a head's importance.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Annotated, Literal, Unpack

import torch
from jaxtyping import Float, Int
from torch import Tensor

from lens_heads.answering.pair_runs import PairScore
from lens_heads.answering.patch_metrics import OF_ONE_RUN, Measure, check_measure, judged
from lens_heads.heads.scores import HeadScores
from lens_heads.interventions.activations import MeanActivations
from lens_heads.interventions.checked_kind import Ablation, reference_digest
from lens_heads.model.geometry import Model, head_geometry
from lens_heads.model.support import require
from lens_heads.model.workers import shared
from lens_heads.ranking.causal.attribution import gradient_at, gradient_run, with_gradient, z_names
from lens_heads.ranking.causal.sweep import sweep
from lens_heads.ranking.method import Method
from lens_heads.runs.options import LoopOptions
from lens_heads.runs.typed import LISTED, typed
from lens_heads.trials.encoded import EncodedTrial
from lens_heads.trials.pairs import TokenPair
from lens_heads.trials.trial import AnyTrial


@typed
@shared
def attribute_ablation(
    model: Model,
    trials: Iterable[AnyTrial] | AnyTrial,
    *,
    kind: Literal["mean", "zero"] = "mean",
    reference: Annotated[MeanActivations | None, LISTED] = None,
    metric: str | Measure = "logprob",
    **run: Unpack[LoopOptions],
) -> HeadScores:
    """Estimate, for every head at once, how much of the answer ablating it costs: metric(clean) - metric(ablated).

    Args:
        trials: trials; of those with a counterfactual the clean side is run. No needle is needed.
        kind: "mean" (needs `reference=mean_activations(...)`) or "zero", at all positions, as in `ablate`.
        reference: means of other trials, for kind "mean".
        metric: "logprob", "answer_logit" (above the mean logit), or a differentiable function as in `patch_heads`.
        **run: `out` and `progress`, see `runs.options.LoopOptions`.

    Returns HeadScores of method "attribute_ablation", in the metric's units. Positive: ablating the head costs the answer.
    An estimate to first order: check the heads it finds with `ablation_curve`, on other trials.

    Raises ValueError for another kind, a reference that is missing or was made on these trials, and another named metric, which
    compares with a corrupt run.

    Cost: a pass forward and one backward for each trial, about three plain passes.

    Example:
        >>> found = lh.attribute_ablation(model, trials, kind="zero")
        >>> set(found.top(2)) == set(heads)
        True
    """
    if kind not in ("mean", "zero"):
        raise ValueError(f"kind={kind!r}: only 'mean' and 'zero' set z itself; test another kind with ablation_curve")
    if kind == "zero" and reference is not None:
        raise ValueError("kind='zero' takes no reference: use kind='mean', or leave it out")
    Ablation.of(model, kind, reference=reference)
    check_measure(metric)
    if isinstance(metric, str) and metric not in OF_ONE_RUN:
        known = " or ".join(map(repr, OF_ONE_RUN))
        raise ValueError(f"metric={metric!r} compares with a corrupt run, which an ablation does not have: use {known}")
    measure, shape = OF_ONE_RUN[metric] if isinstance(metric, str) else metric, head_geometry(model)
    require(model, "attribution", "gradients", "writes")
    zeros = torch.zeros(shape.n_layers, shape.n_heads, shape.d_head)
    set_to = zeros if kind == "zero" or reference is None else reference.z

    @torch.inference_mode(False)
    def score(pair: TokenPair) -> PairScore:
        start, end = pair.answer

        def judge(logits: Float[Tensor, "1 position d_vocab"]) -> Float[Tensor, ""]:
            return with_gradient(judged(measure, logits[:, start - 1 :], pair)[0], pair.id)

        run = gradient_run(model, pair.clean[: end - 1], judge, gradient=True)
        found = {}
        for name, layer in z_names(model).items():
            both = (run.activations[name], gradient_at(run, name))
            z, gradient = (shape.by_head(x.float(), layer)[0] for x in both)
            instead = set_to[layer, : z.shape[1], : z.shape[2]].to(z)
            found[layer] = ((z - instead) * gradient).sum((0, 2)).cpu()
        return shape.with_holes(shape.stacked(found, heads=-1)), {"clean": float(run.metric)}

    about = {"kind": kind, "reference": reference_digest(reference)}
    return sweep(
        model, "attribute_ablation", trials, score, metric, "all", unchanged, run, False, replacement=reference, **about
    )


def unchanged(trial: EncodedTrial) -> Int[Tensor, " position"]:
    """No corruption: both sides of the pair are the prompt."""
    return trial.tokens


@typed
@shared
def gradient_importance(
    model: Model,
    trials: Iterable[AnyTrial] | AnyTrial,
    *,
    metric: str | Measure = "logprob",
    normalise: bool = True,
    **run: Unpack[LoopOptions],
) -> HeadScores:
    """Head importance by gradients (Michel et al., arXiv 1905.10650): E | sum_t z . d metric / d z |.

    It is the size of the derivative by a gate on the head, at 1. Arguments as in `attribute_ablation`. `normalise` divides
    every layer by the L2 norm of its heads' importances, as the authors' code does, so that layers compare; ValueError for a
    layer without any.

    `model`, `trials`: as there.

    Cost: a pass forward and one backward for each trial, about three plain passes.

    Example:
        >>> found = lh.ranking.gradient_importance(model, trials)
        >>> [planted.roles[head] for head in found.top(2)]
        ['writer', 'copier']
    """
    found = attribute_ablation(model, trials, kind="zero", metric=metric, **run)
    return (
        by_layer_norm(absolute(found, "gradient_importance")) if normalise else absolute(found, "gradient_importance")
    )


def absolute(scores: HeadScores, method: str) -> HeadScores:
    """The absolute values trial by trial, and their mean."""
    per_trial = scores.per_trial.abs()
    return replace(scores, method=method, per_trial=per_trial, values=per_trial.mean(0), signed=False)


def by_layer_norm(scores: HeadScores) -> HeadScores:
    """Every layer divided by the L2 norm of its heads' scores."""
    norms = scores.values.nan_to_num().norm(dim=-1, keepdim=True)
    empty = (norms[:, 0] == 0) & scores.there.any(-1)
    if empty.any():
        layer = int(empty.nonzero()[0])
        raise ValueError(
            f"{scores.method}: no head of layer {layer} has any, so it cannot be normalised: use normalise=False"
        )
    return replace(
        scores, per_trial=scores.per_trial / norms, values=scores.values / norms, score_unit="share of a layer's norm"
    )


@typed
def importance(scores: HeadScores) -> HeadScores:
    """Absolute scores as shares of all heads': E | s | / sum over heads of E | s |, the importance of Thinking Sparks.

    Of `attribution_patch(..., metric="kl", ig_steps=5)` it is node EAP-IG as used across checkpoints. Values sum to 1.
    ValueError if all scores are zero.

    `scores`: by one method.

    Example:
        >>> shares = lh.ranking.importance(scores)
        >>> round(shares.values.sum().item(), 3)
        1.0
    """
    found = absolute(scores, scores.method)
    total = found.flat.sum()
    if not total > 0:
        raise ValueError(f"{scores.method}: all scores are zero, so there are no shares: score other pairs")
    return replace(found, per_trial=found.per_trial / total, values=found.values / total, score_unit="share")


METHODS = (
    Method(
        "attribute_ablation", "gradient",
        lambda m: attribute_ablation(m.model, m.trials, kind="mean", reference=m.reference, **m.loop("attribute_ablation")),
        passes=lambda shape, masks, k: 3.0, signed=True, unit="nats", paper="first order of ablation, arXiv 1905.10650",
        fails="first order: misses stand-ins, and damage that saturates",
    ),
    Method(
        "gradient_importance", "gradient", lambda m: gradient_importance(m.model, m.trials, **m.loop("gradient_importance")),
        passes=lambda shape, masks, k: 3.0, signed=False, unit="share of a layer's norm",
        paper="Michel et al., arXiv 1905.10650", fails="without a sign: heads that harm rank beside heads that help",
    ),
)  # fmt: skip
