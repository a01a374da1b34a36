"""Spatial attention contrast: LOCOS without the OV circuit, its own ablation   (Gema et al., arXiv 2607.01002)"""

from jaxtyping import Float
from torch import Tensor

from lens_heads.ranking.one_pass.definition import Scorer
from lens_heads.ranking.one_pass.layer_view import LayerView


def attention_spatial(view: LayerView) -> Float[Tensor, " head"]:
    """Attention to the needle minus (len_needle / len_off) * attention elsewhere, mean over answer steps.

    Units: attention mass; 1 if all of it is on the needle, 0 if it is uniform.
    """
    return view.spatial_contrast(view.pattern).mean(-1)


def attention_spatial_no_sink(view: LayerView) -> Float[Tensor, " head"]:
    """The same contrast of B[h, t, j] = A[h, t, j] / sum_{i > 0} A[h, t, i] over the keys j > 0.

    The first position, the attention sink, is left out: it has no attention and is not counted, neither among the other
    keys nor in a needle that begins there. A row with all its attention on the sink has 0. Mean over answer steps; units:
    share of the attention outside the sink.
    """
    return view.spatial_contrast(view.pattern_without_sink, sink=False).mean(-1)


SCORERS = (
    Scorer(
        "attention_spatial", attention_spatial, "answer", True, "the attention half of LOCOS, arXiv 2607.01002",
        fails="says where a head looks, not what it writes; the sink takes most of many heads' attention",
        label="attention, spatial", unit="attention mass", marker=("#56B4E9", "square"), reads=frozenset({"pattern"}),
    ),
    Scorer(
        "attention_spatial_no_sink", attention_spatial_no_sink, paper="attention_spatial without the first position",
        fails="rests on little attention where the sink takes nearly all", label="attention, spatial, no sink",
        unit="share of attention outside the sink", marker=("#A3B8C2", "square-x"), reads=frozenset({"pattern"}),
    ),
)  # fmt: skip
