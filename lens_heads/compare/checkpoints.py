"""What training did to the heads: scores of one architecture at two checkpoints, such as base and fine-tuned."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float
from torch import Tensor

from lens_heads.compare.overlap import check_alike, check_pair, top_heads
from lens_heads.heads.grouping import Labels, groups_of
from lens_heads.heads.scores import HeadScores
from lens_heads.heads.units import highest_first
from lens_heads.runs import checks
from lens_heads.runs.typed import typed
from lens_heads.runs.warned import users_line
from lens_heads.stats import (
    Interval,
    benjamini_hochberg,
    bootstrap_means,
    gap_interval,
    mean_interval,
    percentile_interval,
)
from lens_heads.stats.clusters import fewest_clusters, whole_clusters
from lens_heads.stats.intervals import FEWEST


@typed
def compare_checkpoints(
    before: HeadScores,
    after: HeadScores,
    *,
    k: int = 20,
    paired: bool | None = None,
    alpha: float = 0.05,
    n: int = 4000,
    seed: int = 0,
) -> pd.DataFrame:
    """Which heads gained or lost a role between two checkpoints of one architecture.

    effect = (I_after - I_before) / (I_after + I_before + 1e-6), I = max(score, 0): 1 if a head appears from nothing, -1 if
    it vanishes. The ratio is meaningless for negative scores, so they count as zero; `difference` keeps the sign.

    Args:
        k: size of each top set.
        paired: compare the checkpoints trial by trial. By default, only if both have exactly the same trials. True uses the
            trials they share (at least two); False takes both sides as independent.
        alpha: false discovery rate over the heads in either top set.
        n: bootstrap resamples; the smallest possible p is 2 / (n + 1).

    Returns one row per head, largest gain first: head, before, after, difference (after - before), its 95 % interval (low,
    high; of means over trials, by their groups), two-sided bootstrap p, effect with effect_low and effect_high (percentiles of
    resamples, a measure of spread), rank_before, rank_after (from 1), and status:
        "emergent": in the top k after but not before, with a significant increase;
        "lost": in the top k before but not after, with a significant decrease;
        "unclear": in one top k only, without a significant change; "kept": in both; "": in neither.
    Intervals are NaN below five trials, or groups of trials. If the lowest scores are best (`localize_heads`), every column is
    of the negated scores.

    Raises ValueError for different methods, units or shapes, a k not between 1 and the number of heads, or too few trials.

    `before`, `after`: scores by one method. `seed`: of the bootstrap.

    Example:
        >>> found = lh.compare.compare_checkpoints(scores, scores, k=2)
        >>> found[found["status"] == "kept"]["head"].tolist()
        ['L1H0', 'L0H0']
    """
    check_pair(before, after, one_model=False)
    if before.method != after.method:
        raise ValueError(f"methods differ: {before.method} before, {after.method} after. Score both with one method.")
    check_alike(before, after)
    if before.model.weights and before.model == after.model:
        warnings.warn(
            f"both are scores of the same weights ({before.model.weights}): what differs is trials, not checkpoints",
            stacklevel=users_line(),
        )
    top_heads(before, k)
    checks.share("alpha", alpha, "0.05")
    checks.count("n", n)
    checks.seed(seed)
    before, after = highest_first(before), highest_first(after)
    sides, paired = _sides(before, after, paired)
    means = [bootstrap_means(side.whole, n=n, seed=seed if paired else seed + i) for i, side in enumerate(sides)]
    heads, rank_after = before.ranking(), {head: rank for rank, head in enumerate(after.ranking(), 1)}
    gaps, effects = means[1] - means[0], _effect(*means)
    rarer = torch.minimum((gaps <= 0).sum(0), (gaps >= 0).sum(0))  # The side of zero with fewer resamples.
    columns = {"before": before.values, "after": after.values, "difference": after.values - before.values}
    columns |= dict(zip(("low", "high"), _bounds(sides, paired, n, seed)[1:], strict=True))
    columns |= {"p": (2 * (rarer + 1) / (n + 1)).clamp(max=1), "effect": _effect(before.values, after.values)}
    few = min(fewest_clusters(side.groups, len(side.per_trial)) for side in sides) < FEWEST
    ends = percentile_interval(effects.numpy() * np.nan if few else effects.numpy())
    columns |= dict(zip(("effect_low", "effect_high"), ends[1:], strict=True))
    by_head = {name: [float(values[head.layer, head.head]) for head in heads] for name, values in columns.items()}
    frame = pd.DataFrame({"head": [str(head) for head in heads]} | by_head)
    frame["rank_before"] = range(1, len(heads) + 1)
    frame["rank_after"] = [rank_after[head] for head in heads]
    frame["status"] = _status(frame, k, alpha)
    return frame.sort_values("difference", ascending=False, ignore_index=True)


class _Side(NamedTuple):
    """The trials of one checkpoint that are compared, and their groups."""

    per_trial: Float[Tensor, "trial layer head"]
    groups: Labels

    @property
    def whole(self) -> Float[Tensor, "cluster layer head"]:
        """The units of resampling."""
        return torch.from_numpy(whole_clusters(self.per_trial.double().numpy(), self.groups))


def _sides(before: HeadScores, after: HeadScores, paired: bool | None) -> tuple[tuple[_Side, _Side], bool]:
    """Both checkpoints' trials, and whether they are paired: then the shared ones, in the same order."""
    ids_after = set(after.trial_ids)
    shared = [trial for trial in before.trial_ids if trial in ids_after]
    if paired is None:
        paired = len(shared) == len(before.trial_ids) == len(after.trial_ids)
    prompts = [{one.id: one.prompt for one in scores.made_on if one.prompt} for scores in (before, after)]
    other = [id for id in shared if paired and prompts[0].get(id) and prompts[1].get(id) not in (None, prompts[0][id])]
    if other and before.model.weights == after.model.weights:
        raise ValueError(
            f"trial {other[0]!r} is another prompt before than after: give trials ids of their own, or paired=False"
        )
    first, second = (_side(scores, shared if paired else scores.trial_ids) for scores in (before, after))
    if min(len(first.per_trial), len(second.per_trial)) < 2:
        counts = f"{len(shared)} shared"
        if not paired:
            counts = f"{len(first.per_trial)} before and {len(second.per_trial)} after"
        raise ValueError(f"{before.method}: {counts} trials. A bootstrap needs at least 2 per checkpoint.")
    return (first, second), paired


def _side(scores: HeadScores, trials: Sequence[str]) -> _Side:
    known = {one.id: one for one in scores.made_on}
    groups = groups_of(known[trial] for trial in trials) if all(trial in known for trial in trials) else ()
    return _Side(scores.per_trial[[scores.trial_ids.index(trial) for trial in trials]], groups)


def _bounds(sides: tuple[_Side, _Side], paired: bool, n: int, seed: int) -> Interval[Tensor]:
    """The mean of after - before, each value [layer, head]."""
    before, after = sides
    if paired:
        return mean_interval(after.per_trial - before.per_trial, groups=before.groups or after.groups, n=n, seed=seed)
    return gap_interval(after.per_trial, before.per_trial, groups=(after.groups, before.groups), n=n, seed=seed)


def _effect(before: Float[Tensor, "..."], after: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
    before, after = before.clamp(min=0), after.clamp(min=0)
    return (after - before) / (after + before + 1e-6)


def _status(frame: pd.DataFrame, k: int, alpha: float) -> np.ndarray:
    was, now, gap = frame["rank_before"] <= k, frame["rank_after"] <= k, frame["difference"]
    either, changed = was | now, pd.Series(False, frame.index)
    changed[either] = benjamini_hochberg(torch.tensor(frame.loc[either, "p"].to_numpy()), alpha=alpha).numpy()
    cases = [was & now, now & changed & (gap > 0), was & changed & (gap < 0), either]
    return np.select(cases, ["kept", "emergent", "lost", "unclear"], "")
