"""Replay: a stored unablated prefill, from which ablated runs start at the lowest layer that they change.

Many of them join one forward (`model.joining`). A common beginning of several prompts (few-shot examples) runs once for all.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor

from lens_heads.interventions.spans import parts_of
from lens_heads.model.forward import (
    CHUNK,
    Cache,
    fast_attention,
    left_pad,
    noting_tuples,
    prefill,
    shares_prefix,
)
from lens_heads.model.geometry import Model
from lens_heads.model.hooks import recording
from lens_heads.model.joining import joining
from lens_heads.model.modes import evaluating
from lens_heads.model.rope import rotates_by_length
from lens_heads.model.support import joins
from lens_heads.trials.encoded import EncodedTrial

MOST_BYTES = 2**31
"""A prefill whose residual streams would take more memory than this is not kept."""
ROWS = {"cpu": 2048}
"""The most tokens of variants in one forward, by type of device: what a CPU's caches still hold. See `at_once`."""
PATTERN = 2**15
"""The most numbers of an attention pattern in one forward, for each of those tokens."""
SHORTEST = 16
"""The fewest shared tokens for which the beginning of prompts is run separately."""


@dataclass(frozen=True, eq=False)
class Prefilled:
    """A prefill of a batch of prompts without their last tokens: the cache, and the residual stream after every layer.

    `parts`: see `spans.parts_of`. `tuples`: the model's blocks return tuples. `shared`: the common beginning of all rows, as a
    batch of one; `tokens` and `residuals` are then those after it.
    """

    tokens: Int[Tensor, "batch position"]
    pads: Int[Tensor, " batch"]
    parts: dict[str, Int[Tensor, "batch 2"]]
    residuals: list[Float[Tensor, "batch position d_model"]]
    cache: Cache
    tuples: bool
    shared: Prefilled | None = None

    @property
    def bytes(self) -> int:
        """The approximate memory it takes: that of the residual streams, and as much again for the cache."""
        return 2 * sum(stream.numel() * stream.element_size() for stream in self.residuals)

    def replay(self, model: Model, begins: Sequence[int], chunk: int = CHUNK, beginning: Cache | None = None) -> Cache:
        """The cache that a prefill under the model's current hooks would give: one row per variant and prompt, variants first.

        `begins`: for each variant, in ascending order, the lowest layer that its hooks reach; see `joining`. `beginning`: the
        replay of `shared` under the same hooks, if there is one already.
        """
        lowest, prompts = min(begins), len(self.pads)
        if lowest >= len(self.residuals):
            cache = self.cache.branch()
            cache.complete(self.cache, len(begins))
            cache.assign(len(begins), prompts, self.parts)
            return cache
        if beginning is None and self.shared is not None:
            beginning = self.shared.replay(model, begins, chunk)
        cache = Cache(model, prompts) if beginning is None else beginning.each(prompts).joined(begins, prompts)
        cache.assign(len(begins), prompts, self.parts)
        before, length = len(cache), self.tokens.shape[1]
        for start in range(0, length, chunk):
            rows = slice(start, start + chunk)
            cache.borrow(self.cache, lowest, before + start)
            with joining(model, begins, [stream[:, rows] for stream in self.residuals], self.tuples):
                prefill(model, self.tokens[:, rows], cache, self.pads, chunk)
        cache.borrow(self.cache, lowest, before + length)
        cache.complete(self.cache, len(begins))
        return cache


def at_once(model: Model, rows: int, length: int | None = None, alike: bool = False) -> int:
    """How many variants join one forward, of `rows` tokens each, with keys and values of `length` tokens (default: as many).

    `alike`: those before the rows are the same for all, and shared where the model can (`fast_attention`), so that only the
    pattern grows with each. One on a model whose variants cannot join: a HookedTransformer, whose forward insists on a cache of
    as many rows as it is given, and code that reshapes by its own count of rows (MPT, GPT-BigCode).
    """
    if not joins(model):
        return 1
    most, rows = ROWS.get(model.W_U.device.type, 16384), max(1, rows)
    length = length or rows
    shared = alike and shares_prefix(model, rows)
    room = PATTERN * most // (rows * int(model.cfg.n_heads) * length) if shared else 8 * most // length
    return max(1, min(most // rows, room))


def together(trials: Sequence[EncodedTrial], batch_size: int) -> list[list[EncodedTrial]]:
    """Batches of trials of similar length; of equal length, if the trials share a beginning worth running once."""
    by_size = sorted(trials, key=len)
    same = len if _shared(by_size) else (lambda trial: 0)
    groups = [list(group) for _, group in itertools.groupby(by_size, key=same)]
    return [group[at : at + batch_size] for group in groups for at in range(0, len(group), batch_size)]


def shared_beginning(model: Model, trials: Sequence[EncodedTrial], apart: bool = False) -> Prefilled | None:
    """A prefill of the common beginning of all prompts; None if it is too short to pay, or `apart` (see `prefilled`)."""
    length = 0 if apart else _shared(trials)
    if not length:
        return None
    # The last token is not run: a needle that begins there or later is not in the beginning.
    needle = trials[0].needle and (min(trials[0].needle[0], length), min(trials[0].needle[1], length + 1))
    first = replace(
        trials[0], id="shared", tokens=trials[0].tokens[: length + 1], needle=needle, question=None, place=None
    )
    return prefilled(model, [first])


def _shared(trials: Sequence[EncodedTrial]) -> int:
    """Length of the prompts' common beginning, without their last tokens; 0 if running it separately is not worthwhile."""
    if len(trials) < 2:
        return 0
    shortest = min(len(trial) for trial in trials) - 1
    rows = torch.stack([trial.tokens[:shortest] for trial in trials])
    length = int((rows == rows[0]).all(0).long().cumprod(0).sum())
    if len({trial.needle for trial in trials}) > 1:  # A part of a prompt's own is no part of the beginning.
        length = min(length, *(trial.needle[0] for trial in trials if trial.needle is not None))
    return length if length >= max(SHORTEST, sum(map(len, trials)) / len(trials) / 2) else 0


@torch.no_grad()
def prefilled(
    model: Model, trials: Sequence[EncodedTrial], shared: Prefilled | None = None, apart: bool = False
) -> Prefilled | None:
    """A prefill of the prompts under the model's current hooks; None if keeping it would take too much memory.

    `shared`: a prefill of their common beginning, if there is one already; the prompts must then have equal lengths. By
    default it is made for prompts of equal length with a long common beginning. `apart`: not where each prompt has a span of its
    own, which may begin in what is common.
    """
    if rotates_by_length(model):  # What is kept of one length is not what a longer run would have made.
        return None
    if shared is None and not apart and len({len(trial) for trial in trials}) == 1:
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
    return Prefilled(tokens, pads, parts_of(trials), residuals, cache, any(noted), shared)
