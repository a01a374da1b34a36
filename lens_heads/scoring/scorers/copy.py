"""Retrieval score: how much of the needle a head copies, by where it looks   (Wu et al., arXiv 2404.15574)"""

import torch
from jaxtyping import Float
from torch import Tensor

from lens_heads.scoring.view import LayerView


def copy(view: LayerView) -> Float[Tensor, " head"]:
    """Copy hits over all generated steps, per needle token; can exceed 1.

    A step is a hit if the head's most attended key is in the needle and is the token that the step generates; the same
    token elsewhere is not a hit. This is what the authors' published score files contain (their paper divides the number of
    *distinct* copied tokens instead).
    """
    start, end = view.needle
    looked_at = view.pattern.argmax(-1)
    same = torch.eq(view.tokens[looked_at], view.next_tokens)
    return (view.in_needle(looked_at) & same).float().sum(-1) / (end - start)
