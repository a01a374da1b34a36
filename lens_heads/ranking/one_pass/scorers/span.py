"""Span: how far back a head looks on average   (local and global heads; Attention Illuminates)"""

import torch
from jaxtyping import Float
from torch import Tensor

from lens_heads.ranking.one_pass.definition import Scorer
from lens_heads.ranking.one_pass.row_view import RowView


def span(view: RowView) -> Float[Tensor, "head row"]:
    """Mean distance sum_s B[t, s] (t - s) / t, B = the attention outside the first position, renormalised; 0 to 1.

    Ours differs from the paper's `span_tokens` in two ways: it leaves out the sink, which makes idle heads look global, and is
    relative to the row's position, so that texts of different lengths compare. A row with nothing but the sink scores 0.
    """
    kept = view.pattern[..., 1:]
    mass = kept.sum(-1)
    distance = (kept * view.distances[:, 1:]).sum(-1) / view.row_positions.clamp(min=1)
    return torch.where(mass > 0, distance / torch.where(mass > 0, mass, 1), 0)


def span_tokens(view: RowView) -> Float[Tensor, "head row"]:
    """sum_s A[t, s] (t - s), in tokens, as in the paper. On uniform attention a row at position t scores t / 2."""
    return (view.pattern * view.distances).sum(-1)


SCORERS = (
    Scorer(
        "span", span, probe="text", paper="local and global heads, relative to the row's position", signed=False,
        unit="share of the text before",
        fails="a mean: a head that looks at both ends looks like one that looks at the middle",
    ),
    Scorer(
        "span_tokens", span_tokens, probe="text", paper="Attention Illuminates", signed=False, unit="tokens",
        fails="takes the sink for the distant past; grows with the text",
    ),
)  # fmt: skip
