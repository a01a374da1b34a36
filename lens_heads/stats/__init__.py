"""Statistics over trials: arrays in, arrays out. Standard tests come from scipy.

Knows no heads, no trials and no model.
"""

from lens_heads.stats.clusters import effective_n, icc
from lens_heads.stats.correlation import split_half_reliability
from lens_heads.stats.intervals import (
    Interval,
    crossed_interval,
    difference,
    gap_interval,
    mean_interval,
    percentile_interval,
    ratio_interval,
    sum_interval,
)
from lens_heads.stats.many_tests import benjamini_hochberg, family_wise_p
from lens_heads.stats.permutation import Permutation, permutation_test
from lens_heads.stats.positive_mean import positive_mean_p
from lens_heads.stats.ranks import RandomRank, rank_p
from lens_heads.stats.resampling import bootstrap_means
from lens_heads.stats.sampling import Precision, n_to_tell, needed
from lens_heads.stats.shares import paired_share_interval, relative_loss_interval, share_interval, wilson
from lens_heads.stats.stability import TopKStability, top_k_stability

__all__ = [
    "Interval", "Permutation", "Precision", "RandomRank", "TopKStability", "benjamini_hochberg", "bootstrap_means",
    "crossed_interval", "difference", "effective_n", "family_wise_p", "gap_interval", "icc", "mean_interval", "n_to_tell",
    "needed", "paired_share_interval", "percentile_interval", "permutation_test", "positive_mean_p", "rank_p",
    "ratio_interval", "relative_loss_interval", "share_interval", "split_half_reliability", "sum_interval",
    "top_k_stability", "wilson",
]  # fmt: skip
__dir__ = __all__.copy
