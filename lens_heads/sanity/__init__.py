"""Sanity checks: models, trials and rankings in which there is nothing to find, and models whose heads are known.

A method that finds heads where there are none is wrong; so is one that misses the planted ones. Judges by
rankings alone: what a model does without heads is for `evidence` to say.
"""

from lens_heads.sanity.answers import permuted_answers
from lens_heads.sanity.models import random_initialised, shuffled_outputs
from lens_heads.sanity.planted import Planted, planted_model
from lens_heads.sanity.quality import planted_quality
from lens_heads.sanity.rankings import random_ranking
from lens_heads.trials.exchanges import exchanged_needles, permuted_questions, without_needle

__all__ = [
    "Planted", "exchanged_needles", "permuted_answers", "permuted_questions", "planted_model", "planted_quality",
    "random_initialised", "random_ranking", "shuffled_outputs", "without_needle",
]  # fmt: skip
__dir__ = __all__.copy
