"""Do two methods rank all heads alike? Rank-biased overlap, rank correlation, and correlation by depth.

`overlap.py` compares top sets with chance.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
import pandas as pd
from scipy.stats import kendalltau

from lens_heads.compare.overlap import check_pair
from lens_heads.heads.scores import HeadScores
from lens_heads.stats import bootstrap_means, percentile_interval, spearman


def rank_biased_overlap(a: HeadScores, b: HeadScores, p: float = 0.9) -> float:
    """Rank-biased overlap of two full rankings   (Webber, Moffat & Zobel, ACM TOIS 28(4), 2010, RBO_ext, eq. 23)

    A_d = fraction of the top d heads that both rankings share;  RBO = (1 - p) * sum_{d=1}^{n} p^(d-1) A_d + p^n A_n.
    The last term extrapolates the agreement at full depth, where A_n = 1 because both rank the same heads. The result is 1
    for equal rankings, at most p^m if the top m heads are disjoint, and never 0. A smaller p puts more weight on the top
    ranks: with p = 0.9, the first ten have 86 % of the weight. Ties are broken by layer, then head.

    Raises ValueError if the scores have different shapes or units, or if p is not strictly between 0 and 1.
    """
    check_pair(a, b)
    if not 0 < p < 1:
        raise ValueError(f"p={p}: the persistence must be strictly between 0 and 1, e.g. 0.9")
    seen_a, seen_b = set(), set()
    shared, total = 0, 0.0
    for depth, (first, second) in enumerate(zip(a.ranking(), b.ranking(), strict=True), 1):
        shared += (first in seen_b) + (second in seen_a) + (first == second)
        seen_a.add(first)
        seen_b.add(second)
        total += p ** (depth - 1) * shared / depth
    return min(1.0, (1 - p) * total + p ** len(seen_a))


def rank_correlation(a: HeadScores, b: HeadScores, kind: Literal["spearman", "kendall"] = "spearman") -> float:
    """Spearman's rho or Kendall's tau-b between the scores of all heads.

    Ties share their mean rank, unlike in `HeadScores.ranking`. NaN if a method gives all heads the same score.

    Raises ValueError if the scores have different shapes or units, or for an unknown kind.
    """
    check_pair(a, b)
    if kind not in ("spearman", "kendall"):
        raise ValueError(f"kind={kind!r}: must be 'spearman' or 'kendall'")
    x, y = (scores.sign * scores.values.double().flatten().numpy() for scores in (a, b))
    return float(spearman(x, y) if kind == "spearman" else kendalltau(x, y).statistic)


def by_layer_third(a: HeadScores, b: HeadScores, level: float = 0.95, n: int = 1000, seed: int = 0) -> pd.DataFrame:
    """Spearman correlation of two methods' scores within the early, middle and late third of the layers.

    A correlation over all layers mixes agreement on depth with agreement on heads; this shows what remains within a third.

    Columns: third; first_layer, last_layer (inclusive; earlier thirds take the surplus layers); heads; spearman; low, high:
    percentile bootstrap interval from n resamples of the third's heads. NaN if a method gives all heads of a third the same
    score; resamples in which it does are dropped.

    Raises ValueError if the scores have different shapes or units, for fewer than three layers, or a level outside 0 to 1.
    """
    check_pair(a, b)
    if a.n_layers < 3:
        raise ValueError(f"{a.method} has {a.n_layers} layers, and thirds need at least 3. Use rank_correlation.")
    rows = []
    for third, layers in zip(("early", "middle", "late"), np.array_split(np.arange(a.n_layers), 3), strict=True):
        x, y = (scores.sign * scores.values[layers].double().flatten().numpy() for scores in (a, b))
        picked = np.random.default_rng(seed).integers(len(x), size=(n, len(x)))
        low, high = percentile_interval(spearman(x[picked], y[picked]), level)
        row = {"third": third, "first_layer": int(layers[0]), "last_layer": int(layers[-1]), "heads": len(x)}
        rows.append(row | {"spearman": float(spearman(x, y)), "low": float(low), "high": float(high)})
    return pd.DataFrame(rows)


def rank_correlation_interval(
    a: HeadScores, b: HeadScores, level: float = 0.95, n: int = 200, seed: int = 0
) -> tuple[float, float, float]:
    """(Spearman, low, high), with the trials of the two rankings resampled independently.

    Resampling adds noise to both rankings, so the interval is centred below the correlation; read it as a measure of spread.
    """
    rho = rank_correlation(a, b)
    sides = [(scores.sign * scores.per_trial.flatten(1), seed + i) for i, scores in enumerate((a, b))]
    x, y = (bootstrap_means(values, n, own_seed).numpy() for values, own_seed in sides)
    low, high = percentile_interval(spearman(x, y), level)
    return rho, float(low), float(high)
