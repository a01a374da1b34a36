"""LOCOS by kind of token: does a head read the answer's own name in the needle, what stands beside it, or the rest?"""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from lens_heads.ranking.one_pass.definition import PHI, Scorer
from lens_heads.ranking.one_pass.layer_view import LayerView

BESIDE = 2


def locos_name(view: LayerView) -> Float[Tensor, " head"]:
    """Sum of phi over the needle's tokens that are tokens of the answer (but for a space before them), mean over rows; logits.

    The three parts sum to the needle's contribution, the first term of `locos`. A needle that never names the answer, as in
    retrieval by meaning, has no such token, and scores 0.
    """
    return _part(view, _names(view))


def locos_beside(view: LayerView) -> Float[Tensor, " head"]:
    """The same over the needle's other tokens at most two places from one of these."""
    names = _names(view)
    return _part(view, _near(names) & ~names)


def locos_rest(view: LayerView) -> Float[Tensor, " head"]:
    """The same over the rest of the needle."""
    return _part(view, ~_near(_names(view)))


def _names(view: LayerView) -> Bool[Tensor, " position"]:
    """The needle's positions that hold a token of the answer, with or without the space before it."""
    keys = torch.arange(*view.needle, device=view.tokens.device)
    return view.says_next(keys[:, None]).any(-1)


def _near(names: Bool[Tensor, " position"]) -> Bool[Tensor, " position"]:
    places = torch.arange(len(names), device=names.device)
    return ((places[:, None] - places[names]).abs() <= BESIDE).any(-1)


def _part(view: LayerView, which: Bool[Tensor, " position"]) -> Float[Tensor, " head"]:
    return (view.phi[..., slice(*view.needle)] * which).sum(-1).mean(-1)


SCORERS = (
    Scorer(
        "locos_name", locos_name, paper="the part of LOCOS from the answer's own tokens", reads_needle=False, only_named=True,
        unit="logits", reads=frozenset(PHI), fails="zero where the needle never names the answer",
    ),
    Scorer(
        "locos_beside", locos_beside, paper="the part of LOCOS beside these", reads_needle=False, only_named=True,
        unit="logits", reads=frozenset(PHI), fails="zero where the needle never names the answer",
    ),
    Scorer(
        "locos_rest", locos_rest, paper="the part of LOCOS from the rest of the needle", reads_needle=False, only_named=True,
        unit="logits", reads=frozenset(PHI), fails="holds whatever the answer's own tokens do not account for",
    ),
)  # fmt: skip
