"""Rankings of all heads: do two methods agree (overall, and by depth), and one ranking from the trials of several tasks."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import numpy as np
import pandas as pd
import torch
from scipy.stats import kendalltau
from torch import Tensor

from lens_heads.compare.overlap import check_alike, check_pair
from lens_heads.heads.named import AnyRankings, by_name
from lens_heads.heads.scores import HeadScores
from lens_heads.runs import checks
from lens_heads.runs.typed import typed
from lens_heads.stats import Interval, bootstrap_means, percentile_interval
from lens_heads.stats.correlation import spearman
from lens_heads.stats.intervals import FEWEST


@typed
def rank_biased_overlap(a: HeadScores, b: HeadScores, *, p: float = 0.9) -> float:
    """Rank-biased overlap of two full rankings   (Webber, Moffat & Zobel, ACM TOIS 28(4), 2010, RBO_ext, eq. 23)

    A_d = fraction of the top d heads that both rankings share;  RBO = (1 - p) * sum_{d=1}^{n} p^(d-1) A_d + p^n A_n.
    The last term extrapolates the agreement at full depth, where A_n = 1. The result is 1 for equal rankings, at most p^m if
    the top m heads are disjoint, and never 0. A smaller p puts more weight on the top ranks: with p = 0.9, the first ten have
    86 % of the weight. Ties are broken by layer, then head.

    Raises ValueError if the scores have different shapes or units, or if p is not strictly between 0 and 1.

    `a`, `b`: scores of one model.

    Example:
        >>> round(lh.compare.rank_biased_overlap(scores, scores), 6)
        1.0
    """
    check_pair(a, b)
    checks.share("p", p, "0.9")
    in_b = {head: depth for depth, head in enumerate(b.ranking())}
    shared = np.bincount([max(depth, in_b[head]) for depth, head in enumerate(a.ranking())]).cumsum()
    depths = np.arange(1, len(shared) + 1)
    return min(1.0, float((1 - p) * (p ** (depths - 1) * shared / depths).sum() + p ** len(shared)))


@typed
def rank_correlation(a: HeadScores, b: HeadScores, *, kind: Literal["spearman", "kendall"] = "spearman") -> float:
    """Spearman's rho or Kendall's tau-b between the scores of all heads.

    Ties share their mean rank, unlike in `HeadScores.ranking`. NaN if a method gives all heads the same score.

    Raises ValueError if the scores have different shapes or units, or for an unknown kind.

    `a`, `b`: scores of one model.

    Example:
        >>> round(lh.compare.rank_correlation(scores, scores), 6)
        1.0
    """
    check_pair(a, b)
    if kind not in ("spearman", "kendall"):
        raise ValueError(f"kind={kind!r}: must be 'spearman' or 'kendall'")
    x, y = (scores.sign * scores.flat.double().numpy() for scores in (a, b))
    return float(spearman(x, y) if kind == "spearman" else kendalltau(x, y).statistic)


@typed
def by_layer_third(a: HeadScores, b: HeadScores, *, level: float = 0.95, n: int = 1000, seed: int = 0) -> pd.DataFrame:
    """Spearman correlation of two methods' scores within the early, middle and late third of the layers.

    A correlation over all layers mixes agreement on depth with agreement on heads; this shows what remains within a third.

    Columns: third; first_layer, last_layer (inclusive; earlier thirds take the surplus layers); heads; spearman; low, high:
    percentiles of n resamples of the third's heads, which tell spread over heads, not over trials. NaN if a method gives all
    heads of a third the same score.

    Raises ValueError if the scores have different shapes or units, for fewer than three layers, or a level outside 0 to 1.

    `a`, `b`: scores of one model. `seed`: of the resamples.

    Example:
        >>> both = lh.rank(untrained, trials, ["locos", "dla"])
        >>> lh.compare.by_layer_third(both["locos"], both["dla"])[["third", "first_layer", "last_layer", "heads"]]
            third  first_layer  last_layer  heads
        0   early            0           0      4
        1  middle            1           1      4
        2    late            2           2      4
    """
    check_pair(a, b)
    checks.level(level)
    checks.count("n", n)
    checks.seed(seed)
    if a.n_layers < 3:
        raise ValueError(f"{a.method} has {a.n_layers} layers, and thirds need at least 3. Use rank_correlation.")
    rows = []
    for third, layers in zip(("early", "middle", "late"), np.array_split(np.arange(a.n_layers), 3), strict=True):
        x, y = (scores.sign * scores.values[layers][a.there[layers]].double().numpy() for scores in (a, b))
        picked = np.random.default_rng(seed).integers(len(x), size=(n, len(x)))
        _, low, high = percentile_interval(spearman(x[picked], y[picked]), level=level)
        row = {"third": third, "first_layer": int(layers[0]), "last_layer": int(layers[-1]), "heads": len(x)}
        rows.append(row | {"spearman": float(spearman(x, y)), "low": float(low), "high": float(high)})
    return pd.DataFrame(rows)


@typed
def rank_correlation_interval(
    a: HeadScores, b: HeadScores, *, level: float = 0.95, n: int = 200, seed: int = 0
) -> Interval[float]:
    """Spearman with bounds, the trials of the two rankings resampled independently.

    Bounds are percentiles of n resamples. Resampling adds noise to both rankings, so they are centred below the correlation;
    read them as a measure of spread. NaN if a ranking has fewer than five trials.

    `a`, `b`: scores of one model. `level`: of the interval. `seed`: of the resamples.

    Example:
        >>> value, low, high = lh.compare.rank_correlation_interval(scores, scores)
        >>> round(value, 6), low <= high
        (1.0, True)
    """
    checks.level(level)
    checks.count("n", n)
    checks.seed(seed)
    rho = rank_correlation(a, b)
    sides = [(scores.sign * scores.flat_trials, seed + i) for i, scores in enumerate((a, b))]
    if min(len(values) for values, _ in sides) < FEWEST:
        return Interval(rho, math.nan, math.nan, level)
    x, y = (bootstrap_means(values, n=n, seed=own_seed).numpy() for values, own_seed in sides)
    _, low, high = percentile_interval(spearman(x, y), level=level)
    return Interval(rho, float(low), float(high), level)


@typed
def pool_scores(rankings: AnyRankings) -> HeadScores:
    """The scores of one method over the trials of all tasks, as if they had been scored together.

    Every trial counts once, so a task with more trials weighs more. `meta` is the first task's, with all trials and outcomes.

    Raises ValueError for no tasks, scores of different models or methods, a trial in two tasks, and scores with an explicit
    `order` (`localize_heads`), which cannot be pooled.

    `rankings`: by task.

    Example:
        >>> both = {"first": scores, "second": lh.rank(model, others, "locos")["locos"]}
        >>> pooled = lh.compare.pool_scores(both)
        >>> len(pooled.trial_ids), pooled.top(2) == heads
        (16, True)
    """
    named = by_name(rankings)
    every = list(named.values())
    name, first = next(iter(named.items()))
    for task, found in named.items():
        check_pair(first, found)
        if found.method != first.method:
            raise ValueError(f"{name} uses {first.method}, but {task} uses {found.method}. Pool scores of one method.")
        check_alike(first, found)
        if found.order:
            raise ValueError(f"{task}: {found.method} has an explicit order of heads. Localize on all trials instead.")
        if found.model.name != first.model.name:
            raise ValueError(f"{name} scores {first.model}, but {task} scores {found.model}. Pool scores of one model.")
    ids = [trial for found in every for trial in found.trial_ids]
    trial, times = max(Counter(ids).items(), key=lambda item: item[1], default=("", 0))
    if times > 1:
        raise ValueError(f"trial {trial!r} would count {times} times. Keep each trial in one task.")
    trials = [trial for found in every for trial in found.meta.get("trials", ())]
    outcomes = sum((Counter(found.outcomes) for found in every), Counter[str]())
    per_trial = torch.cat([found.per_trial for found in every])
    return replace(
        first,
        values=per_trial.mean(0),
        per_trial=per_trial,
        trial_ids=tuple(ids),
        meta={**first.meta, "trials": trials, "n_trials": len(trials)},
        outcomes=dict(outcomes),
        settings={what: value for what, value in first.settings.items() if all(what in one.settings for one in every)},
        null=_pooled_null(every),
        evaluations=sum(found.evaluations for found in every),
        base=None,
        fit={},
        made_on=tuple(trial for found in every for trial in found.made_on),
    )


def _pooled_null(every: Sequence[HeadScores]) -> Tensor | None:
    """The mean of the nulls over all trials; None if some have none, or another number of draws."""
    nulls = [found.null for found in every]
    if any(null is None or null.shape != nulls[0].shape for null in nulls):  # type: ignore[union-attr]  # the first is one
        return None
    weights = torch.tensor([float(len(found.trial_ids)) for found in every])
    return (torch.stack(nulls) * (weights / weights.sum())[:, None, None, None]).sum(0)  # type: ignore[arg-type]  # none is None
