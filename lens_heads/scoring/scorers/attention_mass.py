"""Attention mass: how much a head looks at the needle while the answer is written, and nothing else"""

from jaxtyping import Float
from torch import Tensor

from lens_heads.scoring.view import LayerView


def attention_mass(view: LayerView) -> Float[Tensor, " head"]:
    """Sum over the needle of the row's attention, mean over answer steps: sum_{j in needle} A[h, t, j].

    Units: attention mass, 0 to 1. The corner of a square of methods that has neither part of LOCOS: `attention_spatial`
    adds the contrast with the other keys, `dla` has the OV part without the contrast, `locos` has both. Two cautions. `dla`
    sums over all keys, this over the needle's, since attention over all keys is 1 for every head. And for that reason the
    contrast adds little to attention: spatial = (mass * keys - len_needle) / len_off in a row, so that the two rank heads
    alike in any one row, and differ only by how rows of other lengths and needles are weighted.
    """
    return view.needle_sum(view.pattern).mean(-1)
