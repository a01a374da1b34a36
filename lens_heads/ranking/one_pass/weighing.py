"""Scores from weights alone: what each head's OV circuit makes of a token, read by the unembedding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from einops import einsum, repeat
from jaxtyping import Float, Int
from torch import Tensor

from lens_heads.heads.named import Rankings
from lens_heads.model.geometry import Model, head_geometry, output_weights, require_merged, require_raw_weights
from lens_heads.model.hooks import hooked, recording
from lens_heads.model.modes import evaluating
from lens_heads.model.norms import attention_norm, frozen_norm
from lens_heads.model.support import require
from lens_heads.ranking.one_pass.collecting import PassResult, score_trials
from lens_heads.ranking.one_pass.definition import Scorer
from lens_heads.ranking.one_pass.scorers import is_ours, resolve_scorers, scored
from lens_heads.ranking.one_pass.token_maps import EncodedMap, WeightsProbe
from lens_heads.ranking.one_pass.weights_view import WeightsView
from lens_heads.runs.digests import digest
from lens_heads.runs.options import Run
from lens_heads.trials.checked_tokens import check_unique


def score_weights(model: Model, probes: Sequence[WeightsProbe], methods: Any, options: Run) -> Rankings:
    """`score_heads` for weights, which it documents."""
    require_raw_weights(model)
    require_merged(model, "a map of tokens")
    shape, scorers = require(model, "scoring weights", "writes"), resolve_scorers(methods, "weights")
    encoded = [one for probe in probes for one in probe.encode(model.tokenizer, shape)]
    check_unique(one.id for one in encoded)
    settings = {
        "probe": "weights",
        "trials": digest([one.settings for one in encoded]),
        "blind_layers": {scorer.name: [0] for scorer in scorers if is_ours(scorer)},
    }

    def work(batch: list[EncodedMap]) -> list[PassResult]:
        return [PassResult(one.id, "ungated", scores=_score(model, one, scorers)) for one in batch]

    return score_trials(model, encoded, work, scorers, options, settings)


@torch.no_grad()
def _score(model: Model, one: EncodedMap, scorers: Sequence[Scorer]) -> dict[str, Float[Tensor, "layer head"]]:
    shape, tokens = head_geometry(model), one.tokens.to(model.W_U.device)
    read, raw = effective_embedding(model, tokens), raw_embedding(model, tokens)
    readouts = model.W_U.detach()[:, tokens].float()
    found = {scorer.name: shape.table() for scorer in scorers}
    for layer in shape.attending:
        W_V, W_O = value_weights(model, layer), output_weights(model, layer)
        norm = attention_norm(model, layer)
        here = read if norm is None else frozen_norm(model, norm).unscaled(read)
        sources, raw_sources = (
            None if known is None else known[one.sources.to(known.device)].to(W_V.device) for known in (here, raw)
        )
        assert sources is not None
        readable, targets = readouts.to(W_V.device), one.targets.to(W_V.device)
        view = WeightsView(layer, W_V, W_O, sources, raw_sources, readable, targets, one.lowest)
        for scorer in scorers:
            found[scorer.name][layer, : len(W_O)] = scored(scorer, view, len(W_O))
    return found


@torch.no_grad()
def effective_embedding(model: Model, tokens: Int[Tensor, " token"]) -> Float[Tensor, "token d_model"]:
    """The stream after the first block for each token alone, without position and without what that block's attention adds."""
    none = [name for name in ("hook_pos_embed", "blocks.0.hook_attn_out") if name in model.hook_dict]
    after = "blocks.0.hook_resid_post"
    silent = hooked(model, [(name, lambda x, hook: torch.zeros_like(x)) for name in none])
    with evaluating(model), silent, recording(model, [after]) as seen:
        model(tokens[:, None], stop_at_layer=1)
    return seen[after][0][:, 0].float()


@torch.no_grad()
def raw_embedding(model: Model, tokens: Int[Tensor, " token"]) -> Float[Tensor, "token d_model"] | None:
    """What the first MLP makes of each token's embedding (with the scale that Gemma gives it), without norms.

    None where the MLP does not run alone: it takes the residual stream too (BLOOM, MPT), or is spread over its block (OPT, XGLM,
    Granite 4).
    """
    mlp = getattr(model.blocks[0], "mlp", None)
    if mlp is None:
        return None
    try:
        with evaluating(model):
            out = mlp(model.embed(tokens[None]))
    except (TypeError, RuntimeError):
        return None
    return (out[0] if isinstance(out, tuple) else out)[0].float()


def _stored(module: Any) -> Tensor:
    """The weight of a module, wrapped or not."""
    return getattr(module, "original_component", module).weight.detach().float()


def value_weights(model: Model, layer: int) -> Float[Tensor, "head d_model d_head"]:
    """W_V of a layer by query head: those of a group share it. Norms inside (of the latent of MLA, of Gemma 4's values) are left
    out but for their gain: what is read is then right up to a positive factor at each position, as after any norm."""
    attention, here = model.blocks[layer].attn, head_geometry(model).layers[layer]
    inner: Any = getattr(attention, "original_component", None)
    if hasattr(inner, "kv_b_proj"):
        rank = int(inner.kv_lora_rank)
        down = _stored(inner.kv_a_proj_with_mqa)[:rank] * _stored(inner.kv_a_layernorm)[:, None]
        up = _stored(inner.kv_b_proj).reshape(here.n_heads, -1, rank)[:, -here.d_head :]
        return einsum(down, up, "rank d, head e rank -> head d e")
    if hasattr(inner, "v_norm"):
        shared = inner.k_proj if inner.v_proj is None else inner.v_proj  # Global layers read values off their keys.
        weights = _stored(shared).reshape(here.n_kv_heads, here.d_head, -1).mT
    else:
        weights = attention.W_V.detach().float()
    return weights if len(weights) == here.n_heads else repeat(weights, "kv d e -> (kv group) d e", group=here.group)
