"""Contrastive retrieval: does a head look at the needle more at answer steps than at other steps?"""

import torch
from jaxtyping import Float
from torch import Tensor

from lens_heads.ranking.one_pass.definition import Scorer
from lens_heads.ranking.one_pass.layer_view import LayerView
from lens_heads.runs import checks


def contrastive(view: LayerView, top_k: int = 10) -> Float[Tensor, " head"]:
    """max(mean over answer steps of m - mean over the other generated steps of m, 0).

    m is the share of the row's `top_k` most attended keys that are in the needle, or, with `top_k=0`, the needle's attention
    mass. Without other steps their mean is 0.
    """
    checks.whole_number("top_k", top_k, 0)
    mass = view.needle_sum(view.pattern) if top_k == 0 else _share_of_top(view, top_k)
    answer, other = mass[..., view.is_answer], mass[..., ~view.is_answer]
    elsewhere = other.mean(-1) if other.shape[-1] else torch.zeros_like(answer[..., 0])
    return (answer.mean(-1) - elsewhere).clamp(min=0)


def _share_of_top(view: LayerView, top_k: int) -> Float[Tensor, "*span head row"]:
    attention, keys = view.pattern.topk(min(top_k, view.pattern.shape[-1]), dim=-1)
    # Masked keys fill up the top k of short rows, but with attention 0 they do not count as attended.
    inside = view.in_needle(keys) & (attention > 0)
    return inside.float().mean(-1)


SCORERS = (
    Scorer(
        "contrastive", contrastive, "generated", True, "answer steps against other steps", signed=False,
        fails="zero for heads that look at the needle at every step", unit="share of most attended keys",
        marker=("#009E73", "cross"), reads=frozenset({"pattern"}),
    ),
)  # fmt: skip
