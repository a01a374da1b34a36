"""Which heads does a capability need? Sets of heads ablated at once, and the few that explain what it costs."""

from lens_heads.localize.masks import draw_masks
from lens_heads.localize.sparse_fit import Fit, fit, recover

__all__ = ["Fit", "draw_masks", "fit", "recover"]
