"""Attribution patching: a first-order estimate of activation patching for all heads at once, from gradients.

Nanda 2023; Syed et al., arXiv 2310.10348. The integrated-gradients form is EAP-IG (Hanna et al., arXiv 2403.17806).
TransformerLens provides the activations and gradients.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Unpack

import torch
from jaxtyping import Float, Int
from torch import Tensor

from lens_heads.answering.pair_runs import PairScore, Z
from lens_heads.answering.patch_metrics import Measure, judged, measure_of
from lens_heads.heads.scores import HeadScores
from lens_heads.model.architectures import attentions
from lens_heads.model.geometry import Model
from lens_heads.model.hooks import hooked
from lens_heads.model.modes import evaluating
from lens_heads.model.support import require
from lens_heads.model.workers import shared
from lens_heads.ranking.causal.sweep import sweep
from lens_heads.ranking.material import Material
from lens_heads.ranking.method import Method
from lens_heads.runs import checks
from lens_heads.runs.options import LoopOptions
from lens_heads.runs.typed import typed
from lens_heads.trials.pairs import Corruption, Positions, TokenPair
from lens_heads.trials.trial import AnyTrial

if TYPE_CHECKING:
    from transformer_lens.tools.analysis.attribution_patching import GradientCache

EMBED = "hook_embed"


@typed
@shared
def attribution_patch(
    model: Model,
    trials: Iterable[AnyTrial] | AnyTrial,
    *,
    metric: str | Measure = "logprob",
    positions: Positions,
    corruption: Corruption | None = None,
    ig_steps: int = 1,
    **run: Unpack[LoopOptions],
) -> HeadScores:
    """Estimate `patch_heads` for every head: sum over positions of (z_clean - z_corrupt) . d metric / d z.

    Args:
        trials, metric, corruption, **run: as in `patch_heads`. A custom metric must be differentiable.
        positions: as in `patch_heads`, to be compared with its scores at the same ones.
        ig_steps: 1 takes the gradient in the corrupt run: two forward passes and one backward pass per pair. m > 1 averages
            it over m runs whose embeddings lie 1/m, 2/m, ... m/m of the way from corrupt to clean (m more passes of each).
            Integrated gradients suit a metric that saturates. They estimate the effect of the whole path, not of one head
            in the corrupt run, and may rank heads less like `patch_heads` than the plain gradient does.

    Returns HeadScores of method "attribution" ("eap_ig" if `ig_steps` > 1), in the metric's units. Raises as
    `patch_heads` does.

    Runs the whole prompt with gradients and with logits at every position. For long prompts, the exact `patch_heads` with
    positions="answer" may take less time and memory.

    `model`: as there.

    Example:
        >>> estimate = lh.attribution_patch(model, pairs[:2], positions="all")
        >>> set(estimate.top(2)) == set(heads)
        True
    """
    checks.count("ig_steps", ig_steps)
    shape, names = require(model, "attribution", "gradients", "writes"), z_names(model)

    @torch.inference_mode(False)
    def score(pair: TokenPair) -> PairScore:
        (start, end), tokens = pair.answer, pair.corrupt[: pair.answer[1] - 1]
        judge = PairMeasure(pair, metric)
        clean = gradient_run(model, pair.clean[: end - 1], judge.note, gradient=False)
        corrupt = gradient_run(model, tokens, judge, gradient=ig_steps == 1)
        totals: dict[str, Tensor] = {}
        for step in range(1, ig_steps + 1):
            point = corrupt
            if ig_steps > 1:
                between = torch.lerp(corrupt.activations[EMBED], clean.activations[EMBED], step / ig_steps)
                point = gradient_run(model, tokens, judge, gradient=True, embedding=between)
            totals = {name: totals.get(name, 0) + gradient_at(point, name) / ig_steps for name in names}
        rows = slice(start - 1 if positions == "answer" else 0, end - 1)
        scores = {}
        for (name, layer), gradient in zip(names.items(), totals.values(), strict=True):
            change = clean.activations[name] - corrupt.activations[name]
            product = shape.by_head((change.float() * gradient.float())[:, rows], layer)
            scores[layer] = product.sum((0, 1, 3)).cpu()
        return shape.with_holes(shape.stacked(scores, heads=-1)), {
            "clean": judge.clean_value,
            "corrupt": float(corrupt.metric),
        }

    method = "attribution" if ig_steps == 1 else "eap_ig"
    return sweep(model, method, trials, score, metric, positions, corruption, run, ig_steps=ig_steps)


class PairMeasure:
    """From a run's logits to the metric of one pair. The clean run is noted first; the first one judged must be the corrupt."""

    def __init__(self, pair: TokenPair, metric: str | Measure) -> None:
        self.pair, self.metric = pair, metric
        self.clean: Tensor = torch.empty(0)
        self.measure: Measure | None = None

    def note(self, logits: Float[Tensor, "1 position d_vocab"]) -> Float[Tensor, ""]:
        """Keep the clean run's answer rows, on which the metric may depend."""
        self.clean = self._rows(logits).detach().float()
        return logits.new_zeros(())

    def __call__(self, logits: Float[Tensor, "1 position d_vocab"]) -> Float[Tensor, ""]:
        rows = self._rows(logits)
        if self.measure is None:
            self.measure = measure_of(self.metric, self.pair, self.clean[0], rows[0].detach().float())
        return with_gradient(judged(self.measure, rows, self.pair)[0], self.pair.id)

    @property
    def clean_value(self) -> float:
        """The metric of the clean run."""
        assert self.measure is not None
        return float(judged(self.measure, self.clean, self.pair)[0])

    def _rows(self, logits: Float[Tensor, "1 position d_vocab"]) -> Float[Tensor, "1 step d_vocab"]:
        return logits[:, self.pair.answer[0] - 1 :]


def with_gradient(value: Float[Tensor, ""], pair: str) -> Float[Tensor, ""]:
    """The metric. ValueError where a gradient is wanted and it has none."""
    if torch.is_grad_enabled() and not value.requires_grad:
        raise ValueError(f"pair {pair}: the metric has no gradient. Compute it from the logits, detaching nothing.")
    return value


def z_names(model: Model) -> dict[str, int]:
    """The hooks at which heads hand over what they read, with their layers."""
    return {Z.format(layer): layer for layer in attentions(model)}


def gradient_at(run: GradientCache, name: str) -> Tensor:
    """The gradient at a hook. ValueError if nothing that follows depends on it."""
    gradient = run.gradients[name]
    if gradient is None:
        raise ValueError(
            f"no gradient reaches {name}: a hook of your own blocks it (remove it), or this architecture's attention does not go "
            "through that point (use patch_heads)"
        )
    return gradient


def gradient_run(
    model: Model,
    tokens: Int[Tensor, " position"],
    judge: Callable[[Tensor], Tensor],
    gradient: bool,
    embedding: Float[Tensor, "1 position d_model"] | None = None,
    names: Sequence[str] = (),
) -> GradientCache:
    """One run by TransformerLens with the activations at every `hook_z` (and `names`), and their gradients if wanted.

    The embedding is replaced if one is given.
    """
    # Imported with a model only: it brings transformers, whose progress bars a notebook silences first.
    from transformer_lens.tools.analysis.attribution_patching import cache_activation_and_gradient

    def embed(x: Tensor, hook: Any) -> Tensor:
        # A fresh leaf, so that gradients also flow where the user has frozen the parameters.
        return (x if embedding is None else embedding).detach().requires_grad_(gradient)

    with evaluating(model), torch.set_grad_enabled(gradient), hooked(model, [(EMBED, embed)]):
        return cache_activation_and_gradient(
            model,
            tokens[None].to(model.W_U.device).clone(),  # Autograd takes no tensor made in inference mode.
            judge,
            names_filter=[EMBED, *z_names(model), *names],
            compute_gradient=gradient,
        )


def _method(name: str, label: str, steps: int, paper: str, fails: str) -> Method:
    """A clean and a corrupt pass, and one with gradients at every step of the integral."""

    def rank(material: Material) -> HeadScores:
        return attribution_patch(material.model, material.pairs, positions="all", ig_steps=steps, **material.loop(name))

    passes = 4.0 if steps == 1 else 2 + 3.0 * steps
    said: dict[str, Any] = {"paper": paper, "fails": fails, "label": label, "unit": "nats", "signed": True}
    return Method(name, "gradient", rank, "pairs", lambda shape, masks, k: passes, **said)


METHODS = (
    _method(
        "attribution", "attribution patching", 1, "attribution patching, arXiv 2310.10348",
        "first order: blind where attention is saturated",
    ),
    _method("eap_ig", "EAP-IG", 5, "EAP-IG, arXiv 2403.17806", "walks through embeddings that no prompt has"),
)  # fmt: skip
