"""HeadGeometry: which heads a model has, and which tokens they may read."""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from lens_heads.heads.head import AnyHeads, Head, Unit, parse_heads


@dataclass(frozen=True)
class LayerGeometry:
    """What the attention heads of one layer are; a layer of a hybrid model may have none.

    `n_heads`: query heads, 0 where the layer has no softmax attention. `n_kv_heads`: those whose keys and values they read.
    `d_head`: the width of a value. `window`: the sliding window in tokens, None for full attention. `chunk`: rows attend inside
    their own chunk of so many tokens only (Llama 4), None without. `mixer`: what else mixes tokens there, beside the heads
    (Falcon-H1) or in their place: "linear attention", "Mamba", "a convolution"; "" for nothing. `latent`: the values of all heads
    are made of one latent (MLA), so that there are no kv heads, and `n_kv_heads` is `n_heads`. `linear`: what the heads are where
    they are no heads of softmax attention, "gated delta rule" or "Mamba-2" (`load_model(linear_heads=True)`); "" for softmax.
    """

    n_heads: int
    n_kv_heads: int
    d_head: int
    window: int | None = None
    chunk: int | None = None
    mixer: str = ""
    latent: bool = False
    linear: str = ""

    @property
    def group(self) -> int:
        """Query heads per kv head: query head h reads kv head h // group."""
        return self.n_heads // self.n_kv_heads


@dataclass(frozen=True)
class HeadGeometry:
    """The dimensions and conventions of a model that matter for heads.

    `layers[layer]`: what the heads of a layer are. `post_norm`: the attention output passes its own norm before it is added to
    the residual stream (Gemma 2/3, OLMo 2/3). `attn_softcap` and `logit_softcap` are the tanh caps on attention scores and
    logits, if any. `model`: a weak reference to the model it is of, by which scores of another one are told.

    `name`: the model's. `d_model`, `d_vocab`, and `n_ctx`, the context window. `qk_norm`: queries and keys are normalised.
    `final_norm`: the kind of the last norm.

    Scores are tables of `n_layers` x `n_heads`, the number of heads of the widest layer, with NaN where a layer has no such
    head (`holes`).

    Example:
        >>> shape = lh.head_geometry(model)
        >>> shape.n_layers, shape.n_heads, shape.n_kv_heads, shape.final_norm
        (2, 4, 4, 'rms')
    """

    name: str
    layers: tuple[LayerGeometry, ...]
    d_model: int
    d_vocab: int
    n_ctx: int
    post_norm: bool
    qk_norm: bool
    attn_softcap: float | None
    logit_softcap: float | None
    final_norm: Literal["rms", "layer"]
    model: weakref.ref[Any] | None = field(default=None, compare=False, repr=False)

    @property
    def n_layers(self) -> int:
        return len(self.layers)

    @cached_property
    def n_heads(self) -> int:
        """Query heads of the widest layer."""
        return max(layer.n_heads for layer in self.layers)

    @cached_property
    def size(self) -> int:
        """The number of heads in all layers."""
        return sum(layer.n_heads for layer in self.layers)

    @cached_property
    def n_kv_heads(self) -> int:
        """Kv heads of the layer with the most."""
        return max(layer.n_kv_heads for layer in self.layers)

    @cached_property
    def d_head(self) -> int:
        """The width of what a head reads, in the layer where it is largest."""
        return max(layer.d_head for layer in self.layers)

    @property
    def windows(self) -> tuple[int | None, ...]:
        """Each layer's sliding window."""
        return tuple(layer.window for layer in self.layers)

    @property
    def chunks(self) -> tuple[int | None, ...]:
        """Each layer's chunk."""
        return tuple(layer.chunk for layer in self.layers)

    @cached_property
    def attending(self) -> tuple[int, ...]:
        """The layers that have heads."""
        return tuple(at for at, layer in enumerate(self.layers) if layer.n_heads)

    @cached_property
    def softmax(self) -> tuple[int, ...]:
        """The layers whose heads are those of softmax attention."""
        return tuple(at for at in self.attending if not self.layers[at].linear)

    @cached_property
    def linear(self) -> dict[str, list[int]]:
        """The layers of linear heads, by what these are."""
        found: dict[str, list[int]] = {}
        for at, layer in enumerate(self.layers):
            if layer.linear:
                found.setdefault(layer.linear, []).append(at)
        return found

    @property
    def stateful(self) -> bool:
        """Whether some layer keeps a state of all tokens so far, in place of keys and values."""
        return any(layer.mixer or layer.linear for layer in self.layers)

    @cached_property
    def group(self) -> int:
        """Query heads per kv head: query head h reads kv head h // group. ValueError where layers differ in it."""
        groups = sorted({self.layers[at].group for at in self.attending})
        if len(groups) > 1:
            raise ValueError(
                f"{self.name} has {' or '.join(map(str, groups))} query heads per kv head, by layer: use query heads"
            )
        return groups[0]

    def check_kv_heads(self, what: str) -> None:
        """ValueError, on behalf of what scores, keeps or removes kv heads, for a model that has none (MLA)."""
        if any(layer.latent for layer in self.layers):
            raise ValueError(
                f"{what} is about kv heads, and {self.name} has none: the values of all its heads are made of one latent: use "
                "what is about query heads"
            )

    @property
    def holes(self) -> Bool[Tensor, "layer head"]:
        """Places of the table of heads that are no head."""
        return self.holes_of("query_head")

    def holes_of(self, unit: Unit) -> Bool[Tensor, "layer head"]:
        """Places of the table of heads, or of kv heads, that are none."""
        counts = self._counts(unit)
        return torch.arange(max(counts)) >= torch.tensor(counts)[:, None]

    def _counts(self, unit: Unit) -> list[int]:
        return [layer.n_heads if unit == "query_head" else layer.n_kv_heads for layer in self.layers]

    def every_head(self, *, unit: Unit = "query_head") -> list[Head]:
        """All heads of the model, by layer, then head."""
        return [Head(layer, head, unit) for layer, n in enumerate(self._counts(unit)) for head in range(n)]

    def stacked(self, found: Mapping[int, Tensor], *, heads: int) -> Float[Tensor, "layer ..."]:
        """One tensor of what was found in each attending layer. Its axis `heads` (negative, from the end) is of heads, those
        after it are of their dimensions: zeros where a layer has fewer, or none."""
        sizes = [max(x.shape[axis] for x in found.values()) for axis in range(heads, 0)]
        first = next(iter(found.values()))
        full = first.new_zeros(self.n_layers, *first.shape[:heads], *sizes)
        for layer, x in found.items():
            full[layer][(..., *(slice(0, n) for n in x.shape[heads:]))] = x
        return full

    def table(self) -> Float[Tensor, "layer head"]:
        """Zeros, to be filled layer by layer; NaN where there is no head."""
        return self.with_holes(torch.zeros(self.n_layers, self.n_heads, dtype=torch.float32))

    def by_head(self, z: Tensor, layer: int) -> Float[Tensor, "... head d_head"]:
        """A layer's z [batch, row, ...] by head, in whatever form the model's projections have it."""
        return z.reshape(*z.shape[:2], self.layers[layer].n_heads, -1)

    def with_holes(
        self, scores: Float[Tensor, "... layer head"], *, unit: Unit = "query_head"
    ) -> Float[Tensor, "... layer head"]:
        """The scores with NaN where there is no head."""
        holes = self.holes_of(unit)
        return scores.masked_fill(holes.to(scores.device), torch.nan) if holes.any() else scores

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
            if head.head >= self.layers[head.layer].n_heads:
                raise ValueError(f"head {head} does not exist: {self.said(head.layer)}")
        return found

    def said(self, layer: int) -> str:
        """What a layer without heads, or with fewer than others, has."""
        one = self.layers[layer]
        if one.n_heads:
            return f"layer {layer} of {self.name} has heads 0-{one.n_heads - 1}"
        runs = ", ".join(map(str, self.attending))
        mixed = f"mixes tokens by {one.mixer}" if one.mixer else "mixes no tokens"
        return f"layer {layer} of {self.name} {mixed}, and has no attention heads; layers {runs} have some"

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
        if not torch.equal(scores.there, ~self.holes):
            raise ValueError(
                f"{what} has other heads than {self.name}: {self.size} of the table are there: score this model"
            )
