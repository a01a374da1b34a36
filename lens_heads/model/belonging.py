"""Whether what is given beside a model is this model's: scores, means, vectors, and runs. One check for all that take them.

By the hash of the weights, where both sides know it: a name is no sign of either, since folders are moved and checkpoints of
one name differ. Scores of files, tables of gates and vectors that a user made know none; then the shape has to do.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping

from lens_heads.heads.one_model import check_weights, differ
from lens_heads.heads.scores import HeadScores
from lens_heads.model.geometry import Model
from lens_heads.model.identity import identify
from lens_heads.runs.identity import ModelIdentity
from lens_heads.runs.warned import users_line


def check_scores_of(model: Model, rankings: Mapping[str, HeadScores]) -> None:
    """ValueError for a ranking made on other weights than this model's, and for one with a score that is no number by now."""
    for name, scores in rankings.items():
        if not scores.flat.isfinite().all():
            raise ValueError(f"ranking {name!r} holds scores that are not finite: score again")
    if any(scores.model.weights for scores in rankings.values()):
        here = identify(model)
        check_weights(rankings, here)
        for name, scores in rankings.items():
            if "" != scores.model.begins != here.begins:
                warnings.warn(
                    f"ranking {name!r} was made on prompts that begin with {scores.model.begins!r}, and those of {here} begin "
                    f"with {here.begins!r}: load the model as it was then (prepend_bos=), or score again",
                    stacklevel=users_line(),
                )


def check_owner(model: Model, what: str, owner: ModelIdentity, remedy: str, again: bool = True) -> None:
    """ValueError if something was made on other weights than this model's. `again`: see `identify`."""
    if owner.weights and differ(owner, here := identify(model, again)):
        raise ValueError(
            f"{what} made on other weights ({owner}, {owner.weights}) than those of {here} ({here.weights}): {remedy}"
        )
