"""Do two methods order all heads alike? Rank-biased overlap, rank correlation, and correlation by depth.

Sets of the best heads, and what chance makes of them, are in `overlap.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np
from jaxtyping import Float
from scipy import stats as scipy_stats

from lens_heads.compare.overlap import check_pair
from lens_heads.heads.scores import HeadScores
from lens_heads.stats import bootstrap_means, percentile_interval

if TYPE_CHECKING:
    import pandas as pd

THIRDS = ("early", "middle", "late")


def rank_biased_overlap(a: HeadScores, b: HeadScores, p: float = 0.9) -> float:
    """Rank-biased overlap of two full rankings   (Webber, Moffat & Zobel, ACM TOIS 28(4), 2010, RBO_ext, eq. 23)

    A_d = share of the top d that both rankings have;  RBO = (1 - p) * sum_{d=1}^{n} p^(d-1) A_d + p^n A_n.
    The last term extrapolates the agreement at full depth, which is A_n = 1 since both rank the same heads: 1 for equal
    rankings, at most p^m when the top m heads have none in common, never 0. The smaller p, the more the first places count:
    with p = 0.9 the first ten have 86 % of the weight. Equal scores in order of layer, then head (`HeadScores.ranking`).

    Raises ValueError for scores of models of different shapes, or p not strictly between 0 and 1.
    """
    check_pair(a, b)
    if not 0 < p < 1:
        raise ValueError(f"p={p}: the persistence of rank-biased overlap lies between 0 and 1, e.g. 0.9")
    seen_a, seen_b = set(), set()
    shared, total = 0, 0.0
    for depth, (first, second) in enumerate(zip(a.ranking(), b.ranking(), strict=True), 1):
        shared += (first in seen_b) + (second in seen_a) + (first == second)
        seen_a.add(first)
        seen_b.add(second)
        total += p ** (depth - 1) * shared / depth
    return min(1.0, (1 - p) * total + p ** len(seen_a))


def rank_correlation(a: HeadScores, b: HeadScores, kind: Literal["spearman", "kendall"] = "spearman") -> float:
    """Spearman's rho or Kendall's tau-b between the scores of all heads, by scipy.

    Equal scores share their mean rank here, unlike in `HeadScores.ranking`. NaN when a method gives all heads the same
    score. Raises ValueError for scores of models of different shapes, or an unknown kind.
    """
    check_pair(a, b)
    if kind not in ("spearman", "kendall"):
        raise ValueError(f"kind={kind!r}: use 'spearman' or 'kendall'")
    x, y = (scores.sign * scores.values.double().flatten().numpy() for scores in (a, b))
    if np.ptp(x) == 0 or np.ptp(y) == 0:
        return float("nan")
    correlation = scipy_stats.spearmanr if kind == "spearman" else scipy_stats.kendalltau
    return float(correlation(x, y).statistic)


def by_layer_third(a: HeadScores, b: HeadScores, level: float = 0.95, n: int = 1000, seed: int = 0) -> pd.DataFrame:
    """Spearman of two methods' scores within the early, middle and late third of the layers.

    Columns: third; first_layer, last_layer (inclusive; earlier thirds take the layers that are left over); heads; spearman;
    low, high: percentile bootstrap over the heads of the third, n resamples. Correlation over all layers mixes agreement
    about depth with agreement about heads; this shows how much is left within a third. NaN where a method does not tell the
    heads of a third apart; resamples that do not are left out.

    Raises ValueError for scores of models of different shapes, fewer than three layers, or a level outside 0 to 1.
    """
    import pandas as pd

    check_pair(a, b)
    if a.n_layers < 3:
        raise ValueError(f"{a.method}: {a.n_layers} layers have no thirds: use rank_correlation")
    if not 0 < level < 1:
        raise ValueError(f"level={level}: a confidence level lies between 0 and 1, e.g. 0.95")
    rows = []
    for third, layers in zip(THIRDS, np.array_split(np.arange(a.n_layers), 3), strict=True):
        x, y = (scores.sign * scores.values[layers[0] : layers[-1] + 1].double().flatten().numpy() for scores in (a, b))
        picked = np.random.default_rng(seed).integers(len(x), size=(n, len(x)))
        low, high = percentile_interval(_spearman(x[picked], y[picked]), level)
        rows.append(
            {
                "third": third,
                "first_layer": int(layers[0]),
                "last_layer": int(layers[-1]),
                "heads": len(x),
                "spearman": float(_spearman(x[None], y[None])[0]),
                "low": float(low),
                "high": float(high),
            }
        )
    return pd.DataFrame(rows)


def _spearman(x: Float[np.ndarray, "sample head"], y: Float[np.ndarray, "sample head"]) -> Float[np.ndarray, " sample"]:
    """Spearman of each row pair: Pearson of mean ranks; NaN where a row is constant."""
    x, y = (scipy_stats.rankdata(values, axis=1) for values in (x, y))
    x, y = x - x.mean(1, keepdims=True), y - y.mean(1, keepdims=True)
    spread = np.sqrt((x**2).sum(1) * (y**2).sum(1))
    return np.divide((x * y).sum(1), spread, out=np.full(len(x), np.nan), where=spread > 0)


def rank_correlation_interval(
    a: HeadScores, b: HeadScores, level: float = 0.95, n: int = 200, seed: int = 0
) -> tuple[float, float, float]:
    """(Spearman, low, high): the trials of either ranking are resampled on their own.

    Resampling adds noise to both rankings, so the interval lies lower than the correlation; it says how much it may vary.
    """
    rho = rank_correlation(a, b)
    one, other = (
        bootstrap_means(scores.sign * scores.per_trial.flatten(1), n, seed + i).numpy()
        for i, scores in enumerate((a, b))
    )
    low, high = percentile_interval(_spearman(one, other), level)
    return rho, float(low), float(high)
