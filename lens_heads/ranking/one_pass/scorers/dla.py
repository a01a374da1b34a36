"""Direct logit attribution: what a head writes towards the answer, whatever its source   (Elhage et al. 2021)"""

from jaxtyping import Float
from torch import Tensor

from lens_heads.ranking.one_pass.definition import Scorer
from lens_heads.ranking.one_pass.layer_view import LayerView


def dla(view: LayerView) -> Float[Tensor, " head"]:
    """Sum over all positions of each head's contribution to the answer token's logit, mean over answer steps.

    sum_j phi[h, t, j] = z[h, t] @ W_O[h] @ u_t. Units: logits. This is LOCOS without the contrast; under `exact` the scores
    of all heads and the contributions of MLPs, embedding and biases sum to the logit.
    """
    return view.phi.sum(-1).mean(-1)


SCORERS = (
    Scorer(
        "dla", dla, "answer", True, "direct logit attribution; Elhage et al. 2021",
        reads=frozenset({"writes", "unembedding"}), reads_needle=False,
        fails="counts what a head writes from anywhere, whether or not the needle is read", label="DLA", unit="logits",
        marker=("#CC79A7", "diamond"),
    ),
    Scorer(
        "dla_exact", dla, paper="Elhage et al. 2021, through the norms", direction="exact",
        reads=frozenset({"writes", "unembedding"}), reads_needle=False,
        fails="counts what a head writes from anywhere, whether or not the needle is read", label="DLA, exact", unit="logits",
        marker=("#8C3F67", "diamond-open"),
    ),
)  # fmt: skip
