"""Token maps: does a head's OV circuit turn a token into its successor, or into itself?   (Successor Heads, arXiv 2312.09230)"""

from jaxtyping import Float
from torch import Tensor

from lens_heads.ranking.one_pass.definition import Scorer
from lens_heads.ranking.one_pass.weights_view import WeightsView


def token_map(view: WeightsView) -> Float[Tensor, " head"]:
    """Share of pairs (t, f(t)) whose f(t) gets the largest logit among all tokens of the map; 0 to 1, from weights alone.

    logits = (E(t) g) W_V W_O W_U. E: the stream after the first block without its attention, W_E[t] + MLP0(W_E[t]), the MLP with
    its norms; g: the gain of the norm before the head (after centring, if it centres), where there is one. Without biases of
    attention. Maps of suppression take the smallest logit instead. Chance is one in the number of tokens. A head whose logits
    are all alike, for want of an OV circuit, scores 0. So do those of layer 0, which cannot read what their own MLP writes.

    Differs from the paper in what is read: see `token_map_raw`.
    """
    return _told(view, view.logits)


def token_map_raw(view: WeightsView) -> Float[Tensor, " head"]:
    """The same with logits = MLP0(W_E[t]) W_V W_O W_U on the weights as stored: the formula as it is printed.

    Where the first MLP does not rewrite the embedding, that is little of what heads read: Gemma's copying heads do not show.
    """
    return _told(view, view.raw_logits)


def _told(view: WeightsView, logits: Float[Tensor, "head pair token"]) -> Float[Tensor, " head"]:
    logits = -logits if view.lowest else logits
    told = (logits.amax(-1) > logits.amin(-1)) & (logits.argmax(-1) == view.targets)
    return told.float().mean(-1) * (view.layer > 0)


SCORERS = (
    Scorer(
        "token_map", token_map, probe="weights", paper="Successor Heads, arXiv 2312.09230", signed=False,
        unit="share of pairs", fails="weights alone: says what a head could do, not when it does; blind to layer 0",
    ),
    Scorer(
        "token_map_raw", token_map_raw, probe="weights", paper="its printed formula", signed=False, only_named=True,
        unit="share of pairs",
        fails="as token_map; where the first MLP does not rewrite the embedding, hardly what heads read",
    ),
)  # fmt: skip
