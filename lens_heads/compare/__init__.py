"""Compare heads across rankings, tasks, checkpoints and models of any shape, always against chance.

Runs a model to read its heads, never to see what it does without them: that is `evidence`.
"""

from lens_heads.compare.checkpoints import compare_checkpoints as compare_checkpoints
from lens_heads.compare.cka import linear_cka as linear_cka
from lens_heads.compare.correspondence import match_heads as match_heads
from lens_heads.compare.depth import DepthOverlap as DepthOverlap
from lens_heads.compare.depth import overlap_by_depth as overlap_by_depth
from lens_heads.compare.overlap import Overlap as Overlap
from lens_heads.compare.overlap import head_overlaps as head_overlaps
from lens_heads.compare.overlap import jaccard_curve as jaccard_curve
from lens_heads.compare.overlap import overlap as overlap
from lens_heads.compare.rankings import by_layer_third as by_layer_third
from lens_heads.compare.rankings import pool_scores as pool_scores
from lens_heads.compare.rankings import rank_biased_overlap as rank_biased_overlap
from lens_heads.compare.rankings import rank_correlation as rank_correlation
from lens_heads.compare.rankings import rank_correlation_interval as rank_correlation_interval
from lens_heads.compare.reuse import circuit_reuse as circuit_reuse
from lens_heads.compare.series import CheckpointSeries as CheckpointSeries
from lens_heads.compare.series import checkpoint_series as checkpoint_series
from lens_heads.compare.signatures import Signatures as Signatures
from lens_heads.compare.signatures import head_signatures as head_signatures
from lens_heads.compare.universal import Universal as Universal
from lens_heads.compare.universal import universal_heads as universal_heads
from lens_heads.compare.weights import Similarity as Similarity
from lens_heads.compare.weights import ov_similarity as ov_similarity
from lens_heads.compare.weights import weight_change as weight_change
from lens_heads.heads.matching import HeadMatch as HeadMatch
from lens_heads.heads.matching import match_accuracy as match_accuracy

__all__ = [
    "CheckpointSeries",
    "DepthOverlap",
    "HeadMatch",
    "Overlap",
    "Signatures",
    "Similarity",
    "Universal",
    "by_layer_third",
    "checkpoint_series",
    "circuit_reuse",
    "compare_checkpoints",
    "head_overlaps",
    "head_signatures",
    "jaccard_curve",
    "linear_cka",
    "match_accuracy",
    "match_heads",
    "ov_similarity",
    "overlap",
    "overlap_by_depth",
    "pool_scores",
    "rank_biased_overlap",
    "rank_correlation",
    "rank_correlation_interval",
    "universal_heads",
    "weight_change",
]
