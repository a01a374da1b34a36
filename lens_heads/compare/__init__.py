"""Rankings, tasks and models beside each other: heads they share, what heads do across tasks, and what chance would give."""

from lens_heads.compare.correlate import Correlation, correlate
from lens_heads.compare.overlap import Overlap, head_overlaps, jaccard_curve, overlap
from lens_heads.compare.rankings import by_layer_third, rank_biased_overlap, rank_correlation, rank_correlation_interval
from lens_heads.compare.transfer import transfer_matrix
from lens_heads.compare.transfer_files import read_counts, read_rankings
from lens_heads.compare.transfer_matrix import TransferMatrix

__all__ = [
    "Correlation",
    "Overlap",
    "TransferMatrix",
    "by_layer_third",
    "correlate",
    "head_overlaps",
    "jaccard_curve",
    "overlap",
    "rank_biased_overlap",
    "rank_correlation",
    "rank_correlation_interval",
    "read_counts",
    "read_rankings",
    "transfer_matrix",
]
