"""Scores of documents: where does a head look from a query?

`qr` and `qr_ndcg` are QRScore (Zhang et al., EMNLP 2025), `core` is CoRe (contrastive retrieval heads).
"""

import torch
from jaxtyping import Float
from torch import Tensor

from lens_heads.scoring.view import DocumentView, document_sums, masked_sums


def qr(view: DocumentView) -> Float[Tensor, " head"]:
    """Calibrated attention summed over the gold documents (rule "gold_mass").

    a[h, j] = mean over the query rows t of A[h, t, j];  c = a - a of the query "N/A";  score of a document = sum of c over its
    tokens, without those at or below its mean - 2 unbiased standard deviations. Units: attention mass, may be negative.

    This follows the released code. The printed formula has no mask, and its query rows begin at the query.
    """
    return masked_sums(view.calibrated, view.documents)[:, list(view.gold)].sum(-1)


def qr_ndcg(view: DocumentView, k: int = 10) -> Float[Tensor, " head"]:
    """NDCG@10 of the ranking of all documents by the same scores, with the gold ones as relevant (rule "ndcg").

    The rule of the paper's BEIR experiments, with shuffled documents (`DocumentTrial.shuffled`) of 400 words each. Units: 0
    to 1. Ties share their ranks, as in scikit-learn's `ndcg_score`, so a sliding window that reaches no document scores like
    a random order.
    """
    scores = masked_sums(view.calibrated, view.documents)
    discount = 1 / torch.arange(2, scores.shape[-1] + 2, device=scores.device).float().log2()
    discount[k:] = 0
    above = torch.cat([discount.new_zeros(1), discount.cumsum(0)])
    better, equal = (
        compared(scores[:, None, :], scores[:, :, None]).sum(-1)[:, list(view.gold)]
        for compared in (torch.gt, torch.eq)
    )
    gains = (above[better + equal] - above[better]) / equal
    return gains.sum(-1) / above[len(view.gold)]


def core(view: DocumentView, tau: float = 0.01) -> Float[Tensor, " head"]:
    """Softmax over {gold document, the others} of S / tau at the gold one, mean over gold documents; S = summed attention.

    S[h, d] = sum over the document's tokens, without its number, of the mean attention of the query rows; no calibration, no
    mask. The others are the documents that are not gold (the method is meant for hard negatives), at least one. A head that
    does not distinguish documents scores 1 / (1 + others). Units: probability. Published temperatures range from .001 to .1.
    """
    sums = document_sums(view.attention, view.bodies) / tau
    gold = torch.zeros(sums.shape[-1], dtype=torch.bool, device=sums.device)
    gold[list(view.gold)] = True
    others = torch.logsumexp(sums.masked_fill(gold, -torch.inf), -1, keepdim=True)
    return torch.sigmoid(sums[:, gold] - others).mean(-1)


def summed_attention(view: DocumentView) -> Float[Tensor, " head"]:
    """Mean attention of the query rows, summed over the gold documents: `qr` without calibration and mask.

    Units: attention mass, 0 to 1. The simplest baseline for the query-focused scores.
    """
    return document_sums(view.attention, view.documents)[:, list(view.gold)].sum(-1)
