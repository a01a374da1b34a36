"""Duplicate-token heads: attention to earlier places of the same token   (Wang et al., arXiv 2211.00593)"""

from jaxtyping import Float
from torch import Tensor

from lens_heads.ranking.one_pass.definition import Scorer
from lens_heads.ranking.one_pass.row_view import RowView


def duplicate(view: RowView) -> Float[Tensor, "head row"]:
    """Sum of A[t, s] over s < t with the same token; 0 to 1. Mean over the rows whose token occurred before.

    On a repeated block of distinct tokens it equals `echo`; on a text it needs no repeated block.
    """
    return view.to_same_token


SCORERS = (
    Scorer(
        "duplicate", duplicate, after_copy=0, probe="text", counted="seen_before",
        paper="duplicate-token heads; Wang et al., arXiv 2211.00593", signed=False, unit="attention mass",
        fails="frequent tokens count most: heads that look at every comma score high",
    ),
)  # fmt: skip
