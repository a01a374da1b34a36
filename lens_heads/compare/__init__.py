"""Compare heads across rankings, tasks, checkpoints and models of any shape, always against chance."""

from lens_heads.compare.cards import HeadCards, describe
from lens_heads.compare.checkpoints import compare_checkpoints
from lens_heads.compare.cka import linear_cka
from lens_heads.compare.correlate import correlate
from lens_heads.compare.correlation import Correlation
from lens_heads.compare.correspondence import match_heads
from lens_heads.compare.depth import DepthOverlap, overlap_by_depth
from lens_heads.compare.head_match import HeadMatch, match_accuracy, recovery_rate
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
from lens_heads.compare.signatures import Signatures, common_texts, head_signatures
from lens_heads.compare.transfer import transfer_matrix
from lens_heads.compare.transfer_files import read_counts, read_rankings
from lens_heads.compare.transfer_matrix import TransferMatrix
from lens_heads.compare.validation import MatchValidation, validate_match
from lens_heads.compare.weights import Similarity, ov_similarity, weight_change

__all__ = [
    "CheckpointSeries",
    "Correlation",
    "DepthOverlap",
    "HeadCards",
    "HeadMatch",
    "MatchValidation",
    "Overlap",
    "Signatures",
    "Similarity",
    "TransferMatrix",
    "by_layer_third",
    "checkpoint_series",
    "circuit_reuse",
    "common_texts",
    "compare_checkpoints",
    "correlate",
    "describe",
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
    "read_counts",
    "read_rankings",
    "recovery_rate",
    "transfer_matrix",
    "validate_match",
    "weight_change",
]
