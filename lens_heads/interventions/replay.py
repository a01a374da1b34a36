"""Replay: an unablated prefill, kept, so that a run ablated from some layer on need not compute the layers below again.

An intervention on heads changes nothing below the lowest of them: there the residual stream and the cached keys and
values are those of the unablated run. And what several prompts begin with (the examples of a few-shot task) is run once for
all of them.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor

from lens_heads.model.forward import CHUNK, Cache, advance, fast_attention, left_pad, noting_tuples, prefill, resuming
from lens_heads.model.geometry import Model
from lens_heads.model.hooks import HookFunction, hooked
from lens_heads.model.modes import evaluating
from lens_heads.trials.encoded import EncodedTrial

MOST_BYTES = 2**31
"""A prefill whose residual streams would take more memory than this is not kept."""
SHORTEST = 16
"""Tokens that prompts must at least share for their beginning to be run apart."""


@dataclass(frozen=True, eq=False)
class Prefilled:
    """A batch of prompts but their last tokens, run once: the cache, and the residual stream after every layer.

    `tuples`: the model's blocks hand on tuples. `shared`: what all rows begin with, as a batch of one; `tokens` and
    `residuals` are then what follows it.
    """

    ids: tuple[str, ...]
    tokens: Int[Tensor, "batch position"]
    pads: Int[Tensor, " batch"]
    residuals: list[Float[Tensor, "batch position d_model"]]
    cache: Cache
    tuples: bool
    shared: Prefilled | None = None

    @property
    def bytes(self) -> int:
        """What keeping it takes, about: the residual streams, and as much again for the cache."""
        return 2 * sum(stream.numel() * stream.element_size() for stream in self.residuals)

    def replay(self, model: Model, layer: int, chunk: int = CHUNK, beginning: Cache | None = None) -> Cache:
        """The cache as a prefill under what is now hooked onto the model gives it, if nothing is below `layer`.

        `beginning`: the replay of `shared` under the same hooks, where there is one already.
        """
        if layer >= len(self.residuals):
            return self.cache.branch()
        if self.shared is None:
            cache, before = Cache(model, len(self.ids)), 0
        else:
            beginning = self.shared.replay(model, layer, chunk) if beginning is None else beginning
            cache, before = beginning.branch(0, len(self.ids)), len(beginning)
        if layer == 0 or self.tokens.shape[1] == 0:
            prefill(model, self.tokens, cache, self.pads, chunk)
            return cache
        for start in range(0, self.tokens.shape[1], chunk):
            rows = slice(start, start + chunk)
            cache.borrow(self.cache, layer, before + start)
            with resuming(model, layer, self.residuals[layer - 1][:, rows], self.tuples):
                advance(model, self.tokens[:, rows], cache, self.pads, logits=0)
        cache.borrow(self.cache, layer, before + self.tokens.shape[1])
        return cache


def together(trials: Sequence[EncodedTrial], batch_size: int) -> list[list[EncodedTrial]]:
    """Batches of trials of like length; of the same length, where they share a beginning that is worth running once."""
    by_size = sorted(trials, key=len)
    same = len if _shared(by_size) else (lambda trial: 0)
    groups = [list(group) for _, group in itertools.groupby(by_size, key=same)]
    return [group[at : at + batch_size] for group in groups for at in range(0, len(group), batch_size)]


def shared_beginning(model: Model, trials: Sequence[EncodedTrial], chunk: int = CHUNK) -> Prefilled | None:
    """What all prompts begin with, run once; None where that is too short to be worth it."""
    length = _shared(trials)
    if not length:
        return None
    first = replace(trials[0], id="shared", tokens=trials[0].tokens[: length + 1], needle=None, question=None)
    return prefilled(model, [first], chunk)


def _shared(trials: Sequence[EncodedTrial]) -> int:
    """Tokens that the prompts share from the first on, their last tokens apart; 0 where they are not worth running apart."""
    if len(trials) < 2:
        return 0
    shortest = min(len(trial) for trial in trials) - 1
    rows = torch.stack([trial.tokens[:shortest] for trial in trials])
    length = int((rows == rows[0]).all(0).long().cumprod(0).sum())
    return length if length >= max(SHORTEST, sum(map(len, trials)) / len(trials) / 2) else 0


@torch.no_grad()
def prefilled(
    model: Model, trials: Sequence[EncodedTrial], chunk: int = CHUNK, shared: Prefilled | None = None
) -> Prefilled | None:
    """Run the prompts as the model stands now; None where keeping the run would take too much memory.

    `shared`: what they all begin with, if that was run already; they are then of one length. By default prompts of one length
    that share a long beginning get it.
    """
    if shared is None and len({len(trial) for trial in trials}) == 1:
        shared = shared_beginning(model, trials, chunk)
    tokens, pads = left_pad([trial.tokens for trial in trials], model.W_U.device)
    tokens = tokens[:, 0 if shared is None else len(shared.cache) : -1]
    n_layers = int(model.cfg.n_layers)
    if tokens.numel() * n_layers * model.cfg.d_model * model.W_U.element_size() > MOST_BYTES:
        return None
    seen: list[list[Tensor]] = [[] for _ in range(n_layers)]
    keep: list[tuple[str, HookFunction]] = [
        (f"blocks.{layer}.hook_resid_post", lambda x, hook, at=seen[layer]: at.append(x.detach()))
        for layer in range(n_layers)
    ]
    cache = Cache(model, len(trials)) if shared is None else shared.cache.branch(0, len(trials))
    with evaluating(model), hooked(model, keep), fast_attention(model), noting_tuples(model) as noted:
        prefill(model, tokens, cache, pads, chunk)
    residuals = [torch.cat(parts, 1) if parts else torch.empty(0) for parts in seen]
    return Prefilled(tuple(trial.id for trial in trials), tokens, pads, residuals, cache, any(noted), shared)
