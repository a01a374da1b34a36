"""Whether rankings belong to one model: scores of other weights say nothing about this model's heads.

`model.belonging` asks it of a loaded model, for scores and for all else that is given beside it.
"""

from __future__ import annotations

from collections.abc import Mapping

from lens_heads.heads.scores import HeadScores
from lens_heads.runs.identity import ModelIdentity


def differ(one: ModelIdentity, other: ModelIdentity) -> bool:
    """Whether two models are known to have different weights. Those of other dtypes or classes cannot be compared."""
    wrapped = {one.wrapper, other.wrapper} - {""}
    known = one.weights and other.weights and one.dtype == other.dtype and len(wrapped) < 2
    return bool(known) and one.weights != other.weights


def check_one_model(a: HeadScores, b: HeadScores) -> None:
    """ValueError for scores of models with different weights."""
    if differ(a.model, b.model):
        raise ValueError(
            f"{a.method} of {a.model} ({a.model.weights}) and {b.method} of {b.model} ({b.model.weights}) are scores of "
            "different weights. Score one model with both."
        )


def check_weights(rankings: Mapping[str, HeadScores], model: ModelIdentity) -> None:
    """ValueError for a ranking made on other weights than those of this model."""
    for name, scores in rankings.items():
        if differ(scores.model, model):
            raise ValueError(
                f"ranking {name!r} was made on other weights ({scores.model}, {scores.model.weights}) than those of {model} "
                f"({model.weights}): score this model, or pass the heads themselves"
            )
