"""Reinforcement of the heads that read the context: their outputs are scaled up while decoding (VHR, with text for images)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Unpack

import torch
from einops import einsum
from jaxtyping import Float
from torch import Tensor

from lens_heads.answering.evaluation import Evaluation, answer_batch, collect, finite
from lens_heads.heads.head import Head
from lens_heads.interventions.ablate import ablate
from lens_heads.interventions.replay import prefilled
from lens_heads.model.forward import Cache, advance, fast_attention, prefill
from lens_heads.model.geometry import Model, head_geometry, output_weights
from lens_heads.model.hooks import hooked, recording
from lens_heads.model.identity import identified
from lens_heads.model.modes import evaluating
from lens_heads.model.run_folders import folder_for
from lens_heads.model.support import require
from lens_heads.model.workers import shared
from lens_heads.runs import checks, engine
from lens_heads.runs.options import Run, RunOptions
from lens_heads.runs.shards import Result
from lens_heads.runs.typed import typed
from lens_heads.trials.checked_tokens import encode_all
from lens_heads.trials.context_pairs import ContextPair, Without, context_pairs
from lens_heads.trials.digests import trials_digest
from lens_heads.trials.encoded import EncodedTrial
from lens_heads.trials.trial import AnyTrial

Z = "blocks.{}.attn.hook_z"


@typed
@torch.no_grad()
def reinforced_heads(model: Model, trial: ContextPair, *, factor: float = 2.0) -> list[Head]:
    """The heads that VHR reinforces for one prompt, chosen layer by layer while those below are already scaled.

    A head diverges by |w_with - w_without| at the prompt's last row, w = z W_O. In each layer, those above the layer's median are
    chosen, without the heads whose |w_without| exceeds the layer's mean by more than a standard deviation.

    Source: Vision-aware Head Reinforcement (He et al., arXiv 2412.13949), where the context is an image. Written from the paper,
    not compared with the authors' code.

    `model`: in which the heads are. `trial`: the prompt with and without its context. `factor`: how much chosen heads are
        scaled.

    Cost: two passes.

    Example:
        >>> prompt = trials[0].tokens.tolist()
        >>> own = lh.trials.ContextPair(prompt, without=[prompt[0], prompt[-1]], answer=[65], id="own")
        >>> found = lh.evidence.reinforced_heads(model, own)
        >>> heads[0] in found
        True
    """
    shape, chosen = head_geometry(model), list[Head]()
    names = {layer: Z.format(layer) for layer in shape.attending}

    def last(tokens: Tensor, hooks: list[tuple[str, Any]]) -> dict[str, list[Tensor]]:
        batch, cache = tokens[None].to(model.W_U.device), Cache(model, 1)
        with evaluating(model):
            with fast_attention(model):
                prefill(model, batch[:, :-1], cache)
            with recording(model, names.values()) as seen, hooked(model, hooks), fast_attention(model):
                advance(model, batch[:, -1:], cache)
        return seen

    bare = last(trial.without, [])

    def select(z: Tensor, hook: Any, layer: int) -> Tensor:
        weights = output_weights(model, layer)
        given = shape.by_head(z, layer)[0, 0].float()
        with_, without = (
            _written(each, weights) for each in (given, bare[names[layer]][0].reshape(given.shape).float())
        )
        divergence, idle = (with_ - without).norm(dim=-1), without.norm(dim=-1)
        picked = (divergence > divergence.median()) & (idle <= idle.mean() + idle.std(correction=0))
        chosen.extend(Head(layer, int(head)) for head in picked.nonzero()[:, 0])
        return torch.where(picked[:, None], factor * given, given).reshape(z.shape).to(z)

    def at(layer: int) -> Any:
        return lambda z, hook: select(z, hook, layer)

    last(trial.tokens, [(name, at(layer)) for layer, name in names.items()])
    return chosen


def _written(
    z: Float[Tensor, "head d_head"], W_O: Float[Tensor, "head d_head d_model"]
) -> Float[Tensor, "head d_model"]:
    return einsum(z, W_O.to(z), "head e, head e d -> head d")


@typed
@shared
def reinforce(
    model: Model,
    trials: Iterable[AnyTrial] | AnyTrial,
    *,
    factor: float = 2.0,
    without: Without = "needle",
    **run: Unpack[RunOptions],
) -> Evaluation:
    """Decode with the heads that the context moves most scaled by `factor`, chosen for every prompt by `reinforced_heads`.

    Args:
        trials: trials with a needle. without: what the run without context lacks, as in `trials.context_pairs`.
        factor: VHR's is 2. 1 is plain decoding.
        **run: see `runs.options.RunOptions`.

    The prompt is read as it is; the last of its rows and all that follow are reinforced. Compare with `evaluate` on the
    same trials. ValueError for trials without a needle, and as `evaluate` raises.

    Cost: for each trial a pass with and one without the context, which choose its heads, and a run under them that decodes
    token by token.

    Example:
        >>> reinforced = lh.reinforce(model, trials[:2], factor=2.0, max_new_tokens=1)
        >>> reinforced.texts
        ('A', 'B')
    """
    options, shape = Run.of(run), require(model, "reinforce", "writes")
    checks.finite("factor", factor, 0)
    room = options.room(True)
    encoded = encode_all(trials, model.tokenizer, shape.n_ctx, room, shape.d_vocab)
    pairs = {one.id: one for one in context_pairs(encoded, without=without).encode(model.tokenizer, shape)}
    settings = {**identified(model, "metrics").settings, "trials": trials_digest(encoded), "max_new_tokens": room}
    settings |= {"method": "reinforce", "factor": factor, "without": without}

    def work(batch: list[EncodedTrial]) -> list[Result]:
        (trial,) = batch
        heads, filled = reinforced_heads(model, pairs[trial.id], factor=factor), prefilled(model, [trial])
        with ablate(model, heads, kind="scale", factor=factor):
            return finite(batch, answer_batch(model, batch, room, filled=filled, begins=(shape.n_layers,)))

    folder = folder_for(model, options.out, settings)
    results = engine.run(encoded, work, folder=folder, progress=options.progress, description="reinforcing")
    return collect(encoded, results)
