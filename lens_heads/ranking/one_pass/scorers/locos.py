"""LOCOS: does a head write the answer, and does it read it from the needle?   (Gema et al., arXiv 2607.01002)"""

from jaxtyping import Float
from torch import Tensor

from lens_heads.ranking.one_pass.definition import PHI, Scorer
from lens_heads.ranking.one_pass.layer_view import LayerView


def locos(view: LayerView) -> Float[Tensor, " head"]:
    """Needle-minus-elsewhere direct contribution of each head to the answer token's logit, mean over answer steps.

    phi[h, t, j] = A[h, t, j] * v[h, j] @ W_O[h] @ u_t;  score = sum over the needle - (len_needle / len_off) * sum elsewhere.
    Units: logits (of the raw unembedding direction unless the run says `exact`).
    Differs from the authors' code on sliding-window layers: positions here are absolute.
    """
    return view.spatial_contrast(view.phi).mean(-1)


SCORERS = (
    Scorer(
        "locos", locos, "answer", True, "Gema et al., arXiv 2607.01002",
        fails="credits a head with the token it names; heads that say that an answer follows write other tokens",
        label="LOCOS", unit="logits", marker=("#0072B2", "circle"), reads=frozenset(PHI),
    ),
    Scorer(
        "locos_exact", locos, "answer", True, "LOCOS through the norms, arXiv 2607.01002", direction="exact",
        fails="as locos; norms are frozen at their values, which ablation would change", label="LOCOS, exact", unit="logits",
        marker=("#003F66", "circle-open"), reads=frozenset(PHI),
    ),
)  # fmt: skip
