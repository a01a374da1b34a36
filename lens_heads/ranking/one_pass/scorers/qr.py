"""QRScore: does a head look at the documents that answer a query, because of the query?   (Zhang et al., EMNLP 2025)"""

import torch
from jaxtyping import Float
from torch import Tensor

from lens_heads.ranking.one_pass.definition import Scorer
from lens_heads.ranking.one_pass.layer_view import DocumentView, masked_sums
from lens_heads.runs import checks


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
    discount[checks.whole_number("k", k) :] = 0
    above = torch.cat([discount.new_zeros(1), discount.cumsum(0)])
    better, equal = (
        compared(scores[:, None, :], scores[:, :, None]).sum(-1)[:, list(view.gold)]
        for compared in (torch.gt, torch.eq)
    )
    gains = (above[better + equal] - above[better]) / equal
    return gains.sum(-1) / above[len(view.gold)]


SCORERS = (
    Scorer(
        "qr", qr, "query", False, "QRScore; Zhang et al., EMNLP 2025", rule="gold_mass", label="QRScore",
        fails="leaves out what a head gives whatever the query: one that always looks at the documents scores low",
        unit="attention mass",
    ),
    Scorer(
        "qr_ndcg", qr_ndcg, "query", False, "QRScore; Zhang et al., EMNLP 2025", signed=False, rule="ndcg",
        fails="needs many documents: of few, any order is a good one", unit="NDCG",
    ),
)  # fmt: skip
