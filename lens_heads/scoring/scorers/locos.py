"""LOCOS: does a head write the answer, and does it read it from the needle?   (Gema et al., arXiv 2607.01002)

Its baselines drop the contrast (`dla`), the OV circuit (`attention_spatial`), or both (`attention_mass`).
"""

from jaxtyping import Float
from torch import Tensor

from lens_heads.scoring.view import LayerView


def locos(view: LayerView) -> Float[Tensor, " head"]:
    """Needle-minus-elsewhere direct contribution of each head to the answer token's logit, mean over answer steps.

    phi[h, t, j] = A[h, t, j] * v[h, j] @ W_O[h] @ u_t;  score = sum over the needle - (len_needle / len_off) * sum elsewhere.
    Units: logits (of the raw unembedding direction unless the run says `exact`).
    Differs from the authors' code on sliding-window layers: positions here are absolute.
    """
    return view.spatial_contrast(view.phi).mean(-1)


def dla(view: LayerView) -> Float[Tensor, " head"]:
    """Sum over all positions of each head's contribution to the answer token's logit, mean over answer steps.

    sum_j phi[h, t, j] = z[h, t] @ W_O[h] @ u_t. Units: logits. This is LOCOS without the contrast; under `exact` the scores
    of all heads and the contributions of MLPs, embedding and biases sum to the logit.
    """
    return view.phi.sum(-1).mean(-1)


def attention_spatial(view: LayerView) -> Float[Tensor, " head"]:
    """Attention to the needle minus (len_needle / len_off) * attention elsewhere, mean over answer steps.

    Units: attention mass; 1 if all of it is on the needle, 0 if it is uniform.
    """
    return view.spatial_contrast(view.pattern).mean(-1)


def attention_mass(view: LayerView) -> Float[Tensor, " head"]:
    """Sum over the needle of the row's attention, mean over answer steps: sum_{j in needle} A[h, t, j].

    Units: attention mass, 0 to 1. The baseline without either part of LOCOS. Attention over all keys is 1 for every head, so
    this sums over the needle's keys only, unlike `dla`. For the same reason the contrast adds little: in one row,
    attention_spatial = (mass * keys - len_needle) / len_off, so both rank heads alike there, and differ only in how they
    weight rows of different lengths and needles.
    """
    return view.needle_sum(view.pattern).mean(-1)
