"""Replay: a stored unablated prefill, so that a run ablated from some layer on need not recompute the layers below.

An intervention on heads changes nothing below the lowest of them: there the residual stream and the cached keys and values
are those of the unablated run. A common beginning of several prompts (few-shot examples) runs once for all of them.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor

from lens_heads.model.forward import CHUNK, Cache, fast_attention, left_pad, noting_tuples, prefill, resuming
from lens_heads.model.geometry import Model
from lens_heads.model.hooks import recording
from lens_heads.model.modes import evaluating
from lens_heads.trials.encoded import EncodedTrial

MOST_BYTES = 2**31
"""A prefill whose residual streams would take more memory than this is not kept."""
SHORTEST = 16
"""The fewest shared tokens for which the beginning of prompts is run separately."""


@dataclass(frozen=True, eq=False)
class Prefilled:
    """A prefill of a batch of prompts without their last tokens: the cache, and the residual stream after every layer.

    `tuples`: the model's blocks return tuples. `shared`: the common beginning of all rows, as a batch of one; `tokens` and
    `residuals` are then those after it.
    """

    tokens: Int[Tensor, "batch position"]
    pads: Int[Tensor, " batch"]
    residuals: list[Float[Tensor, "batch position d_model"]]
    cache: Cache
    tuples: bool
    shared: Prefilled | None = None

    @property
    def bytes(self) -> int:
        """The approximate memory it takes: that of the residual streams, and as much again for the cache."""
        return 2 * sum(stream.numel() * stream.element_size() for stream in self.residuals)

    def replay(self, model: Model, layer: int, chunk: int = CHUNK, beginning: Cache | None = None) -> Cache:
        """The cache that a prefill under the model's current hooks would give, if none is below `layer`.

        `beginning`: the replay of `shared` under the same hooks, if there is one already.
        """
        if layer >= len(self.residuals):
            return self.cache.branch()
        if beginning is None and self.shared is not None:
            beginning = self.shared.replay(model, layer, chunk)
        cache = Cache(model, len(self.pads)) if beginning is None else beginning.branch(0, len(self.pads))
        before = len(cache)
        if layer == 0 or self.tokens.shape[1] == 0:
            prefill(model, self.tokens, cache, self.pads, chunk)
            return cache
        for start in range(0, self.tokens.shape[1], chunk):
            rows = slice(start, start + chunk)
            cache.borrow(self.cache, layer, before + start)
            with resuming(model, layer, self.residuals[layer - 1][:, rows], self.tuples):
                prefill(model, self.tokens[:, rows], cache, self.pads, chunk)
        cache.borrow(self.cache, layer, before + self.tokens.shape[1])
        return cache


def together(trials: Sequence[EncodedTrial], batch_size: int) -> list[list[EncodedTrial]]:
    """Batches of trials of similar length; of equal length, if the trials share a beginning worth running once."""
    by_size = sorted(trials, key=len)
    same = len if _shared(by_size) else (lambda trial: 0)
    groups = [list(group) for _, group in itertools.groupby(by_size, key=same)]
    return [group[at : at + batch_size] for group in groups for at in range(0, len(group), batch_size)]


def shared_beginning(model: Model, trials: Sequence[EncodedTrial]) -> Prefilled | None:
    """A prefill of the common beginning of all prompts; None if it is too short to be worthwhile."""
    length = _shared(trials)
    if not length:
        return None
    first = replace(trials[0], id="shared", tokens=trials[0].tokens[: length + 1], needle=None, question=None)
    return prefilled(model, [first])


def _shared(trials: Sequence[EncodedTrial]) -> int:
    """Length of the prompts' common beginning, without their last tokens; 0 if running it separately is not worthwhile."""
    if len(trials) < 2:
        return 0
    shortest = min(len(trial) for trial in trials) - 1
    rows = torch.stack([trial.tokens[:shortest] for trial in trials])
    length = int((rows == rows[0]).all(0).long().cumprod(0).sum())
    return length if length >= max(SHORTEST, sum(map(len, trials)) / len(trials) / 2) else 0


@torch.no_grad()
def prefilled(model: Model, trials: Sequence[EncodedTrial], shared: Prefilled | None = None) -> Prefilled | None:
    """A prefill of the prompts under the model's current hooks; None if keeping it would take too much memory.

    `shared`: a prefill of their common beginning, if there is one already; the prompts must then have equal lengths. By
    default it is made for prompts of equal length with a long common beginning.
    """
    if shared is None and len({len(trial) for trial in trials}) == 1:
        shared = shared_beginning(model, trials)
    tokens, pads = left_pad([trial.tokens for trial in trials], model.W_U.device)
    tokens = tokens[:, 0 if shared is None else len(shared.cache) : -1]
    n_layers = int(model.cfg.n_layers)
    if tokens.numel() * n_layers * model.cfg.d_model * model.W_U.element_size() > MOST_BYTES:
        return None
    names = [f"blocks.{layer}.hook_resid_post" for layer in range(n_layers)]
    cache = Cache(model, len(trials)) if shared is None else shared.cache.branch(0, len(trials))
    with evaluating(model), recording(model, names) as seen, fast_attention(model), noting_tuples(model) as noted:
        prefill(model, tokens, cache, pads)
    residuals = [torch.cat(parts, 1) if parts else torch.empty(0) for parts in seen.values()]
    return Prefilled(tokens, pads, residuals, cache, any(noted), shared)
