"""CoRe: does a head prefer the right document to the wrong ones?   (contrastive retrieval heads)"""

import torch
from jaxtyping import Float
from torch import Tensor

from lens_heads.scoring.document_view import DocumentView, document_sums


def core(view: DocumentView, tau: float = 0.01) -> Float[Tensor, " head"]:
    """Softmax over {gold document, the others} of S / tau at the gold one, mean over gold documents; S = attention summed.

    S[h, d] = sum over the document's tokens, its number left out, of the mean attention of the query rows; no calibration
    and no mask. The others are the documents that are not gold (the method wants hard negatives). A head that tells none
    apart scores 1 / (1 + others); without others there is nothing to compare. Units: probability. Published temperatures lie
    between .001 and .1.
    """
    sums = document_sums(view.attention, view.bodies) / tau
    gold = torch.zeros(sums.shape[-1], dtype=torch.bool, device=sums.device)
    gold[list(view.gold)] = True
    others = torch.logsumexp(sums.masked_fill(gold, -torch.inf), -1, keepdim=True)
    return torch.sigmoid(sums[:, gold] - others).mean(-1)
