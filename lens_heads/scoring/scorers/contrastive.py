"""Contrastive retrieval: does a head look at the needle more while the answer is written than at other steps?"""

import torch
from jaxtyping import Float
from torch import Tensor

from lens_heads.scoring.view import LayerView


def contrastive(view: LayerView, top_k: int = 10) -> Float[Tensor, " head"]:
    """max(mean over answer steps of m - mean over the other generated steps of m, 0).

    m is the share of the row's `top_k` most attended keys that lie in the needle, or the needle's attention mass with
    `top_k=0`. Without other steps their mean counts as 0.
    """
    mass = view.needle_sum(view.pattern) if top_k == 0 else _share_of_top(view, top_k)
    answer, other = mass[:, view.is_answer], mass[:, ~view.is_answer]
    elsewhere = other.mean(-1) if other.shape[-1] else torch.zeros_like(answer[:, 0])
    return (answer.mean(-1) - elsewhere).clamp(min=0)


def _share_of_top(view: LayerView, top_k: int) -> Float[Tensor, "head row"]:
    attention, keys = view.pattern.topk(min(top_k, view.pattern.shape[-1]), dim=-1)
    # A key out of sight has attention 0 and is not "attended", though a short row must list it to fill its top ten.
    inside = (keys >= view.needle[0]) & (keys < view.needle[1]) & (attention > 0)
    return inside.float().mean(-1)
