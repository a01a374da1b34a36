"""Attention mass: how much a head looks at the needle while the answer is written, and nothing else"""

from jaxtyping import Float
from torch import Tensor

from lens_heads.ranking.one_pass.definition import Scorer
from lens_heads.ranking.one_pass.layer_view import LayerView


def attention_mass(view: LayerView) -> Float[Tensor, " head"]:
    """Sum over the needle of the row's attention, mean over answer steps: sum_{j in needle} A[h, t, j].

    Units: attention mass, 0 to 1. The baseline without either part of LOCOS. Attention over all keys is 1 for every head, so
    this sums over the needle's keys only, unlike `dla`. For the same reason the contrast adds little: in one row,
    attention_spatial = (mass * keys - len_needle) / len_off, so both rank heads alike there, and differ only in how they
    weight rows of different lengths and needles.
    """
    return view.needle_sum(view.pattern).mean(-1)


def attention_mass_no_sink(view: LayerView) -> Float[Tensor, " head"]:
    """The same share of the attention that is not on the first position: sum_{j in needle} A[h, t, j] / sum_{j > 0} A[h, t, j].

    Mean over answer steps; units: share of attention, 0 to 1. Most heads rest on the first position (the attention sink),
    by very different amounts, which decides the plain mass. That position belongs to no needle here, even if a needle
    begins there. A row with all its attention on the sink has 0.
    """
    return view.needle_sum(view.pattern_without_sink).mean(-1)


SCORERS = (
    Scorer(
        "attention_mass", attention_mass, "answer", True, "attention to the needle, no contrast", signed=False,
        fails="heads that look everywhere score as well as heads that choose", unit="share of attention",
        marker=("#332288", "square-open"), reads=frozenset({"pattern"}),
    ),
    Scorer(
        "attention_mass_no_sink", attention_mass_no_sink, paper="attention_mass without the first position", signed=False,
        fails="rests on little attention where the sink takes nearly all", label="attention mass, no sink",
        unit="share of attention outside the sink", marker=("#8F86C9", "square-dot"), reads=frozenset({"pattern"}),
    ),
)  # fmt: skip
