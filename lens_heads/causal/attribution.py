"""Attribution patching: a first-order estimate of activation patching for all heads at once, from gradients.

Nanda 2023; Syed et al., arXiv 2310.10348. The integrated-gradients form is EAP-IG's (Hanna et al., arXiv 2403.17806).
Activations and gradients come from TransformerLens.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Unpack

import torch
from einops import reduce
from jaxtyping import Float, Int
from torch import Tensor
from transformer_lens.tools.analysis.attribution_patching import GradientCache, cache_activation_and_gradient

from lens_heads.causal.measures import Measure, judged, resolve
from lens_heads.causal.pairs import AnyPair, Corruption, TokenPair
from lens_heads.causal.runs import Positions, Z
from lens_heads.causal.sweep import PairScore, Setup, sweep
from lens_heads.heads.scores import HeadScores
from lens_heads.model.geometry import Model, geometry
from lens_heads.model.hooks import hooked
from lens_heads.model.modes import evaluating
from lens_heads.runs.options import LoopOptions

EMBED = "hook_embed"


def attribution_patch(
    model: Model,
    pairs: Iterable[AnyPair] | AnyPair,
    metric: str | Measure = "answer_logprob",
    positions: Positions = "all",
    corruption: Corruption = "remove",
    ig_steps: int = 1,
    **run: Unpack[LoopOptions],
) -> HeadScores:
    """Estimate of `patch_heads` for every head: sum over positions of (z_clean - z_corrupt) . d metric / d z.

    Args:
        pairs, metric, corruption, **run: as in `patch_heads`; a metric of one's own has to be differentiable.
        positions: as there, but "all" unless said otherwise: compare with `patch_heads(..., positions="all")`.
        ig_steps: 1 takes the gradient in the corrupt run: two forwards and one backward per pair. m > 1 takes its mean over
            m runs whose embeddings lie at 1/m, 2/m, ... m/m of the way from corrupt to clean (m forwards and backwards).
            That is meant for a metric that saturates; it estimates the whole way's effect, not that of one head in the
            corrupt run, and need not rank heads more like `patch_heads` than the plain gradient does.

    Returns HeadScores of method "attribution" or, with `ig_steps` > 1, "eap_ig", in the metric's units. Raises as
    `patch_heads` does.

    The whole prompt is run with gradients and logits for every position: for long prompts the exact `patch_heads` with
    positions="answer" may well take less time and memory.
    """
    if ig_steps < 1:
        raise ValueError(f"ig_steps={ig_steps}: 1 is plain attribution patching, more are integrated gradients")
    shape = geometry(model)
    names = [Z.format(layer) for layer in range(shape.n_layers)]

    def score(pair: TokenPair) -> PairScore:
        start, end = pair.answer
        corrupt, measure = _corrupt_run(model, pair, names, metric, gradient=ig_steps == 1)
        clean = _run(model, pair, pair.clean, names, measure, gradient=False)
        gradients = (
            {name: _gradient(corrupt, name) for name in names}
            if ig_steps == 1
            else _on_the_way(model, pair, names, measure, clean, corrupt, ig_steps)
        )
        rows = slice(start - 1 if positions == "answer" else 0, end - 1)
        scores = []
        for name in names:
            change, gradient = clean.activations[name] - corrupt.activations[name], gradients[name]
            product = (change.float() * gradient.float())[0, rows].reshape(-1, shape.n_heads, shape.d_head)
            scores.append(reduce(product, "row head e -> head", "sum").cpu())
        return torch.stack(scores), {"clean": float(clean.metric), "corrupt": float(corrupt.metric)}

    method = "attribution" if ig_steps == 1 else "eap_ig"
    return sweep(model, method, pairs, score, Setup(metric, positions, corruption), run, ig_steps=ig_steps)


def _corrupt_run(
    model: Model, pair: TokenPair, names: list[str], metric: str | Measure, gradient: bool
) -> tuple[GradientCache, Measure]:
    """The corrupt run, and the measure, which may depend on what that run likes best."""
    found: list[Measure] = []

    def measure(logits: Float[Tensor, "run step d_vocab"], gold: Int[Tensor, " step"]) -> Float[Tensor, " run"]:
        found.append(resolve(metric, pair, logits[0].detach()))
        return found[0](logits, gold)

    return _run(model, pair, pair.corrupt, names, measure, gradient), found[0]


def _on_the_way(
    model: Model,
    pair: TokenPair,
    names: list[str],
    measure: Measure,
    clean: GradientCache,
    corrupt: GradientCache,
    steps: int,
) -> dict[str, Tensor]:
    """Gradients averaged over runs whose embeddings lie between the corrupt and the clean ones, the clean included."""
    ends = corrupt.activations[EMBED], clean.activations[EMBED]
    totals: dict[str, Tensor] = {}
    for step in range(1, steps + 1):
        between = torch.lerp(*ends, step / steps)
        run = _run(model, pair, pair.corrupt, names, measure, gradient=True, embedding=between)
        totals = {name: totals.get(name, 0) + _gradient(run, name) / steps for name in names}
    return totals


def _gradient(run: GradientCache, name: str) -> Tensor:
    gradient = run.gradients[name]
    if gradient is None:
        raise ValueError(
            f"no gradient reaches {name}: something hooked onto the model cuts the way from the metric to it"
        )
    return gradient


def _run(
    model: Model,
    pair: TokenPair,
    tokens: Int[Tensor, " position"],
    names: list[str],
    measure: Measure,
    gradient: bool,
    embedding: Float[Tensor, "1 position d_model"] | None = None,
) -> GradientCache:
    """One run of TransformerLens's, whose metric is the measure of the answer rows."""
    start, end = pair.answer

    def judge(logits: Tensor) -> Tensor:
        value = judged(measure, logits[:, start - 1 :], pair)[0]
        if gradient and not value.requires_grad:
            raise ValueError(
                f"pair {pair.id}: the metric has no gradient with respect to the logits: do not detach them"
            )
        return value

    def embed(x: Tensor, hook: Any) -> Tensor:
        # A fresh leaf: gradients flow from here on, also where a user has frozen the parameters.
        return (x if embedding is None else embedding).detach().requires_grad_(gradient)

    with evaluating(model), torch.set_grad_enabled(gradient), hooked(model, [(EMBED, embed)]):
        return cache_activation_and_gradient(
            model,
            tokens[None, : end - 1].to(model.W_U.device),
            judge,
            names_filter=[EMBED, *names],
            compute_gradient=gradient,
        )
