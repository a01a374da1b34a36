"""Previous-token heads: attention to the token before   (Olsson et al. 2022)"""

from jaxtyping import Float
from torch import Tensor

from lens_heads.ranking.one_pass.definition import Scorer
from lens_heads.ranking.one_pass.row_view import RowView


def previous(view: RowView) -> Float[Tensor, "head row"]:
    """A[t, t - 1]; 0 to 1. Mean over the counted rows of the text."""
    return view.back(1)


SCORERS = (
    Scorer(
        "previous", previous, probe="text", paper="previous-token heads; Olsson et al. 2022", signed=False,
        unit="attention mass", fails="says where a head looks, not what it does with it",
    ),
)  # fmt: skip
