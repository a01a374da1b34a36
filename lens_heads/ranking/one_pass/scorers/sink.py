"""Sink: attention to the first position   (Xiao et al., arXiv 2309.17453)"""

from jaxtyping import Float
from torch import Tensor

from lens_heads.ranking.one_pass.definition import Scorer
from lens_heads.ranking.one_pass.row_view import RowView


def sink(view: RowView) -> Float[Tensor, "head row"]:
    """A[t, 0]; 0 to 1. A sliding window that no longer reaches the first position gives 0."""
    return view.pattern[..., 0]


SCORERS = (
    Scorer(
        "sink", sink, probe="text", paper="attention sinks; Xiao et al., arXiv 2309.17453", signed=False,
        unit="attention mass", fails="zero in layers whose window does not reach the first position",
    ),
)  # fmt: skip
