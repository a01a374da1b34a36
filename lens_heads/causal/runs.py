"""The two runs of a pair, computed once: what they share, what each head wrote, and where a patched run takes off.

Before the first position at which clean and corrupt differ nothing can differ, so that part is read once for both; the
rest is one forward of the two rows. A patched run then needs only the rows from there on, and only the blocks from the
patched layer up (`forward.resuming`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from lens_heads.causal.pairs import TokenPair
from lens_heads.model.forward import CHUNK, Cache, advance, fast_attention, noting_tuples, prefill, resuming
from lens_heads.model.geometry import Model
from lens_heads.model.hooks import HookFunction, hooked
from lens_heads.model.modes import evaluating

Positions = Literal["answer", "all"]
CLEAN, CORRUPT = 0, 1

TOKENS_PER_PASS = 8192
"""Rows times heads of one patched forward, unless the caller says otherwise: more would take much memory."""

Z = "blocks.{}.attn.hook_z"
RESIDUAL = "blocks.{}.hook_resid_post"


@dataclass(frozen=True, eq=False)
class PairRuns:
    """Clean and corrupt run of one pair from position `first` on; run 0 is the clean one, run 1 the corrupt one.

    `kept[name]` [run, row, ...] are the activations at the hooks asked for, `logits` [run, step, d_vocab] those of the
    answer rows, `cache` holds both prompts up to `first`, `tokens` [run, row] what comes after it. `tuples`: the model's
    blocks hand on tuples.
    """

    pair: TokenPair
    first: int
    tokens: Int[Tensor, "run row"]
    cache: Cache
    kept: dict[str, Tensor]
    logits: Float[Tensor, "run step d_vocab"]
    tuples: bool

    def z(self, layer: int, run: int, heads: int) -> Float[Tensor, "row head d_head"]:
        """What the heads of a layer handed to the output projection."""
        z = self.kept[Z.format(layer)][run]
        return z.reshape(z.shape[0], heads, -1)


def batched(heads: Sequence[int], size: int) -> list[list[int]]:
    """Heads in groups that are run side by side."""
    return [list(heads[start : start + size]) for start in range(0, len(heads), size)]


def check_positions(positions: str) -> None:
    """ValueError for anything but "answer" and "all"."""
    if positions not in ("answer", "all"):
        raise ValueError(f"positions={positions!r}: use 'answer' (the rows that produce the answer) or 'all'")


@torch.no_grad()
def run_pair(
    model: Model,
    pair: TokenPair,
    positions: Positions = "all",
    hooks: Sequence[str] = ("attn.hook_z", "hook_resid_post"),
) -> PairRuns:
    """Run both sides of a pair and keep every layer's activations at `hooks` (named as inside a block).

    With `positions="answer"` they are kept for the rows that produce the answer, with "all" from the first position on
    at which the runs differ: before it they are the same.
    """
    start, end = pair.answer
    both = torch.stack([pair.clean, pair.corrupt])[:, : end - 1].to(model.W_U.device)
    shared, first = pair.divergence, pair.divergence if positions == "all" else start - 1
    parts: dict[str, list[Tensor]] = {
        f"blocks.{layer}.{hook}": [] for layer in range(model.cfg.n_layers) for hook in hooks
    }
    keep: list[tuple[str, HookFunction]] = [
        (name, lambda x, hook, at=at: at.append(x.detach())) for name, at in parts.items()
    ]
    pads = both.new_zeros(2)
    with evaluating(model):
        alone = Cache(model, 1)
        with fast_attention(model):
            prefill(model, both[:1, :shared], alone, pads[:1])
            cache = alone.branch(0, 2)
            prefill(model, both[:, shared:first], cache, pads)
        after = cache.branch()
        with hooked(model, keep), fast_attention(model), noting_tuples(model) as noted:
            rows = both[:, first:]
            body = rows.shape[1] - (end - start) if rows.shape[1] > CHUNK else 0
            prefill(model, rows[:, :body], after, pads)
            logits = advance(model, rows[:, body:], after, pads, logits=end - start)
    assert logits is not None
    kept = {name: torch.cat(seen, 1) for name, seen in parts.items()}
    return PairRuns(pair, first, rows, cache, kept, logits.float(), any(noted))


@torch.no_grad()
def rerun(
    model: Model, runs: PairRuns, base: int, layer: int, times: int, hooks: Iterable[tuple[str, HookFunction]]
) -> Float[Tensor, "times step d_vocab"]:
    """The answer rows' logits of one of the runs, `times` over side by side, from `layer` on and under hooks."""
    start, end = runs.pair.answer
    tokens = runs.tokens[base : base + 1].expand(times, -1)
    residual = runs.kept[RESIDUAL.format(layer - 1)][base] if layer else tokens  # Nothing to resume from below.
    with (
        evaluating(model),
        resuming(model, layer, residual.expand(times, *residual.shape), runs.tuples),
        hooked(model, hooks),
        fast_attention(model),
    ):
        logits = advance(model, tokens, runs.cache.branch(base, times), tokens.new_zeros(times), logits=end - start)
    assert logits is not None
    return logits.float()
