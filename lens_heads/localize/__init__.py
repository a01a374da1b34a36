"""Which heads does a capability need? Ablate sets of heads together and find the few that explain the damage."""

from lens_heads.localize.generality import Generality, Universal, generality, universal_heads
from lens_heads.localize.greedy import greedy, one_shot
from lens_heads.localize.heads import localize, localize_heads
from lens_heads.localize.masks import draw_masks
from lens_heads.localize.measure import MaskedMetric
from lens_heads.localize.search import Search, search
from lens_heads.localize.sparse_fit import Fit, fit, recover, solve_masks

__all__ = [
    "Fit",
    "Generality",
    "MaskedMetric",
    "Search",
    "Universal",
    "draw_masks",
    "fit",
    "generality",
    "greedy",
    "localize",
    "localize_heads",
    "one_shot",
    "recover",
    "search",
    "solve_masks",
    "universal_heads",
]
