"""The query side of attribution patching without its saturation: AtP*   (Kramár et al., arXiv 2403.00745, section 3.1)

A head that attends to one key with probability near 1 has almost no gradient through its softmax, so plain attribution misses
what another query would do. Here the softmax is computed exactly with the other run's query, and only what follows is linear.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Unpack

import torch
from einops import einsum, repeat
from jaxtyping import Float
from torch import Tensor

from lens_heads.answering.pair_runs import PairScore
from lens_heads.answering.patch_metrics import Measure
from lens_heads.heads.scores import HeadScores
from lens_heads.model.geometry import Model, head_geometry, is_bridge
from lens_heads.model.support import architecture, require
from lens_heads.model.workers import shared
from lens_heads.ranking.causal.attribution import PairMeasure, gradient_at, gradient_run
from lens_heads.ranking.causal.sweep import sweep
from lens_heads.ranking.method import Method
from lens_heads.runs.options import LoopOptions
from lens_heads.runs.typed import typed
from lens_heads.trials.pairs import Corruption, TokenPair
from lens_heads.trials.trial import AnyTrial

if TYPE_CHECKING:
    from transformer_lens.tools.analysis.attribution_patching import GradientCache

PATTERN = "blocks.{}.attn.hook_pattern"


@typed
@shared
def attribute_queries(
    model: Model,
    trials: Iterable[AnyTrial] | AnyTrial,
    *,
    metric: str | Measure = "logprob",
    corruption: Corruption | None = None,
    **run: Unpack[LoopOptions],
) -> HeadScores:
    """Estimate, for every head, the effect of giving it the clean run's queries: sum (A' - A) . d metric / d A.

    A is the corrupt run's pattern, A' the one that the clean queries make with the corrupt keys, exactly. Arguments and
    errors as in `attribution_patch`; all positions. Returns HeadScores of method "atp_query", in the metric's units.
    ValueError for a model whose attention is not the softmax of scaled (soft-capped) products of queries and keys.

    `trials`, `corruption`: as there.

    Cost: a pass for each side of a trial and one backward, about four plain passes.

    Example:
        >>> found = lh.ranking.attribute_queries(model, pairs[:2])
        >>> found.method
        'atp_query'
    """
    shape = require(model, "atp_query", "gradients", "pattern")
    rotary = "rot_" if f"blocks.{shape.attending[0]}.attn.hook_rot_q" in model.hook_dict else ""
    names = {part: f"blocks.{{}}.attn.hook_{rotary}{part}" for part in ("q", "k")}
    hooks = [name.format(layer) for layer in shape.attending for name in (PATTERN, *names.values())]

    @torch.inference_mode(False)
    def score(pair: TokenPair) -> PairScore:
        end, judge = pair.answer[1] - 1, PairMeasure(pair, metric)
        clean = gradient_run(model, pair.clean[:end], judge.note, gradient=False, names=hooks)
        hidden = next((name for name in hooks if name not in clean.activations), None)
        if hidden is not None:
            raise unsuited(model, f"{hidden} shows nothing")
        corrupt = gradient_run(model, pair.corrupt[:end], judge, gradient=True, names=hooks)
        found = {}
        for layer in shape.attending:
            pattern = corrupt.activations[PATTERN.format(layer)][0].float()
            own, other = (_pattern(model, layer, each, corrupt, names) for each in (corrupt, clean))
            if not torch.allclose(own, pattern, atol=1e-3):
                raise unsuited(model, f"the pattern of layer {layer} is not the softmax of its queries and keys")
            gradient = gradient_at(corrupt, PATTERN.format(layer))[0].float()
            found[layer] = ((other - pattern) * gradient).sum((1, 2)).cpu()
        return shape.with_holes(shape.stacked(found, heads=-1)), {
            "clean": judge.clean_value,
            "corrupt": float(corrupt.metric),
        }

    return sweep(model, "atp_query", trials, score, metric, "all", corruption, run)


def unsuited(model: Model, why: str) -> ValueError:
    """What to say of a model whose attention cannot be made again from its queries and keys."""
    named = f"{head_geometry(model).name} ({architecture(model)})"
    return ValueError(
        f"{named}: atp_query needs rotated queries and keys, and {why}: use attribution_patch, or patch_heads"
    )


def _pattern(
    model: Model, layer: int, asking: GradientCache, asked: GradientCache, names: dict[str, str]
) -> Float[Tensor, "head row key"]:
    """The attention of one run's queries to another run's keys."""
    shape, attention = head_geometry(model), model.blocks[layer].attn
    q = asking.activations[names["q"].format(layer)][0].float()
    k = asked.activations[names["k"].format(layer)][0].float()
    here, heads = shape.layers[layer], (shape.layers[layer].n_heads, shape.layers[layer].n_kv_heads)
    if q[0].numel() % here.n_heads or k[0].numel() * here.group != q[0].numel():
        raise unsuited(model, f"those of layer {layer} are not whole")
    q, k = (x.reshape(len(x), n, -1) for x, n in zip((q, k), heads, strict=True))
    k = repeat(k, "key kv e -> key (kv group) e", group=q.shape[1] // k.shape[1])
    scale = getattr(attention.original_component, "scaling", None) if is_bridge(model) else 1 / attention.attn_scale
    scores = einsum(q, k, "row head e, key head e -> head row key") * float(scale or here.d_head**-0.5)
    if shape.attn_softcap is not None:
        scores = shape.attn_softcap * torch.tanh(scores / shape.attn_softcap)
    places = torch.arange(len(k), device=q.device)
    seen = shape.reaches(layer, places[: len(q), None], places)
    return scores.masked_fill(~seen, -torch.inf).softmax(-1)


METHODS = (
    Method(
        "atp_query", "gradient", lambda m: attribute_queries(m.model, m.pairs, **m.loop("atp_query")), "pairs",
        lambda shape, masks, k: 4.0, only_named=True, signed=True, paper="AtP*, arXiv 2403.00745",
        fails="sees what a head's queries do, not its keys and values; refuses attention that is no plain softmax",
        label="AtP*, queries", unit="nats",
    ),
)  # fmt: skip
