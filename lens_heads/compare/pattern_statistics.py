"""Five numbers that describe a head's attention pattern on plain text and mean the same in every model."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

STATISTICS = ("entropy", "distance", "sink", "previous", "induction")


def pattern_statistics(
    pattern: Float[Tensor, "head row key"], start: int, length: int
) -> Float[Tensor, "head statistic"]:
    """The statistics of one layer on a text that is read twice in a row.

    The text's `length` tokens begin at position `start` and repeat immediately; anything before them (BOS) occurs once. All
    statistics but induction are means over rows t = 1 .. start + length - 1 (the first reading). All lie between 0 and 1;
    A is the pattern:

        entropy     -sum_j A[t, j] ln A[t, j] / ln(t + 1): 1 is uniform attention
        distance    sum_j A[t, j] (t - j) / t: 0 is attention to the row itself, 1 to position 0
        sink        A[t, 0]
        previous    A[t, t - 1]
        induction   A[t, t - length + 1] in the second reading: the token that followed the first occurrence

    On a sliding-window layer, keys outside the window count as keys with attention 0.
    """
    once = start + length
    first = pattern[:, 1:once, :once]
    t = torch.arange(1, once, device=pattern.device)
    back = (t[:, None] - torch.arange(once, device=pattern.device)) / t[:, None]
    again = pattern[:, once : once + length - 1, start + 1 : once]
    per_row = (
        torch.special.entr(first).sum(-1) / torch.log(t + 1.0),
        (first * back).sum(-1),
        first[..., 0],
        first.diagonal(dim1=1, dim2=2),
        again.diagonal(dim1=1, dim2=2),
    )
    return torch.stack([values.mean(-1) for values in per_row], -1)
