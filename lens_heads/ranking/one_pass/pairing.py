"""The pass over pairs of runs: what every head writes at the answer's rows, with the context and without."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from lens_heads.heads.named import Rankings
from lens_heads.model.forward import Cache, advance, fast_attention, prefill
from lens_heads.model.geometry import Model, head_geometry, output_weights, require_raw_weights
from lens_heads.model.hooks import recording
from lens_heads.model.modes import evaluating
from lens_heads.model.support import require
from lens_heads.ranking.one_pass.collecting import PassResult, score_trials
from lens_heads.ranking.one_pass.definition import Scorer
from lens_heads.ranking.one_pass.pair_view import PairView
from lens_heads.ranking.one_pass.scorers import resolve_scorers, scored
from lens_heads.runs.digests import digest
from lens_heads.runs.options import Run
from lens_heads.trials.checked_tokens import check_unique
from lens_heads.trials.context_pairs import ContextPair, PairProbe


def score_pairs(model: Model, probes: Sequence[PairProbe], methods: Any, options: Run) -> Rankings:
    """`score_heads` for pairs, which it documents."""
    require_raw_weights(model)
    shape, scorers = require(model, "scoring pairs", "writes"), resolve_scorers(methods, "pair")
    encoded = [one for probe in probes for one in probe.encode(model.tokenizer, shape)]
    check_unique(one.id for one in encoded)
    settings = {"probe": "pair", "trials": digest([one.settings for one in encoded])}

    def work(batch: list[ContextPair]) -> list[PassResult]:
        return [PassResult(one.id, "ungated", scores=_score(model, one, scorers)) for one in batch]

    return score_trials(model, encoded, work, scorers, options, settings)


def _score(model: Model, one: ContextPair, scorers: Sequence[Scorer]) -> dict[str, Float[Tensor, "layer head"]]:
    shape = head_geometry(model)
    runs = [answer_rows(model, prompt, one.answer) for prompt in (one.tokens, one.without)]
    found = {scorer.name: shape.table() for scorer in scorers}
    for layer in shape.attending:
        z, other = (run[layer] for run in runs)
        view = PairView(layer, z, other, output_weights(model, layer).to(z.device))
        for scorer in scorers:
            found[scorer.name][layer, : z.shape[1]] = scored(scorer, view, z.shape[1])
    return found


@torch.no_grad()
def answer_rows(
    model: Model, prompt: Int[Tensor, " position"], answer: Int[Tensor, " step"]
) -> dict[int, Float[Tensor, "row head d_head"]]:
    """`z` of every attending layer at the rows that produce the answer, teacher-forced."""
    shape, cache = head_geometry(model), Cache(model, 1)
    tokens = torch.cat([prompt, answer[:-1]])[None].to(model.W_U.device)
    names = {f"blocks.{layer}.attn.hook_z": layer for layer in shape.attending}
    with evaluating(model):
        with fast_attention(model):
            prefill(model, tokens[:, : -len(answer)], cache)
        with recording(model, names) as seen, fast_attention(model):
            advance(model, tokens[:, -len(answer) :], cache, logits=0)
    return {names[name]: shape.by_head(z, names[name])[0].float() for name, (z,) in seen.items()}
