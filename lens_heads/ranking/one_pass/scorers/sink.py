"""Sinks: attention to the first position, and to no position at all   (Xiao et al., arXiv 2309.17453)"""

from jaxtyping import Float
from torch import Tensor

from lens_heads.ranking.one_pass.definition import Scorer
from lens_heads.ranking.one_pass.row_view import RowView


def sink(view: RowView) -> Float[Tensor, "head row"]:
    """A[t, 0]; 0 to 1. A sliding window that no longer reaches the first position gives 0."""
    return view.pattern[..., 0]


def learned_sink(view: RowView) -> Float[Tensor, "head row"]:
    """1 - sum_s A[t, s]; 0 to 1: what a learned sink takes, a logit of the softmax that stands for no token (gpt-oss)."""
    return 1 - view.pattern.sum(-1)


SCORERS = (
    Scorer(
        "sink", sink, probe="text", paper="attention sinks; Xiao et al., arXiv 2309.17453", signed=False,
        unit="attention mass", fails="zero in layers whose window does not reach the first position",
    ),
    Scorer(
        "learned_sink", learned_sink, probe="text", paper="learned sinks; gpt-oss, arXiv 2508.10925", signed=False,
        only_named=True, unit="share of the softmax", fails="zero, but for rounding, in models without learned sinks",
    ),
)  # fmt: skip
