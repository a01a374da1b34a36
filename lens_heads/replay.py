"""Replay: an unablated prefill, kept, so that a run ablated from some layer on need not compute the layers below again.

An intervention on heads changes nothing below the lowest of them: there the residual stream and the cached keys and
values are those of the unablated run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from lens_heads.forward import CHUNK, Cache, advance, fast_attention, left_pad, noting_tuples, prefill, resuming
from lens_heads.models import HookFunction, Model, hooked
from lens_heads.trials import EncodedTrial
from lens_heads.view import evaluating

MOST_BYTES = 2**31
"""A prefill whose residual streams would take more memory than this is not kept."""


@dataclass(frozen=True, eq=False)
class Prefilled:
    """A batch of prompts but their last tokens, run once: the cache, and the residual stream after every layer.

    `tuples`: the model's blocks hand on tuples.
    """

    ids: tuple[str, ...]
    tokens: Int[Tensor, "batch position"]
    pads: Int[Tensor, " batch"]
    residuals: list[Float[Tensor, "batch position d_model"]]
    cache: Cache
    tuples: bool

    def replay(self, model: Model, layer: int, chunk: int = CHUNK) -> Cache:
        """The cache as a prefill under what is now hooked onto the model gives it, if nothing is below `layer`."""
        if layer >= len(self.residuals):
            return self.cache.branch()
        if layer == 0 or self.tokens.shape[1] == 0:
            cache = Cache(model, len(self.ids))
            prefill(model, self.tokens, cache, self.pads, chunk)
            return cache
        cache = Cache(model, len(self.ids))
        for start in range(0, self.tokens.shape[1], chunk):
            rows = slice(start, start + chunk)
            cache.borrow(self.cache, layer, start)
            with resuming(model, layer, self.residuals[layer - 1][:, rows], self.tuples):
                advance(model, self.tokens[:, rows], cache, self.pads, logits=0)
        cache.borrow(self.cache, layer, self.tokens.shape[1])
        return cache


@torch.no_grad()
def prefilled(model: Model, trials: Sequence[EncodedTrial], chunk: int = CHUNK) -> Prefilled | None:
    """Run the prompts as the model stands now; None where keeping the run would take too much memory."""
    tokens, pads = left_pad([trial.tokens for trial in trials], model.W_U.device)
    tokens = tokens[:, :-1]
    n_layers = int(model.cfg.n_layers)
    if tokens.numel() * n_layers * model.cfg.d_model * model.W_U.element_size() > MOST_BYTES:
        return None
    seen: list[list[Tensor]] = [[] for _ in range(n_layers)]
    keep: list[tuple[str, HookFunction]] = [
        (f"blocks.{layer}.hook_resid_post", lambda x, hook, at=seen[layer]: at.append(x.detach()))
        for layer in range(n_layers)
    ]
    cache = Cache(model, len(trials))
    with evaluating(model), hooked(model, keep), fast_attention(model), noting_tuples(model) as noted:
        prefill(model, tokens, cache, pads, chunk)
    residuals = [torch.cat(parts, 1) if parts else torch.empty(0) for parts in seen]
    return Prefilled(tuple(trial.id for trial in trials), tokens, pads, residuals, cache, any(noted))
