"""HeadGeometry: which heads a model has, and which tokens they may read."""

from __future__ import annotations

import weakref
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

from jaxtyping import Bool, Int
from torch import Tensor

from lens_heads.heads.head import AnyHeads, Head, parse_heads


@dataclass(frozen=True)
class HeadGeometry:
    """The dimensions and conventions of a model that matter for heads.

    `windows[layer]` is a layer's sliding window in tokens, None for full attention. `chunks[layer]`: rows attend inside
    their own chunk of so many tokens only (Llama 4), None for layers that are not chunked. `post_norm`: the attention
    output passes its own norm before it is added to the residual stream (Gemma 2/3, OLMo 2/3). `attn_softcap` and
    `logit_softcap` are the tanh caps on attention scores and logits, if any. `model`: a weak reference to the model it is of,
    by which scores of another one are told.

    `name`: the model's. `n_layers`, `n_heads` and `n_kv_heads` of a layer, `d_head`, `d_model`, `d_vocab`, and `n_ctx`, the
    context window. `qk_norm`: queries and keys are normalised. `final_norm`: the kind of the last norm.

    Example:
        >>> shape = lh.head_geometry(model)
        >>> shape.n_layers, shape.n_heads, shape.n_kv_heads, shape.final_norm
        (2, 4, 4, 'rms')
    """

    name: str
    n_layers: int
    n_heads: int
    n_kv_heads: int
    d_head: int
    d_model: int
    d_vocab: int
    n_ctx: int
    windows: tuple[int | None, ...]
    chunks: tuple[int | None, ...]
    post_norm: bool
    qk_norm: bool
    attn_softcap: float | None
    logit_softcap: float | None
    final_norm: Literal["rms", "layer"]
    model: weakref.ref[Any] | None = field(default=None, compare=False, repr=False)

    @cached_property
    def group(self) -> int:
        """Query heads per kv head: query head h reads kv head h // group."""
        return self.n_heads // self.n_kv_heads

    def reaches(
        self,
        layer: int,
        rows: Int[Tensor, "*row"],
        keys: Int[Tensor, "*key"],
        *,
        first: Int[Tensor, "*batch"] | int = 0,
    ) -> Bool[Tensor, "..."]:
        """Which keys a layer's rows may attend to, by absolute positions that broadcast: none after the row, outside the
        layer's window or chunk, or before `first`, where a row's text begins behind its padding."""
        seen = (keys <= rows) & (keys >= first)
        window, chunk = self.windows[layer], self.chunks[layer]
        if window is not None:
            seen = seen & (keys > rows - window)
        if chunk is not None:  # Counted from the text's first token, as transformers' mask does.
            seen = seen & ((keys - first) // chunk == (rows - first) // chunk)
        return seen

    def check_heads(self, heads: AnyHeads) -> list[Head]:
        """The query heads as a list. ValueError for a head that the model does not have, and for kv heads that several read."""
        found = parse_heads(heads)
        kv = next((head for head in found if head.unit == "kv_head"), None)
        if kv is not None and self.group > 1:
            raise ValueError(
                f"{kv} is a kv head, but query heads are expected: pass lens_heads.units.query_heads(heads, {self.group}), the "
                f"{self.group} query heads of {self.name} that read each kv head"
            )
        found = [Head(head.layer, head.head) for head in found]  # A kv head that one query head reads is that one.
        for head in found:
            if head.layer >= self.n_layers or head.head >= self.n_heads:
                raise ValueError(
                    f"head {head} does not exist: {self.name} has layers 0-{self.n_layers - 1} "
                    f"and heads 0-{self.n_heads - 1}"
                )
        return found

    def check_scores(self, scores: Any, what: str) -> None:
        """ValueError if scores (a HeadScores) belong to a model of another shape, or are of kv heads that several heads read."""
        if scores.unit == "kv_head" and self.group > 1:
            raise ValueError(
                f"{what} scores kv heads, but this needs scores of query heads: convert them with "
                f"lens_heads.units.to_query_heads(scores, {self.group})"
            )
        if (scores.n_layers, scores.n_heads) != (self.n_layers, self.n_heads):
            raise ValueError(
                f"{what} is for a model of {scores.n_layers} layers x {scores.n_heads} heads "
                f"({scores.model}), but {self.name} has {self.n_layers} x {self.n_heads}: "
                "score this model, or load the model the scores came from"
            )
