"""Negative controls: models, trials and rankings in which there is nothing to find. A method that finds it there is wrong.

And a positive one, `planted`: a model whose heads are known.
"""

from lens_heads.controls.answerable import Answerable, answerable
from lens_heads.controls.answers import permuted_answers
from lens_heads.controls.models import random_initialised, shuffled_outputs
from lens_heads.controls.needles import exchanged_needles, without_needle
from lens_heads.controls.planting import Planted, planted
from lens_heads.controls.quality import planted_quality
from lens_heads.controls.ranking import random_ranking

__all__ = [
    "Answerable",
    "Planted",
    "answerable",
    "exchanged_needles",
    "permuted_answers",
    "planted",
    "planted_quality",
    "random_initialised",
    "random_ranking",
    "shuffled_outputs",
    "without_needle",
]
