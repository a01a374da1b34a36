"""Interventions: change what heads pass on in every forward of a block, and leave the model as it was.

Says nothing of what follows from it: that is `answering` and `evidence`.
"""

from lens_heads.interventions.ablate import ablate as ablate
from lens_heads.interventions.ablation import Ablation as Ablation
from lens_heads.interventions.activations import MeanActivations as MeanActivations
from lens_heads.interventions.activations import TrialActivations as TrialActivations
from lens_heads.interventions.activations import mean_activations as mean_activations
from lens_heads.interventions.activations import trial_activations as trial_activations
from lens_heads.interventions.patch import patch as patch
from lens_heads.interventions.steer import steer as steer
from lens_heads.interventions.vectors import HeadVectors as HeadVectors
from lens_heads.interventions.vectors import task_vectors as task_vectors

__all__ = [
    "Ablation",
    "HeadVectors",
    "MeanActivations",
    "TrialActivations",
    "ablate",
    "mean_activations",
    "patch",
    "steer",
    "task_vectors",
    "trial_activations",
]
