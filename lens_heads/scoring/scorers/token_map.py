"""Token maps: does a head's OV circuit turn a token into its successor, or into itself?   (Successor Heads, arXiv 2312.09230)"""

from jaxtyping import Float
from torch import Tensor

from lens_heads.scoring.weights_view import WeightsView


def token_map(view: WeightsView) -> Float[Tensor, " head"]:
    """Share of pairs (t, f(t)) whose f(t) gets the largest logit among all tokens of the map; 0 to 1, from weights alone.

    logits = MLP0(W_E[t]) W_V W_O W_U, without norms or attention biases. Maps of suppression take the smallest logit instead.
    Chance is one in the number of tokens. A head whose logits are all alike, for want of an OV circuit, scores 0. So do those
    of layer 0, which cannot read what their own MLP writes.
    """
    logits = -view.logits if view.lowest else view.logits
    told = (logits.amax(-1) > logits.amin(-1)) & (logits.argmax(-1) == view.targets)
    return told.float().mean(-1) * (view.layer > 0)
