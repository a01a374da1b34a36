"""What a head's attention pattern is like on plain text, in five numbers that mean the same in every model."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

STATISTICS = ("entropy", "distance", "sink", "previous", "induction")


def pattern_statistics(
    pattern: Float[Tensor, "head row key"], start: int, length: int
) -> Float[Tensor, "head statistic"]:
    """The statistics of one layer on a text that is read twice in a row.

    The text's `length` tokens stand at positions start, ... and once more right after; what precedes them (BOS) stands once.
    Means over rows, of t = 1 .. start + length - 1 (the first reading) but for induction; A is the pattern, all are 0 to 1:

        entropy     -sum_j A[t, j] ln A[t, j] / ln(t + 1): 1 is attention spread evenly
        distance    sum_j A[t, j] (t - j) / t: 0 is attention to the row itself, 1 to position 0
        sink        A[t, 0]
        previous    A[t, t - 1]
        induction   A[t, t - length + 1] in the second reading: the token after the same place of the first

    On a sliding-window layer keys out of reach count as keys with attention 0.
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
