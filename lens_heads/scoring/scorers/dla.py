"""Direct logit attribution: what a head writes towards the answer, wherever it takes it from   (Elhage et al. 2021)"""

from jaxtyping import Float
from torch import Tensor

from lens_heads.scoring.view import LayerView


def dla(view: LayerView) -> Float[Tensor, " head"]:
    """Sum over all positions of each head's contribution to the answer token's logit, mean over answer steps.

    sum_j phi[h, t, j] = z[h, t] @ W_O[h] @ u_t. Units: logits. LOCOS without the contrast; under `exact` the scores of
    all heads, the MLPs, the embedding and the biases sum to the logit.
    """
    return view.phi.sum(-1).mean(-1)
