"""Spatial attention contrast: LOCOS without the OV circuit, its own ablation   (Gema et al., arXiv 2607.01002)"""

from jaxtyping import Float
from torch import Tensor

from lens_heads.scoring.view import LayerView


def attention_spatial(view: LayerView) -> Float[Tensor, " head"]:
    """Attention to the needle minus (len_needle / len_off) * attention elsewhere, mean over answer steps.

    Units: attention mass; 1 if all of it is on the needle, 0 if it is uniform.
    """
    return view.spatial_contrast(view.pattern).mean(-1)
