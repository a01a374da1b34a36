"""Retrieval score: how much of the needle a head copies, by where it looks   (Wu et al., arXiv 2404.15574)"""

import torch
from jaxtyping import Float
from torch import Tensor

from lens_heads.scoring.view import LayerView


def copy(view: LayerView) -> Float[Tensor, " head"]:
    """Copy hits over all generated steps, per needle token; can exceed 1.

    A step is a hit when the head's most attended key lies in the needle and holds the very token the step generates; a
    repeat of that token elsewhere is no hit. This is what the authors' published score files hold (their paper divides
    the number of *distinct* tokens copied instead).
    """
    start, end = view.needle
    looked_at = view.pattern.argmax(-1)
    inside = (looked_at >= start) & (looked_at < end)
    same = torch.eq(view.tokens[looked_at], view.next_tokens)
    return (inside & same).float().sum(-1) / (end - start)
