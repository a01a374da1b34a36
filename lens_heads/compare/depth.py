"""Depth, the one measure that models of any shape share: do the best heads of two models sit equally deep?

Relative depth is layer / (layers - 1): 0 for the first layer of any model, 1 for its last. Sets of heads of one model, or
of models of one shape, are compared head by head in `overlap.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float, Int
from scipy import stats as scipy_stats

from lens_heads.heads.scores import HeadScores

if TYPE_CHECKING:
    import pandas as pd


def relative_depths(n_layers: int) -> Float[np.ndarray, " layer"]:
    """layer / (layers - 1) of every layer; 0 for a model of one layer."""
    return np.arange(n_layers) / max(n_layers - 1, 1)


def depth_bins(n_layers: int, bins: int) -> Int[np.ndarray, " layer"]:
    """Which of `bins` equal spans of relative depth each layer falls into, the last layer into the last.

    ValueError unless every bin holds a layer: 1 to `n_layers` bins.
    """
    if not 1 <= bins <= n_layers:
        raise ValueError(f"{bins} bins of depth: a model of {n_layers} layers fills 1 to {n_layers}: give as many")
    return np.minimum(np.arange(n_layers) * bins // max(n_layers - 1, 1), bins - 1)


@dataclass(frozen=True, eq=False)
class DepthOverlap:
    """Where the top `k_a` heads of one model and the top `k_b` of another sit, by relative depth.

    `bins` has a row per bin of depth: start, end; heads_a, heads_b (heads there are); top_a, top_b (share of the top heads
    that sit there); mean_a, mean_b (mean score). `overlap` is the sum over bins of min(top_a, top_b), 1 for equal profiles
    and 0 for disjoint ones; `expected` its exact mean for k_b random heads of b, `p_value` P(theirs is at least as
    large). `spearman` is the rank correlation of mean_a and mean_b over bins, NaN where one is constant.
    """

    method_a: str
    method_b: str
    k_a: int
    k_b: int
    bins: pd.DataFrame
    overlap: float
    expected: float
    p_value: float
    spearman: float

    def __repr__(self) -> str:
        return (
            f"DepthOverlap({self.method_a!r} top {self.k_a}, {self.method_b!r} top {self.k_b}, {len(self.bins)} bins: "
            f"{self.overlap:.3g}, {self.expected:.3g} by chance (p {self.p_value:.2g}); Spearman {self.spearman:.3g})"
        )


def overlap_by_depth(
    a: HeadScores,
    b: HeadScores,
    k: int,
    k_b: int | None = None,
    bins: int = 10,
    permutations: int = 10_000,
    seed: int = 0,
) -> DepthOverlap:
    """Do the top heads of two models, of any shapes, sit at the same relative depths?

    The sets are `a.top(k)` and `b.top(k_b or k)`. Null: b's top heads are drawn at random from all heads of b (the bins'
    counts are multivariate hypergeometric), a's stay what they are; p is (draws that overlap as much + 1) / (draws + 1).

    Raises ValueError for k outside 1 to the number of heads, more bins than either model has layers, scores of query
    heads against scores of kv heads, or permutations below 1.
    """
    import pandas as pd

    if a.unit != b.unit:
        raise ValueError(f"{a.method} scores {a.unit}s and {b.method} {b.unit}s: give scores of one kind of head")
    if permutations < 1:
        raise ValueError(f"permutations={permutations}: the null needs at least 1")
    k_b = k if k_b is None else k_b
    (heads_a, top_a, mean_a), (heads_b, top_b, mean_b) = _profile(a, k, bins), _profile(b, k_b, bins)
    share = top_a / k
    drawn = np.random.default_rng(seed).multivariate_hypergeometric(heads_b, k_b, size=permutations)
    overlap = float(np.minimum(share, top_b / k_b).sum())
    hits = int((np.minimum(share, drawn / k_b).sum(1) >= overlap - 1e-12).sum())
    edges = np.linspace(0, 1, bins + 1)
    table = {"start": edges[:-1], "end": edges[1:], "heads_a": heads_a, "heads_b": heads_b}
    table |= {"top_a": share, "top_b": top_b / k_b, "mean_a": mean_a, "mean_b": mean_b}
    flat = np.ptp(mean_a) == 0 or np.ptp(mean_b) == 0
    return DepthOverlap(
        method_a=a.method,
        method_b=b.method,
        k_a=k,
        k_b=k_b,
        bins=pd.DataFrame(table),
        overlap=overlap,
        expected=_expected(share, heads_b, k_b),
        p_value=(hits + 1) / (permutations + 1),
        spearman=float("nan") if flat else float(scipy_stats.spearmanr(mean_a, mean_b).statistic),
    )


def _profile(
    scores: HeadScores, k: int, bins: int
) -> tuple[Int[np.ndarray, " bin"], Int[np.ndarray, " bin"], Float[np.ndarray, " bin"]]:
    """By bin of depth: heads there are, how many of the top k are there, mean score."""
    if k < 1:
        raise ValueError(f"k={k}: an empty set sits nowhere; {scores.method} has {scores.values.numel()} heads")
    at = depth_bins(scores.n_layers, bins)
    layers = np.bincount(at, minlength=bins)
    top = np.bincount(at[[head.layer for head in scores.top(k)]], minlength=bins)
    mean = np.bincount(at, (scores.sign * scores.values).double().mean(1).numpy(), minlength=bins) / layers
    return layers * scores.n_heads, top, mean


def _expected(share: Float[np.ndarray, " bin"], heads: Int[np.ndarray, " bin"], k: int) -> float:
    """Mean overlap of these shares with those of k random heads: each bin's count is hypergeometric."""
    counts = np.arange(k + 1)
    chances = scipy_stats.hypergeom.pmf(counts, heads.sum(), heads[:, None], k)
    return float((chances * np.minimum(share[:, None], counts / k)).sum())
