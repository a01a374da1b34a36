"""Attention mass: how much a head looks at the needle while the answer is written, and nothing else"""

from jaxtyping import Float
from torch import Tensor

from lens_heads.scoring.view import LayerView


def attention_mass(view: LayerView) -> Float[Tensor, " head"]:
    """Sum over the needle of the row's attention, mean over answer steps: sum_{j in needle} A[h, t, j].

    Units: attention mass, 0 to 1. The baseline without either part of LOCOS. Attention over all keys is 1 for every head, so
    this sums over the needle's keys only, unlike `dla`. For the same reason the contrast adds little: in one row,
    attention_spatial = (mass * keys - len_needle) / len_off, so both rank heads alike there, and differ only in how they
    weight rows of different lengths and needles.
    """
    return view.needle_sum(view.pattern).mean(-1)
