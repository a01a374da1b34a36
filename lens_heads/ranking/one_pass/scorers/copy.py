"""Retrieval score: how much of the needle a head copies, by where it looks   (Wu et al., arXiv 2404.15574)"""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from lens_heads.ranking.one_pass.definition import Scorer
from lens_heads.ranking.one_pass.layer_view import LayerView


def copy(view: LayerView) -> Float[Tensor, " head"]:
    """Copy hits over all generated steps, per needle token; can exceed 1.

    A step is a hit if the head's most attended key is in the needle and is the token that the step generates, or differs from
    it only by the space before it; the same token elsewhere is not a hit. The authors' published score files are sums of hits
    like these (their paper divides the number of *distinct* copied tokens instead), but of the same token only: `copy_tokens`.
    They are equal where the model answers as the text is written; an answer that begins a chat turn lacks the space.
    """
    looked_at = view.pattern.argmax(-1)
    return _hits(view, view.says_next(looked_at))


def copy_tokens(view: LayerView) -> Float[Tensor, " head"]:
    """The same with hits of the very token that the step generates: the authors' rule."""
    looked_at = view.pattern.argmax(-1)
    return _hits(view, torch.eq(view.tokens[looked_at], view.next_tokens))


def _hits(view: LayerView, same: Bool[Tensor, "head row"]) -> Float[Tensor, " head"]:
    start, end = view.needle
    return (view.in_needle(view.pattern.argmax(-1)) & same).float().sum(-1) / (end - start)


SCORERS = (
    Scorer(
        "copy", copy, "generated", True, "retrieval score; Wu et al., arXiv 2404.15574", signed=False,
        fails="sees literal copies alone, of the most attended token alone", unit="copies per needle token",
        marker=("#D55E00", "triangle-up"), reads=frozenset({"pattern"}),
    ),
    Scorer(
        "copy_tokens", copy_tokens, "generated", True, "Wu et al., arXiv 2404.15574, as published", signed=False,
        only_named=True, reads=frozenset({"pattern"}),
        fails="as copy; misses the word that begins an answer without the space before it", unit="copies per needle token",
    ),
)  # fmt: skip
