"""Two rankings of the same heads: how far their best heads, and their whole orders, agree, and what chance would give."""

from lens_heads.compare.overlap import Overlap, jaccard_curve, overlap
from lens_heads.compare.rankings import by_layer_third, rank_biased_overlap, rank_correlation, rank_correlation_interval

__all__ = [
    "Overlap",
    "by_layer_third",
    "jaccard_curve",
    "overlap",
    "rank_biased_overlap",
    "rank_correlation",
    "rank_correlation_interval",
]
