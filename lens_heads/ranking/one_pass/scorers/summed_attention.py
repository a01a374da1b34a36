"""Summed attention: how much a head looks at the gold documents from the query, and nothing else"""

from jaxtyping import Float
from torch import Tensor

from lens_heads.ranking.one_pass.definition import Scorer
from lens_heads.ranking.one_pass.layer_view import DocumentView, document_sums


def summed_attention(view: DocumentView) -> Float[Tensor, " head"]:
    """Mean attention of the query rows, summed over the gold documents: `qr` without calibration and mask.

    Units: attention mass, 0 to 1. The simplest baseline for the query-focused scores.
    """
    return document_sums(view.attention, view.documents)[:, list(view.gold)].sum(-1)


SCORERS = (
    Scorer(
        "summed_attention", summed_attention, "query", False, "attention from the query, no contrast", signed=False,
        fails="heads that look everywhere score as well as heads that choose; long documents get more", unit="attention mass",
    ),
)  # fmt: skip
