"""Receiver heads: do later tokens agree on a few places to look back to?   (Thought Anchors, arXiv 2506.19143)"""

from jaxtyping import Float
from torch import Tensor

from lens_heads.ranking.one_pass.definition import Scorer
from lens_heads.ranking.one_pass.totals import TextTotals


def receiver(view: TextTotals) -> Float[Tensor, " head"]:
    """Kurtosis (Fisher's, biased) over keys of the mean rank-normalised attention that each receives from later rows.

    A row's attention to the keys at least `min_distance` tokens back is replaced by its rank among them, divided by their
    number; equal attention shares its mean rank. A key's value is the mean over the later rows that reach it. Keys outside a
    sliding window do not count; a layer whose window is no longer than `min_distance` scores 0.
    Unlike the paper's code, the unit is the token, not the sentence, and the distance is in tokens.
    """
    if view.window is not None and view.window <= view.min_distance:
        return view.received.new_zeros(len(view.received))
    x = view.received[:, view.receiving > 0].double()
    if x.shape[1] < 4:
        raise ValueError(
            f"receiver: only {x.shape[1]} tokens are at least min_distance={view.min_distance} before another: pass a longer "
            "text, or a smaller min_distance"
        )
    centred = x - x.mean(-1, keepdim=True)
    variance = centred.pow(2).mean(-1)
    if not bool((variance > 0).all()):
        raise ValueError(
            f"receiver: every token receives the same from head {int(variance.argmin())} of layer {view.layer}, so its kurtosis "
            "is not defined: pass a longer text, or leave this method out"
        )
    return (centred.pow(4).mean(-1) / variance.pow(2) - 3).float()


SCORERS = (
    Scorer(
        "receiver", receiver, "totals", probe="text", needs=frozenset({"received"}),
        paper="Thought Anchors, arXiv 2506.19143", only_named=True, unit="kurtosis",
        fails="of short texts next to nothing; tokens that all heads look at count for each",
    ),
)  # fmt: skip
