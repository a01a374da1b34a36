"""The two runs of a pair, computed once: what they share, what each head wrote, and where a patched run starts.

Clean and corrupt are identical before the first position where they differ, so that prefix is read once for both. The rest
is one forward pass of two rows. A patched run then needs only the rows from there on, and only the blocks from the patched
layer up: all of them join one forward (`model.joining`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from lens_heads.answering.patch_metrics import Measure, judged, measure_of
from lens_heads.heads.geometry import HeadGeometry
from lens_heads.heads.head import Head
from lens_heads.interventions.replay import at_once
from lens_heads.model.forward import CHUNK, Cache, advance, fast_attention, noting_tuples, prefill, shares_prefix
from lens_heads.model.geometry import Model, head_geometry
from lens_heads.model.hooks import HookFunction, hooked, recording
from lens_heads.model.joining import joining
from lens_heads.model.modes import evaluating
from lens_heads.model.support import joins
from lens_heads.runs.memory import in_parts
from lens_heads.trials.pairs import Positions, TokenPair

CLEAN, CORRUPT = 0, 1

PairScore = tuple[Float[Tensor, "layer head"], dict[str, Any]]
"""The scores of one pair, and what to record with them."""

Z = "blocks.{}.attn.hook_z"
RESIDUAL = "blocks.{}.hook_resid_post"


@dataclass(frozen=True, eq=False)
class PairRuns:
    """Both runs of one pair: run 0 is clean, run 1 corrupt.

    `cache` holds the prompts up to the first row that was kept, `tokens` [run, row] what follows. `kept[name]` [run, row, ...]
    holds the activations at the requested hooks, `logits` [run, step, d_vocab] those of the answer rows. `tuples`: the model's
    blocks return tuples.
    """

    model: Model
    shape: HeadGeometry
    pair: TokenPair
    tokens: Int[Tensor, "run row"]
    cache: Cache
    kept: dict[str, Tensor]
    logits: Float[Tensor, "run step d_vocab"]
    tuples: bool

    def z(self, layer: int, run: int) -> Float[Tensor, "row head d_head"]:
        """What the heads of a layer pass to the output projection."""
        z = self.kept[Z.format(layer)][run]
        return self.shape.by_head(z[None], layer)[0]

    def swapped(self, z: Tensor, layer: int, heads: Sequence[Head], given: Float[Tensor, "#row head d_head"]) -> Tensor:
        """A layer's `z` where each variant has its head, if it is in this layer, as given."""
        rows = [row for row, head in enumerate(heads[: len(z)]) if head.layer == layer]
        places = [heads[row].head for row in rows]
        changed = self.shape.by_head(z, layer).clone()
        if rows:
            changed[rows, :, places] = given[:, places, : changed.shape[-1]].transpose(0, 1).to(changed)
        return changed.reshape(z.shape)

    def scores(
        self,
        metric: str | Measure,
        heads: Iterable[Head],
        patched: Callable[[list[Head]], Float[Tensor, "head step d_vocab"]],
        base: int = CORRUPT,
        most: int | None = None,
    ) -> PairScore:
        """How much patching each head changes the metric of the `base` run; positive: the head carries the answer.

        `patched` returns the answer logits of heads in ascending order of layers, patched side by side, `most` at a time
        (default: `replay.at_once`). All other heads score 0.
        """
        measure = measure_of(metric, self.pair, self.logits[CLEAN], self.logits[CORRUPT])
        clean, corrupt = judged(measure, self.logits, self.pair).tolist()
        values = self.shape.table()
        for some, found in self.measured(measure, patched, sorted(heads), most):
            effects = clean - found if base == CLEAN else found - corrupt
            values[[head.layer for head in some], [head.head for head in some]] = effects
        return values, {"clean": clean, "corrupt": corrupt}

    @torch.no_grad()
    def rerun(
        self, base: int, begins: Sequence[int], hooks: Iterable[tuple[str, HookFunction]], until: int | None = None
    ) -> Float[Tensor, "variant step d_vocab"]:
        """The answer logits of variants of one of the runs under hooks, each variant from its layer on (`joining`).

        `until`: stop below this layer, without logits.
        """
        start, end = self.pair.answer
        kept = [self.kept[name][base : base + 1] for name in self._residuals if name in self.kept]
        cache = self.cache.branch(base, len(begins)).joined(begins, 1)
        alike = cache if shares_prefix(self.model, self.tokens.shape[1]) else None
        with (
            evaluating(self.model),
            joining(self.model, begins, kept, self.tuples, until),
            hooked(self.model, hooks),
            fast_attention(self.model, alike),
        ):
            steps = end - start if until is None else 0
            return advance(self.model, self.tokens[base : base + 1], cache, logits=steps).float()

    def measured(
        self,
        measure: Measure,
        logits: Callable[[Any], Float[Tensor, "variant step d_vocab"]],
        variants: Sequence[Any],
        most: int | None = None,
    ) -> Iterator[tuple[Sequence[Any], Float[Tensor, " variant"]]]:
        """Variants and the metric of each, at most so many at a time (default: `replay.at_once`)."""
        limit = at_once(self.model, self.tokens.shape[1], len(self.pair), alike=True)
        most = most if most and joins(self.model) else limit
        return in_parts(lambda some: judged(measure, logits(some), self.pair).float().cpu(), variants, most)

    @property
    def _residuals(self) -> list[str]:
        return [RESIDUAL.format(layer) for layer in range(self.shape.n_layers)]


@torch.no_grad()
def run_pair(
    model: Model,
    pair: TokenPair,
    positions: Positions = "all",
    hooks: Sequence[str] = ("attn.hook_z", "hook_resid_post"),
    first: int | None = None,
) -> PairRuns:
    """Run both sides of a pair and keep every layer's activations at `hooks` (named as inside a block).

    "answer" keeps the rows that produce the answer; "all" keeps every row from the first difference between the runs on,
    or from row `first`.
    """
    start, end = pair.answer
    both = torch.stack([pair.clean, pair.corrupt])[:, : end - 1].to(model.W_U.device)
    by_default = pair.divergence if positions == "all" else start - 1
    first = by_default if first is None else first
    shared = min(pair.divergence, first)
    shape = head_geometry(model)
    layers = {hook: shape.attending if hook.startswith("attn.") else range(shape.n_layers) for hook in hooks}
    names = [f"blocks.{layer}.{hook}" for hook in hooks for layer in layers[hook]]
    rows, last = both[:, first:], both.shape[1]
    # Rows before the first that is kept join the forward of those, as far as a chunk has room for both.
    begin = min(first, max(shared, last - CHUNK))
    if shape.stateful:  # The states at that row are kept, so that a forward has to end there.
        begin = first
    with evaluating(model):
        alone = Cache(model, 1)
        alone.whole = last
        with fast_attention(model):
            prefill(model, both[:1, :shared], alone)
            after = alone.branch(0, 2)
            prefill(model, both[:, shared:begin], after)
            after.mark()
        kept_rows = partial(_last, rows.shape[1])
        with recording(model, names, kept_rows) as seen, fast_attention(model), noting_tuples(model) as noted:
            body = last - begin - (end - start) if last - begin > CHUNK else 0
            prefill(model, both[:, begin : begin + body], after)
            logits = advance(model, both[:, begin + body :], after, logits=end - start).float()
    cache = after.branch()
    cache.crop(first)
    kept = {name: torch.cat(parts, 1) for name, parts in seen.items()}
    return PairRuns(model, shape, pair, rows, cache, kept, logits, any(noted))


def _last(rows: int, x: Tensor) -> Tensor:
    """The last rows of all, without the memory of the others."""
    return x if x.shape[1] <= rows else x[:, -rows:].clone()
