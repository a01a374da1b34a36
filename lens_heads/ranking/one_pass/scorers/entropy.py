"""Entropy: how evenly a head attends"""

import torch
from jaxtyping import Float
from torch import Tensor

from lens_heads.ranking.one_pass.definition import Scorer
from lens_heads.ranking.one_pass.row_view import RowView


def entropy(view: RowView) -> Float[Tensor, "head row"]:
    """-sum_s A[t, s] ln A[t, s] / ln(t + 1): 1 is uniform attention to all earlier positions, 0 attention to one of them.

    A sliding window holds fewer positions than t + 1, so heads with one stay below 1.
    """
    return torch.special.entr(view.pattern).sum(-1) / torch.log(view.row_positions.clamp(min=1) + 1.0)


SCORERS = (
    Scorer(
        "entropy", entropy, probe="text", paper="entropy of attention, normalised", signed=False,
        unit="share of even attention", fails="the sink makes heads look sharp that choose nothing",
    ),
)  # fmt: skip
