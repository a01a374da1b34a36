"""Heads held against heads: two rankings of one model, two models of any shape, two checkpoints; always against chance."""

from lens_heads.compare.checkpoints import compare_checkpoints
from lens_heads.compare.cka import linear_cka
from lens_heads.compare.correspondence import match_heads
from lens_heads.compare.depth import DepthOverlap, overlap_by_depth
from lens_heads.compare.head_match import HeadMatch, recovery_rate
from lens_heads.compare.overlap import Overlap, jaccard_curve, overlap
from lens_heads.compare.rankings import by_layer_third, rank_biased_overlap, rank_correlation, rank_correlation_interval
from lens_heads.compare.signatures import Signatures, common_texts, head_signatures
from lens_heads.compare.validation import MatchValidation, validate_match

__all__ = [
    "DepthOverlap",
    "HeadMatch",
    "MatchValidation",
    "Overlap",
    "Signatures",
    "by_layer_third",
    "common_texts",
    "compare_checkpoints",
    "head_signatures",
    "jaccard_curve",
    "linear_cka",
    "match_heads",
    "overlap",
    "overlap_by_depth",
    "rank_biased_overlap",
    "rank_correlation",
    "rank_correlation_interval",
    "recovery_rate",
    "validate_match",
]
