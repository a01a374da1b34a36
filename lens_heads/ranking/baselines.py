"""Baselines: what a ranking is worth that knows nothing of heads, or of layers alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from lens_heads.heads.scores import HeadScores
from lens_heads.model.geometry import head_geometry
from lens_heads.model.identity import identify
from lens_heads.ranking.masks.localize import masked_metric
from lens_heads.ranking.material import Material
from lens_heads.ranking.method import Method
from lens_heads.trials.digests import made_on


def random_numbers(material: Material) -> HeadScores:
    """Random numbers: what a method that knows nothing gets."""
    shape, rng = head_geometry(material.model), np.random.default_rng(material.seed)
    values = torch.from_numpy(rng.normal(size=(len(material.trials), shape.n_layers, shape.n_heads))).float()
    return on_material("random_numbers", shape.with_holes(values), material)


def by_layer(material: Material) -> HeadScores:
    """Heads ranked by their layer alone: what ablating the whole layer costs. Heads of a layer are in random order."""
    metric, rng = masked_metric(material), np.random.default_rng(material.seed)
    shape = metric.shape
    whole = [[head for head in metric.everyone if head.layer == layer] for layer in shape.attending]
    cost = metric.base - metric(np.stack([metric.mask(heads) for heads in whole]))
    values = torch.zeros(len(material.trials), shape.n_layers, shape.n_heads)
    values[:, shape.attending] = torch.from_numpy(cost.T.copy()).float()[:, :, None]
    order = [whole[at][int(place)] for at in np.argsort(-cost.mean(1)) for place in rng.permutation(len(whole[at]))]
    return on_material("by_layer", shape.with_holes(values), material, order=tuple(order))


def on_material(name: str, per_trial: Float[Tensor, "trial layer head"], material: Material, **more: Any) -> HeadScores:
    """HeadScores of the material's trials. `more`: further attributes of `HeadScores`."""
    about: dict[str, Any] = {"model": identify(material.model), "made_on": made_on(list(material.trials)), **more}
    return HeadScores.from_trials(name, per_trial, [trial.id for trial in material.trials], **about)


METHODS = (
    Method(
        "by_layer", "baseline", by_layer, passes=lambda shape, masks, k: float(shape.n_layers), signed=True, unit="nats",
        fails="knows layers, not heads: what finds no more than it finds layers",
    ),
    Method(
        "random_numbers", "baseline", random_numbers, passes=lambda shape, masks, k: 0.0, signed=True,
        unit="standard deviations", fails="knows nothing: what does no better ranks nothing",
    ),
)  # fmt: skip
