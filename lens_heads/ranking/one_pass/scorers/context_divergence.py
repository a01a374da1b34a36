"""Context divergence: how different is what a head writes without the context?   (VHD, arXiv 2412.13949, for text)"""

import torch
from jaxtyping import Float
from torch import Tensor

from lens_heads.ranking.one_pass.definition import Scorer
from lens_heads.ranking.one_pass.pair_view import PairView


def context_divergence(view: PairView) -> Float[Tensor, " head"]:
    """Mean over answer rows of |w[t | context] - w[t | without]|, w = z W_O, before any post-attention norm.

    Writes grow with depth, so compare layers by `context_divergence_relative`. A prompt without its context is shorter, which
    moves positions; compare with a probe whose context is replaced by filler.
    """
    return view.difference.mean(0)


def context_divergence_relative(view: PairView) -> Float[Tensor, " head"]:
    """The same divided by the mean of both norms, row by row; 0 to 2. ValueError for a head that writes nothing in either run."""
    size = (view.norm + view.other_norm) / 2
    silent = (size <= 1e-12).nonzero()
    if len(silent):
        row, head = silent[0].tolist()
        raise ValueError(
            f"context_divergence_relative: L{view.layer}H{head} writes nothing at answer row {row} in either run, so the ratio "
            "is not defined: use context_divergence"
        )
    return (view.difference / size).mean(0)


def context_divergence_cosine(view: PairView) -> Float[Tensor, " head"]:
    """Mean over answer rows of 1 - cos(w[t | context], w[t | without]); 0 to 2. A head that writes nothing scores 1."""
    return (1 - torch.cosine_similarity(view.writes, view.other_writes, dim=-1)).mean(0)


SCORERS = (
    Scorer(
        "context_divergence", context_divergence, probe="pair", paper="VHD, arXiv 2412.13949", signed=False,
        fails="any change of what a head writes counts, whatever it is for", unit="length in the residual stream",
    ),
    Scorer(
        "context_divergence_relative", context_divergence_relative, probe="pair", paper="VHD, arXiv 2412.13949", signed=False,
        unit="ratio", fails="as context_divergence; heads that write next to nothing score high",
    ),
    Scorer(
        "context_divergence_cosine", context_divergence_cosine, probe="pair", paper="VHD, arXiv 2412.13949", signed=False,
        unit="1 − cosine", fails="as context_divergence; blind to heads that only write more",
    ),
)  # fmt: skip
