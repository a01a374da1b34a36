"""DocumentView: the input of a query-focused scorer, for one trial and one layer; and sums over documents."""

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
