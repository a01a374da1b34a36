"""Mean activations over ordinary prompts: a reference for those who have no trials of their own for one."""

from __future__ import annotations

from lens_heads import tasks
from lens_heads.interventions.activations import MeanActivations, mean_activations
from lens_heads.model.geometry import Model


def ordinary_means(model: Model, instead: str) -> MeanActivations:
    """Mean activations over eight packaged prompts. ValueError, with what to do `instead`, if there is no room for them."""
    try:
        return mean_activations(model, tasks.packaged(split="select", n=8, context_length=240), progress=False)
    except ValueError as error:
        raise ValueError(f"no means of ordinary prompts ({error}): {instead}") from None
