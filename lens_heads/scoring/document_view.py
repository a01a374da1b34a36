"""DocumentView: what a query-focused scorer may look at, for one trial and one layer; and sums over documents."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

Spans = Sequence[tuple[int, int]]


@dataclass(frozen=True)
class DocumentView:
    """One layer of one document trial; float32, on the model's device.

    `attention[h, j]` is the mean over the query rows (from "Please find" to the prompt's last token) of the attention to
    position j, `null` the same for the query "N/A", whose rows may be fewer or more. Both have the positions before the
    query rows, which the two prompts share; the softmax ran over all of them. `documents` are half-open spans from the
    document's number on, which is its first `tags[i]` tokens; `gold` are indices of documents.
    """

    layer: int
    attention: Float[Tensor, "head key"]
    null: Float[Tensor, "head key"]
    documents: tuple[tuple[int, int], ...]
    tags: tuple[int, ...]
    gold: tuple[int, ...]

    @property
    def calibrated(self) -> Float[Tensor, "head key"]:
        """Attention of the query minus that of the null query: what a head looks at for this query and not for any."""
        return self.attention - self.null

    @property
    def bodies(self) -> tuple[tuple[int, int], ...]:
        """The documents without their numbers; one that is nothing but its number keeps it."""
        return tuple(
            (min(start + tag, end - 1), end) for (start, end), tag in zip(self.documents, self.tags, strict=True)
        )


def document_sums(values: Float[Tensor, "... key"], spans: Spans) -> Float[Tensor, "... document"]:
    """Sum over each document's tokens."""
    return torch.stack([values[..., start:end].sum(-1) for start, end in spans], -1)


def masked_sums(values: Float[Tensor, "... key"], spans: Spans) -> Float[Tensor, "... document"]:
    """The same without a document's tokens at or below its own mean - 2 standard deviations (unbiased).

    The outliers below are separators and the like, which the null query attends to more. A document of one token, which has
    no standard deviation, keeps it.
    """
    sums = []
    for start, end in spans:
        inside = values[..., start:end]
        if end - start > 1:
            floor = inside.mean(-1, keepdim=True) - 2 * inside.std(-1, keepdim=True)
            inside = inside * (inside > floor)
        sums.append(inside.sum(-1))
    return torch.stack(sums, -1)
