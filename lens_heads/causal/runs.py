"""The two runs of a pair, computed once: what they share, what each head wrote, and where a patched run starts.

Clean and corrupt are identical before the first position where they differ, so that prefix is read once for both. The rest
is one forward pass of two rows. A patched run then needs only the rows from there on, and only the blocks from the patched
layer up (`forward.resuming`).
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
"""Default limit on rows times heads in one patched forward pass, to bound memory."""

Z = "blocks.{}.attn.hook_z"
RESIDUAL = "blocks.{}.hook_resid_post"


@dataclass(frozen=True, eq=False)
class PairRuns:
    """Both runs of one pair: run 0 is clean, run 1 corrupt.

    `cache` holds the prompts up to the first row that was kept, `tokens` [run, row] what follows. `kept[name]` [run, row, ...]
    holds the activations at the requested hooks, `logits` [run, step, d_vocab] those of the answer rows. `tuples`: the model's
    blocks return tuples.
    """

    pair: TokenPair
    tokens: Int[Tensor, "run row"]
    cache: Cache
    kept: dict[str, Tensor]
    logits: Float[Tensor, "run step d_vocab"]
    tuples: bool

    def z(self, layer: int, run: int, heads: int) -> Float[Tensor, "row head d_head"]:
        """What the heads of a layer pass to the output projection."""
        z = self.kept[Z.format(layer)][run]
        return z.reshape(z.shape[0], heads, -1)

    def batches(self, heads: Sequence[int], size: int | None = None) -> list[list[int]]:
        """Heads in groups that run side by side, `size` at a time (default: as many as `TOKENS_PER_PASS` allows)."""
        size = size or max(1, TOKENS_PER_PASS // self.tokens.shape[1])
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

    "answer" keeps the rows that produce the answer; "all" keeps every row from the first difference between the runs on.
    """
    start, end = pair.answer
    both = torch.stack([pair.clean, pair.corrupt])[:, : end - 1].to(model.W_U.device)
    shared, first = pair.divergence, pair.divergence if positions == "all" else start - 1
    names = [f"blocks.{layer}.{hook}" for layer in range(model.cfg.n_layers) for hook in hooks]
    parts: dict[str, list[Tensor]] = {name: [] for name in names}
    keep: list[tuple[str, HookFunction]] = [
        (name, lambda x, hook, at=at: at.append(x.detach())) for name, at in parts.items()
    ]
    pads, rows = both.new_zeros(2), both[:, first:]
    with evaluating(model):
        alone = Cache(model, 1)
        with fast_attention(model):
            prefill(model, both[:1, :shared], alone, pads[:1])
            cache = alone.branch(0, 2)
            prefill(model, both[:, shared:first], cache, pads)
        after = cache.branch()
        with hooked(model, keep), fast_attention(model), noting_tuples(model) as noted:
            body = rows.shape[1] - (end - start) if rows.shape[1] > CHUNK else 0
            prefill(model, rows[:, :body], after, pads)
            logits = advance(model, rows[:, body:], after, pads, logits=end - start)
    assert logits is not None
    kept = {name: torch.cat(seen, 1) for name, seen in parts.items()}
    return PairRuns(pair, rows, cache, kept, logits.float(), any(noted))


@torch.no_grad()
def rerun(
    model: Model, runs: PairRuns, base: int, layer: int, times: int, hooks: Iterable[tuple[str, HookFunction]]
) -> Float[Tensor, "times step d_vocab"]:
    """The answer logits of one of the runs, `times` copies side by side, resumed at `layer` under hooks."""
    start, end = runs.pair.answer
    tokens = runs.tokens[base : base + 1].expand(times, -1)
    residual = runs.kept[RESIDUAL.format(layer - 1)][base] if layer else tokens  # Layer 0 resumes from nothing.
    with (
        evaluating(model),
        resuming(model, layer, residual.expand(times, *residual.shape), runs.tuples),
        hooked(model, hooks),
        fast_attention(model),
    ):
        logits = advance(model, tokens, runs.cache.branch(base, times), tokens.new_zeros(times), logits=end - start)
    assert logits is not None
    return logits.float()
