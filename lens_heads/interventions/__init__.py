"""Interventions: change what heads pass on in every forward of a block, and leave the model as it was.

Says nothing of what follows from it: that is `answering` and `evidence`.
"""

from lens_heads.interventions.ablate import ablate
from lens_heads.interventions.activations import MeanActivations, TrialActivations, mean_activations, trial_activations
from lens_heads.interventions.checked_kind import Ablation
from lens_heads.interventions.patch import patch
from lens_heads.interventions.row_activations import RowActivations, row_activations
from lens_heads.interventions.steer import steer
from lens_heads.interventions.vectors import HeadVectors, task_vectors

__all__ = [
    "Ablation", "HeadVectors", "MeanActivations", "RowActivations", "TrialActivations", "ablate", "mean_activations",
    "patch", "row_activations", "steer", "task_vectors", "trial_activations",
]  # fmt: skip
__dir__ = __all__.copy
