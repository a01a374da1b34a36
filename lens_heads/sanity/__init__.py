"""Sanity checks: models, trials and rankings in which there is nothing to find, and models whose heads are known.

A method that finds heads where there are none is wrong; so is one that misses the planted ones.
"""

from lens_heads.sanity.answers import permuted_answers as permuted_answers
from lens_heads.sanity.models import random_initialised as random_initialised
from lens_heads.sanity.models import shuffled_outputs as shuffled_outputs
from lens_heads.sanity.planted import Planted as Planted
from lens_heads.sanity.planted import planted as planted
from lens_heads.sanity.quality import planted_quality as planted_quality
from lens_heads.sanity.rankings import random_ranking as random_ranking
from lens_heads.trials.needle_swaps import exchanged_needles as exchanged_needles
from lens_heads.trials.needle_swaps import without_needle as without_needle

__all__ = [
    "Planted",
    "exchanged_needles",
    "permuted_answers",
    "planted",
    "planted_quality",
    "random_initialised",
    "random_ranking",
    "shuffled_outputs",
    "without_needle",
]
