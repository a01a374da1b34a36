"""Would other trials choose the same top k heads? Jaccard between split halves, against chance, and the trials for Jaccard .8.

A circuit that other examples do not find again is a property of the examples (arXiv 2510.00845, which proposes a Jaccard of .8,
with 100 examples).

The curve of Jaccard against trials has one parameter, fitted to several subset sizes. Means of n trials correlate between two
sets of trials by Spearman-Brown, rho(n) = 1 / (1 + c / n), where c is the noise of a trial over the spread of the heads; two
jointly normal rankings with that correlation share a share s of their top k, and Jaccard is s / (2 - s). A power law, such as
1 / J - 1 ~ c / n, is off by a factor of 2 to 8 where most of the way is extrapolated, because its exponent falls from 1 to 1/2
on the way. This curve is right on average in simulations, also for heavy-tailed and skewed scores; single estimates scatter by
a factor of 2 to 3.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Bool, Float
from scipy import optimize
from scipy import stats as scipy_stats

from lens_heads.runs import checks
from lens_heads.runs.drawn import Tabled
from lens_heads.runs.typed import typed

if TYPE_CHECKING:
    import pandas as pd

SMALLEST, SIZES, FARTHEST = 4, 5, 50
"""The smallest subset of the curve, how many sizes it has at most, and how many times the trials it is extrapolated to."""


@dataclass(frozen=True)
class TopKStability(Tabled):
    """How well two halves of the trials agree about the top k heads.

    `jaccard`: mean over splits; NaN below two trials. `expected`: of two random sets of k heads; `chance`: what 95 % of two
    random sets lie between. `curve`: mean Jaccard by the number of trials in each of two disjoint subsets. `needed`: the number
    of trials with which another set as large would give a mean Jaccard of `target`, at least the smallest size of the curve. NaN
    if the curve does not rise, has fewer than two sizes, or would be extrapolated to more than 50 times the trials, and if two
    random sets reach the target.

    Example:
        >>> same = np.tile([3.0, 2.0, 1.0, 0.0], (8, 1))
        >>> found = lh.stats.top_k_stability(same, k=2)
        >>> found.jaccard, round(found.expected, 2)
        (1.0, 0.39)
    """

    k: int
    heads: int
    trials: int
    jaccard: float
    expected: float
    chance: tuple[float, float]
    curve: dict[int, float]
    target: float
    needed: float

    @property
    def frame(self) -> pd.DataFrame:
        """A row per size of the curve: trials, jaccard; and what all share: k, expected, low and high of `chance`."""
        import pandas as pd

        rows = pd.DataFrame({"trials": self.curve.keys(), "jaccard": self.curve.values()})
        return rows.assign(k=self.k, expected=self.expected, low=self.chance[0], high=self.chance[1])


@typed
def top_k_stability(
    per_trial: Float[np.ndarray, "trial head"], *, k: int, n_splits: int = 100, seed: int = 0, target: float = 0.8
) -> TopKStability:
    """Mean Jaccard of the top k heads of random halves of the trials, beside chance, and the trials that `target` takes.

    Scores of either sign, the highest on top; heads that tie are put in a random order.

    Raises ValueError for scores that are no [trial, head] table or not finite, for k beyond the number of heads, and for a
    target that is not between 0 and 1.

    `per_trial`: every trial's score of every head. `n_splits`: how many times it is halved; `seed`: of the halves and of
        ties.

    Example:
        >>> scores = np.tile([3.0, 2.0, 1.0, 0.0], (8, 1))
        >>> lh.stats.top_k_stability(scores, k=2).jaccard  # The same two heads in every half.
        1.0
    """
    values = checks.finite_values("per_trial", per_trial)
    if values.ndim != 2 or values.shape[1] == 0:
        raise ValueError(f"per_trial of shape {list(values.shape)}: must be [trial, head], with at least one head")
    trials, heads = values.shape
    k, n_splits = checks.whole_number("k", k, 1, heads), checks.count("n_splits", n_splits)
    target, rng = checks.share("target", target, "0.8"), np.random.default_rng(checks.seed(seed))
    half = trials // 2
    sizes = np.unique(np.geomspace(min(SMALLEST, half), half, SIZES).round().astype(int)).tolist() if half else []
    curve = {size: _agreement(values, k, size, n_splits, rng) for size in sizes}
    shared = scipy_stats.hypergeom(heads, k, k)
    low, high = _jaccard(np.asarray(shared.ppf([0.025, 0.975])), k).tolist()
    possible = np.arange(k + 1)
    expected = float(shared.pmf(possible) @ _jaccard(possible, k))
    found = curve[half] if half else math.nan
    return TopKStability(
        k, heads, trials, found, expected, (low, high), curve, target, _needed(curve, k / heads, target, trials)
    )


def _agreement(
    values: Float[np.ndarray, "trial head"], k: int, size: int, n_splits: int, rng: np.random.Generator
) -> float:
    """Mean Jaccard between the top k heads of two disjoint random subsets of `size` trials."""
    places = rng.random((n_splits, len(values))).argsort(1).argsort(1)
    first, second = (
        _top(chosen @ values, k, rng) for chosen in (places < size, (size <= places) & (places < 2 * size))
    )
    return float(_jaccard((first & second).sum(1), k).mean())


def _top(sums: Float[np.ndarray, "split head"], k: int, rng: np.random.Generator) -> Bool[np.ndarray, "split head"]:
    """Which heads are among the top k of their split; ties in a random order."""
    best = np.lexsort((rng.random(sums.shape), -sums))[:, :k]
    top = np.zeros(sums.shape, dtype=bool)
    np.put_along_axis(top, best, True, axis=1)
    return top


def _jaccard(shared: Float[np.ndarray, "*set"], k: int) -> Float[np.ndarray, "*set"]:
    """Jaccard of two sets of k that share so many."""
    return shared / (2 * k - shared)


def _needed(curve: dict[int, float], share: float, target: float, trials: int) -> float:
    """The trials at which the fitted curve reaches the target; `share` is k over the number of heads."""
    sizes, seen = np.array(list(curve)), np.array(list(curve.values()))
    if len(sizes) < 2 or share == 1 or _of_correlation(0.0, share) >= target:
        return math.nan
    if seen.min() >= target:
        return float(sizes[0])
    if seen[-1] <= seen[0]:
        return math.nan

    def misfit(log_noise: float) -> float:
        fitted = [_of_correlation(1 / (1 + math.exp(log_noise) / size), share) for size in sizes]
        return float(((np.array(fitted) - seen) ** 2).sum())

    noise = math.exp(optimize.minimize_scalar(misfit, bounds=(-7.0, 14.0), method="bounded").x)
    reached = optimize.brentq(lambda rho: _of_correlation(rho, share) - target, 0.0, 1 - 1e-9)
    needed = noise * reached / (1 - reached)
    return float(max(math.ceil(needed), sizes[0])) if needed <= FARTHEST * trials else math.nan


def _of_correlation(rho: float, share: float) -> float:
    """Jaccard between the top `share` of two standard normal variables that correlate by rho."""
    low = [scipy_stats.norm.ppf(share)] * 2
    both = scipy_stats.multivariate_normal.cdf(low, cov=[[1.0, rho], [rho, 1.0]]) / share
    return float(both / (2 - both))
