"""The inputs of scorers, for one trial and one layer: LayerView, and for documents DocumentView with sums over documents."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import TypeVar

import torch
from einops import einsum, rearrange
from jaxtyping import Bool, Float, Int
from torch import Tensor

Spans = Sequence[tuple[int, int]]


@dataclass(frozen=True)
class LayerView:
    """One layer of one trial at the rows a scorer asked for; float32, on the model's device.

    Row r is at absolute position `row_positions[r]` and produces `next_tokens[r]` (the generated token, or the gold
    answer's if teacher-forced). Keys are the absolute positions 0..key-1; those after a row, or outside a sliding window,
    have attention 0. `directions[r]` is the read-out of `next_tokens[r]` (`u`, None on "prompt" rows, which write no
    answer), `constant[r]` what a tuned lens's bias adds to each head, spread over positions as its attention is. `needle` is
    (start, end), as are the `distractors`, and `question`, which is None if unknown. `next_twins[r]` is the token that differs
    from `next_tokens[r]` only by the space before it, -1 if there is none (None on "prompt" rows). `gate` multiplies A v,
    number by number, before W_O (z = g * (A v): the gates of AFMoE and Laguna, BitNet's norm with its scale frozen); None
    where z = A v.
    """

    layer: int
    pattern: Float[Tensor, "head row key"]
    values: Float[Tensor, "kv_head key d_head"]
    z: Float[Tensor, "row head d_head"]
    W_O: Float[Tensor, "head d_head d_model"]
    u: Float[Tensor, "row d_model"] | None
    constant: Float[Tensor, " row"]
    tokens: Int[Tensor, " key"]
    next_tokens: Int[Tensor, " row"]
    row_positions: Int[Tensor, " row"]
    is_answer: Bool[Tensor, " row"]
    needle: tuple[int, int]
    question: tuple[int, int] | None = None
    next_twins: Int[Tensor, " row"] | None = None
    gate: Float[Tensor, "row head d_head"] | None = None
    distractors: tuple[tuple[int, int], ...] = ()

    @property
    def directions(self) -> Float[Tensor, "row d_model"]:
        """The read-out direction of each row's token. ValueError on "prompt" rows."""
        if self.u is None:
            raise ValueError(
                'prompt rows have no answer directions (and no phi): give the scorer rows="answer" or "generated"'
            )
        return self.u

    def rows(self, index: Int[Tensor, " chosen"]) -> LayerView:
        """The same view with only some of the rows."""
        by_row = ("z", "constant", "next_tokens", "row_positions", "is_answer", "u", "gate", "next_twins")
        held = {name: getattr(self, name) for name in by_row}
        chosen = {name: rows[index] for name, rows in held.items() if rows is not None}
        return replace(self, pattern=self.pattern[:, index], **chosen)

    def last(self, n: int) -> LayerView:
        """The same view with only the last n rows."""
        rows = len(self.row_positions)
        return self if rows <= n else self.rows(torch.arange(rows - n, rows, device=self.pattern.device))

    @cached_property
    def phi(self) -> Float[Tensor, "head row key"]:
        """Each position's direct contribution to the answer token's logit: A[h,t,j] * (g[t,h] * v[h,j]) @ W_O[h] @ u_t.

        A tuned lens adds A[h,t,j] * constant[t], so that a head whose attention sums to 1 gets the constant once. Computed on
        first use and shared by the scorers of a pass. The values that a group of heads shares are never repeated in memory.
        """
        reads = einsum(self.W_O, self.directions, "head e d, row d -> head row e")
        if self.gate is not None:
            reads = reads * self.gate.transpose(0, 1)
        grouped = rearrange(reads, "(kv group) row e -> kv group row e", kv=self.values.shape[0])
        logits = einsum(self.values, grouped, "kv key e, kv group row e -> kv group row key")
        logits = rearrange(logits, "kv group row key -> (kv group) row key")
        if self.constant.any():
            logits = logits + self.constant[:, None]
        return self.pattern * logits

    @cached_property
    def pattern_without_sink(self) -> Float[Tensor, "head row key"]:
        """A[h,t,j] / sum of A[h,t,i] over i > 0, and 0 at j = 0: the attention that leaves the first position out.

        A row with nothing outside the first position stays 0. One whose sliding window no longer reaches it is unchanged.
        """
        kept = self.pattern.clone()
        kept[..., 0] = 0
        whole = kept.sum(-1, keepdim=True)
        return kept / torch.where(whole > 0, whole, 1)

    def in_needle(self, keys: Int[Tensor, "head row *key"]) -> Bool[Tensor, "*span head row *key"]:
        """Whether positions lie in the needle."""
        return (keys >= self.needle[0]) & (keys < self.needle[1])

    def says_next(self, keys: Int[Tensor, "*any row"]) -> Bool[Tensor, "*any row"]:
        """Whether positions hold the token that the row produces, or the one that differs from it only by the space before it.

        An answer that begins a chat turn has no space, and its words in the text have.
        """
        held = self.tokens[keys]
        same = held == self.next_tokens
        return same if self.next_twins is None else same | (held == self.next_twins)

    def needle_sum(self, values: Float[Tensor, "head row key"]) -> Float[Tensor, "*span head row"]:
        """Sum over the needle's positions."""
        return values[..., self.needle[0] : self.needle[1]].sum(-1)

    def spatial_contrast(
        self, values: Float[Tensor, "head row key"], sink: bool = True
    ) -> Float[Tensor, "*span head row"]:
        """Sum over the needle minus (needle length / other keys) * sum over the other keys of each row.

        With `sink=False` the first position, where the values must be 0, belongs to neither: a needle that begins there is
        one token shorter. A needle that is everything else is compared with nothing.
        """
        first = 0 if sink else 1
        inside = self.needle_sum(values)
        length = self.needle[1] - max(self.needle[0], first)
        others = (self.row_positions + 1 - first - length).clamp(min=1)
        return inside - (length / others) * (values.sum(-1) - inside)

    def at(self, span: tuple[int, int]) -> LayerView:
        """The same rows with another span as the needle; what was computed of all positions is kept."""
        view = LayerView(**{**{one.name: getattr(self, one.name) for one in fields(LayerView)}, "needle": span})
        vars(view).update({name: vars(self)[name] for name in ("phi", "pattern_without_sink") if name in vars(self)})
        return view

    def across(self, spans: Int[Tensor, "span 2"]) -> SpansView:
        """The same rows with each of several spans of one length as the needle; `phi` is kept if it was computed.

        ValueError for spans of several lengths, or one that begins at the first position.
        """
        lengths = (spans[:, 1] - spans[:, 0]).unique()
        if len(lengths) != 1 or int(spans[:, 0].min()) < 1:
            raise ValueError(f"spans {spans.tolist()}: must have one length, and begin after the first position")
        needle = (int(spans[0, 0]), int(spans[0, 1]))
        view = SpansView(
            **{**{one.name: getattr(self, one.name) for one in fields(self)}, "needle": needle}, spans=spans
        )
        vars(view).update({name: held for name, held in vars(self).items() if name not in vars(view)})
        return view


@dataclass(frozen=True)
class SpansView(LayerView):
    """A LayerView with several spans in place of the needle, all at once: sums over the needle have an axis of spans first.

    `spans` are of the length of `needle`, which is the first of them, and none begins at the first position.
    """

    spans: Int[Tensor, "span 2"] = field(kw_only=True)

    @cached_property
    def _inside(self) -> Float[Tensor, "key span"]:
        keys = torch.arange(self.pattern.shape[-1], device=self.pattern.device)[:, None]
        return ((keys >= self.spans[:, 0]) & (keys < self.spans[:, 1])).to(self.pattern)

    def in_needle(self, keys: Int[Tensor, "head row *key"]) -> Bool[Tensor, "span head row *key"]:
        """Whether positions lie in each span."""
        starts, ends = self.spans.T.reshape(2, -1, *[1] * keys.ndim)
        return (keys >= starts) & (keys < ends)

    def needle_sum(self, values: Float[Tensor, "head row key"]) -> Float[Tensor, "span head row"]:
        """Sum over each span's positions."""
        return einsum(values, self._inside, "head row key, key span -> span head row")


@dataclass(frozen=True)
class DocumentView:
    """One layer of one document trial; float32, on the model's device.

    `attention[h, j]` is the mean over the query rows (from "Please find" to the prompt's last token) of the attention to
    position j, `null` the same for the query "N/A", which may have a different number of rows. Both cover the positions
    before the query rows, which the two prompts share; the softmax ran over all positions. `documents` are half-open spans
    that begin with the document's number, its first `tags[i]` tokens; `gold` are indices of documents.
    """

    layer: int
    attention: Float[Tensor, "head key"]
    null: Float[Tensor, "head key"]
    documents: tuple[tuple[int, int], ...]
    tags: tuple[int, ...]
    gold: tuple[int, ...]

    @property
    def calibrated(self) -> Float[Tensor, "head key"]:
        """Attention of the query minus that of the null query: where a head looks for this query rather than any other."""
        return self.attention - self.null

    @property
    def bodies(self) -> tuple[tuple[int, int], ...]:
        """The spans without the documents' numbers; one that is nothing but its number keeps the last token."""
        return tuple(
            (min(start + tag, end - 1), end) for (start, end), tag in zip(self.documents, self.tags, strict=True)
        )


View = TypeVar("View", bound=LayerView | DocumentView)


def copied(view: View) -> View:
    """A copy that may be changed in place."""
    tensors = {name: held.clone() for name, held in vars(view).items() if isinstance(held, Tensor)}
    changeable = copy(view)
    vars(changeable).update(tensors)
    return changeable


def document_sums(values: Float[Tensor, "... key"], spans: Spans) -> Float[Tensor, "... document"]:
    """Sum over each document's tokens."""
    return torch.stack([values[..., start:end].sum(-1) for start, end in spans], -1)


def masked_sums(values: Float[Tensor, "... key"], spans: Spans) -> Float[Tensor, "... document"]:
    """The same without a document's tokens at or below its own mean - 2 standard deviations (unbiased).

    These low outliers are separators and the like, which the null query attends to more. A single token, which has no
    standard deviation, is kept.
    """
    sums = []
    for start, end in spans:
        inside = values[..., start:end]
        if end - start > 1:
            floor = inside.mean(-1, keepdim=True) - 2 * inside.std(-1, keepdim=True)
            inside = inside * (inside > floor)
        sums.append(inside.sum(-1))
    return torch.stack(sums, -1)
