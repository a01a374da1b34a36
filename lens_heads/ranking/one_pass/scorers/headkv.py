"""HeadKV importance: attention to the needle just before the answer begins   (Fu et al., arXiv 2410.19258)"""

from jaxtyping import Float
from torch import Tensor

from lens_heads.ranking.one_pass.definition import Scorer
from lens_heads.ranking.one_pass.layer_view import LayerView


def headkv(view: LayerView) -> Float[Tensor, " head"]:
    """Largest attention mass on the needle over the last 8 prompt rows. Needs no generated token and no gate.

    Units: attention mass, 0 to 1.
    """
    return view.needle_sum(view.pattern).amax(-1)


SCORERS = (
    Scorer(
        "headkv", headkv, "prompt", False, "HeadKV; Fu et al., arXiv 2410.19258", signed=False,
        fails="reads the end of the prompt, before an answer begins", label="HeadKV", unit="attention mass",
        marker=("#E69F00", "x"), reads=frozenset({"pattern"}),
    ),
)  # fmt: skip
