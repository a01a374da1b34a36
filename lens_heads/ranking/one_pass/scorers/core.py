"""CoRe: does a head prefer the gold document to the others?   (contrastive retrieval heads)"""

import torch
from jaxtyping import Float
from torch import Tensor

from lens_heads.ranking.one_pass.definition import Scorer
from lens_heads.ranking.one_pass.layer_view import DocumentView, document_sums
from lens_heads.runs import checks


def core(view: DocumentView, tau: float = 0.01) -> Float[Tensor, " head"]:
    """Softmax over {gold document, the others} of S / tau at the gold one, mean over gold documents; S = summed attention.

    S[h, d] = sum over the document's tokens, without its number, of the mean attention of the query rows; no calibration, no
    mask. The others are the documents that are not gold (the method is meant for hard negatives), at least one. A head that
    does not distinguish documents scores 1 / (1 + others). Units: probability. Published temperatures range from .001 to .1.
    """
    if not checks.finite("tau", tau) > 0:
        raise ValueError(f"tau={tau}: must be positive, e.g. 0.01")
    sums = document_sums(view.attention, view.bodies) / tau
    gold = torch.zeros(sums.shape[-1], dtype=torch.bool, device=sums.device)
    gold[list(view.gold)] = True
    others = torch.logsumexp(sums.masked_fill(gold, -torch.inf), -1, keepdim=True)
    return torch.sigmoid(sums[:, gold] - others).mean(-1)


SCORERS = (
    Scorer(
        "core", core, "query", False, "CoRe, contrastive retrieval heads", signed=False, contrastive=True,
        fails="the temperature decides: far below a head's attention, the best document takes all", unit="probability",
    ),
)  # fmt: skip
