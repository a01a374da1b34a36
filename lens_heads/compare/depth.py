"""Depth, the one measure that models of any shape share: do the best heads of two models sit equally deep?

Relative depth is layer / (layers - 1): 0 for the first layer of any model, 1 for its last.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from jaxtyping import Float, Int
from scipy.stats import hypergeom

from lens_heads.compare.overlap import top_heads
from lens_heads.heads.depth import depth_bins
from lens_heads.heads.scores import HeadScores
from lens_heads.runs import checks
from lens_heads.runs.drawn import Tabled
from lens_heads.runs.typed import typed
from lens_heads.stats.correlation import spearman


@dataclass(frozen=True, eq=False)
class DepthOverlap(Tabled):
    """Relative depths of the top `k_a` heads of one model and the top `k_b` heads of another.

    `bins` has one row per depth bin: start, end; heads_a, heads_b (number of heads); top_a, top_b (fraction of the top heads
    in this bin); mean_a, mean_b (mean score). `overlap` is the sum over bins of min(top_a, top_b): 1 for equal profiles, 0
    for disjoint ones. `expected` is its exact mean for k_b random heads of b, and `p_value` the probability of an overlap at
    least this large. `spearman` correlates mean_a with mean_b over bins; NaN if one is constant.

    `method_a`, `method_b`: their names.

    Example:
        >>> lh.compare.overlap_by_depth(scores, scores, k=2, bins=2).overlap
        1.0
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

    @property
    def frame(self) -> pd.DataFrame:
        """`bins`: a row per depth bin."""
        return self.bins

    def __repr__(self) -> str:
        return (
            f"DepthOverlap({self.method_a!r} top {self.k_a}, {self.method_b!r} top {self.k_b}, {len(self.bins)} bins: "
            f"{self.overlap:.3g}, {self.expected:.3g} by chance (p = {self.p_value:.2g}); Spearman {self.spearman:.3g})"
        )


@typed
def overlap_by_depth(
    a: HeadScores,
    b: HeadScores,
    *,
    k: int,
    k_b: int | None = None,
    bins: int = 10,
    permutations: int = 10_000,
    seed: int = 0,
) -> DepthOverlap:
    """Do the top heads of two models, of any shapes, sit at the same relative depths?

    The sets are `a.top(k)` and `b.top(k_b)`; `k_b` defaults to `k`. Null: a's heads stay fixed, and b's are a random draw
    from all heads of b (multivariate hypergeometric). p = (draws that overlap at least as much + 1) / (draws + 1).

    Raises ValueError if k is not between 1 and the number of heads, if bins exceed the layers of either model, if one method
    scores query heads and the other kv heads, or if permutations is below 1.

    `seed`: of the draws.

    Example:
        >>> lh.compare.overlap_by_depth(scores, scores, k=2, bins=2).overlap
        1.0
    """
    if a.unit != b.unit:
        units = f"{a.method} scores {a.unit}s, {b.method} scores {b.unit}s"
        raise ValueError(f"{units}. Convert one with lens_heads.units.")
    checks.count("permutations", permutations)
    checks.seed(seed)
    k_b = k if k_b is None else k_b
    (heads_a, top_a, mean_a), (heads_b, top_b, mean_b) = _profile(a, k, bins), _profile(b, k_b, bins)
    share_a, share_b = top_a / k, top_b / k_b
    drawn = np.random.default_rng(seed).multivariate_hypergeometric(heads_b, k_b, size=permutations)
    overlap = float(np.minimum(share_a, share_b).sum())
    hits = int((np.minimum(share_a, drawn / k_b).sum(1) >= overlap - 1e-12).sum())
    edges = np.linspace(0, 1, bins + 1)
    table = {"start": edges[:-1], "end": edges[1:], "heads_a": heads_a, "heads_b": heads_b}
    table |= {"top_a": share_a, "top_b": share_b, "mean_a": mean_a, "mean_b": mean_b}
    expected, rho = _expected(share_a, heads_b, k_b), float(spearman(mean_a, mean_b))
    p_value = (hits + 1) / (permutations + 1)
    return DepthOverlap(a.method, b.method, k, k_b, pd.DataFrame(table), overlap, expected, p_value, rho)


def _profile(
    scores: HeadScores, k: int, bins: int
) -> tuple[Int[np.ndarray, " bin"], Int[np.ndarray, " bin"], Float[np.ndarray, " bin"]]:
    """By depth bin: number of heads, number of top k heads, mean score."""
    at = depth_bins(scores.n_layers, bins)
    heads = np.bincount(at, scores.there.sum(1).numpy(), minlength=bins).astype(int)
    top = np.bincount(at[[head.layer for head in top_heads(scores, k)]], minlength=bins)
    with np.errstate(invalid="ignore"):  # A bin of layers without heads has no mean.
        sums = np.bincount(at, (scores.sign * scores.values).double().nansum(1).numpy(), minlength=bins)
        mean = np.nan_to_num(sums / heads)
    return heads, top, mean


def _expected(share: Float[np.ndarray, " bin"], heads: Int[np.ndarray, " bin"], k: int) -> float:
    """Mean overlap of these shares with those of k random heads: each bin's count is hypergeometric."""
    counts = np.arange(k + 1)
    chances = hypergeom.pmf(counts, heads.sum(), heads[:, None], k)
    return float((chances * np.minimum(share[:, None], counts / k)).sum())
