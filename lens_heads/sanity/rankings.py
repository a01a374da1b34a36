"""A ranking that knows nothing: every order of the heads is equally likely."""

from __future__ import annotations

import torch

from lens_heads.heads.scores import HeadScores
from lens_heads.model.geometry import Model, head_geometry
from lens_heads.model.identity import identify
from lens_heads.runs import checks
from lens_heads.runs.typed import typed

METHOD = "random lead"


@typed
def random_ranking(model: Model | HeadScores, *, seed: int = 0) -> HeadScores:
    """A "method" that ranks the heads of a model at random, to run through an analysis as if it were one.

    Controls for the analysis itself: how often does it call k heads drawn at random special? (Not how much k random heads
    cost: that is what `HeadScores.random` and the controls of `ablation_curve` are for.)

    Args:
        model: a model, or scores of one, whose shape, unit and identity are taken.
        seed: another ranking for each.

    Returns:
        HeadScores of the method "random lead". Scores have no unit: 1 for the best head, falling in equal steps to 1 / heads.
        The only "trial" is "random lead seed <seed>", so there are no intervals and nothing that it must not be evaluated on.

    Raises ValueError for a seed that is no whole number; TypeError for anything but a TransformerLens model or HeadScores.

    Example:
        >>> lh.sanity.random_ranking(scores, seed=1).top(2)
        [Head(1, 0), Head(0, 3)]
    """
    seed = checks.seed(seed)
    if isinstance(model, HeadScores):
        there, unit, owner = model.there, model.unit, model.model
    else:
        found = head_geometry(model)
        there, unit, owner = ~found.holes, "query_head", identify(model)
    n = int(there.sum())
    order = torch.randperm(n, generator=torch.Generator().manual_seed(seed))
    values = torch.full((1, *there.shape), torch.nan)
    values[:, there] = (order + 1) / n
    return HeadScores.from_trials(
        METHOD, values, [f"{METHOD} seed {seed}"], meta={"seed": seed}, unit=unit, model=owner
    )
