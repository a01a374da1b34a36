"""Compare heads across rankings, tasks, checkpoints and models of any shape, always against chance.

Runs a model to read its heads, never to see what it does without them: that is `evidence`.
"""

from lens_heads.compare.checkpoints import compare_checkpoints
from lens_heads.compare.cka import linear_cka
from lens_heads.compare.correspondence import match_heads
from lens_heads.compare.depth import DepthOverlap, overlap_by_depth
from lens_heads.compare.overlap import Overlap, head_overlaps, jaccard_curve, overlap
from lens_heads.compare.rankings import (
    by_layer_third,
    pool_scores,
    rank_biased_overlap,
    rank_correlation,
    rank_correlation_interval,
)
from lens_heads.compare.reuse import circuit_reuse
from lens_heads.compare.series import CheckpointSeries, checkpoint_series
from lens_heads.compare.signatures import Signatures, head_signatures
from lens_heads.compare.universal import Universal, universal_heads
from lens_heads.compare.weights import Similarity, ov_similarity, weight_change
from lens_heads.heads.matching import HeadMatch, match_accuracy

__all__ = [
    "CheckpointSeries", "DepthOverlap", "HeadMatch", "Overlap", "Signatures", "Similarity", "Universal",
    "by_layer_third", "checkpoint_series", "circuit_reuse", "compare_checkpoints", "head_overlaps",
    "head_signatures", "jaccard_curve", "linear_cka", "match_accuracy", "match_heads", "ov_similarity", "overlap",
    "overlap_by_depth", "pool_scores", "rank_biased_overlap", "rank_correlation", "rank_correlation_interval",
    "universal_heads", "weight_change",
]  # fmt: skip
__dir__ = __all__.copy
