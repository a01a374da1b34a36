"""Statistics over trials: arrays in, arrays out. Standard tests come from scipy."""

from lens_heads.stats.correlation import pearson, spearman, spearman_brown, split_half_reliability
from lens_heads.stats.intervals import (
    bootstrap_interval,
    bootstrap_means,
    bootstrap_over_draws,
    bootstrap_ratio,
    percentile_interval,
)
from lens_heads.stats.significance import benjamini_hochberg, sign_flip_p

__all__ = [
    "benjamini_hochberg",
    "bootstrap_interval",
    "bootstrap_means",
    "bootstrap_over_draws",
    "bootstrap_ratio",
    "pearson",
    "percentile_interval",
    "sign_flip_p",
    "spearman",
    "spearman_brown",
    "split_half_reliability",
]
