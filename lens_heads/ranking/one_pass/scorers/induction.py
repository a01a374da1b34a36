"""Induction and echo: attention to what followed the same token earlier, and to that token   (RazorAttention; Olsson et al.)"""

from jaxtyping import Float
from torch import Tensor

from lens_heads.ranking.one_pass.definition import Scorer
from lens_heads.ranking.one_pass.row_view import RowView


def induction(view: RowView) -> Float[Tensor, "head row"]:
    """sum_m A[t, t - m block + 1]: attention to the tokens that followed the same token in the earlier copies; 0 to 1.

    Mean over the rows from the second copy on. On uniform attention a row at block position i scores floor(i / block) / (i + 2).
    """
    return view.to_copies(shift=1)


def echo(view: RowView) -> Float[Tensor, "head row"]:
    """sum_m A[t, t - m block]: attention to the same token in the earlier copies; 0 to 1, rows and mean as in `induction`."""
    return view.to_copies(shift=0)


SCORERS = (
    Scorer(
        "induction", induction, after_copy=1, probe="repeated", counted="repeats", paper="RazorAttention; Olsson et al.",
        fails="repeated random tokens: heads that match meaning do not show", signed=False, unit="attention mass",
    ),
    Scorer(
        "echo", echo, after_copy=0, probe="repeated", counted="repeats", paper="RazorAttention",
        fails="repeated random tokens: heads that match meaning do not show", signed=False, unit="attention mass",
    ),
)  # fmt: skip
