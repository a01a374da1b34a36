"""QRScore: does a head look at the documents that answer a query, because of the query?   (Zhang et al., EMNLP 2025)"""

import torch
from jaxtyping import Float
from torch import Tensor

from lens_heads.document_view import DocumentView, masked_sums


def qr(view: DocumentView) -> Float[Tensor, " head"]:
    """Calibrated attention to the gold documents: rule "gold_mass", summed over gold documents; mean over trials later.

    a[h, j] = mean over the query rows t of A[h, t, j];  c = a - a of the query "N/A";  score of a document = sum of c over its
    tokens but those at or below its mean - 2 unbiased standard deviations. Units: attention mass, may be negative.

    What the released code computes, not the printed formula, which has no mask and starts the query rows at the query.
    """
    return masked_sums(view.calibrated, view.documents)[:, list(view.gold)].sum(-1)


def qr_ndcg(view: DocumentView, k: int = 10) -> Float[Tensor, " head"]:
    """The same scores of all documents, judged as a ranking: rule "ndcg", NDCG@10 with the gold documents as relevant.

    The rule of the paper's BEIR experiments, whose documents are shuffled (`DocumentTrial.shuffled`), 400 words each. Units:
    0 to 1. Equal scores rank in the documents' order.
    """
    scores = masked_sums(view.calibrated, view.documents)
    relevant = torch.zeros_like(scores)
    relevant[:, list(view.gold)] = 1
    k = min(k, scores.shape[-1])
    order = scores.argsort(dim=-1, descending=True, stable=True)[:, :k]
    discount = 1 / torch.arange(2, k + 2, device=scores.device).float().log2()
    return (relevant.gather(-1, order) @ discount) / discount[: len(view.gold)].sum()
