"""What training did to the heads: scores of one architecture before and after, such as base and fine-tuned."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from lens_heads import stats
from lens_heads.compare.overlap import check_pair
from lens_heads.heads.scores import HeadScores
from lens_heads.heads.units import highest_first

if TYPE_CHECKING:
    import pandas as pd

EPSILON = 1e-6


def compare_checkpoints(
    before: HeadScores,
    after: HeadScores,
    k: int = 20,
    paired: bool | None = None,
    alpha: float = 0.05,
    n: int = 4000,
    seed: int = 0,
) -> pd.DataFrame:
    """Which heads gained or lost a role between two checkpoints of one architecture.

    effect = (I_after - I_before) / (I_after + I_before + 1e-6), I = max(score, 0): 1 for a head that was nothing and is
    something, -1 for the reverse. Scores below zero count as no importance: the ratio has no meaning for them, and a head
    that went from writing against the answer to writing nothing has gained no role. `difference` keeps the sign.

    Args:
        k: heads in either top set.
        paired: resample the trials of both checkpoints together. Default: where both have the very same trials. True needs
            at least two trials in common and takes intervals and p from those; False resamples each side on its own.
        alpha: false discovery rate over the heads in either top set.
        n: bootstrap resamples; p cannot be below 2 / (n + 1).

    Returns one row per head, the largest gain first: head, before, after, difference (after - before) with its 95 %
    interval (low, high), p (two-sided, by bootstrap), effect with effect_low, effect_high, rank_before, rank_after (from 1),
    and status:
        "emergent": in the top k after and not before, with a significant increase;
        "lost": in the top k before and not after, with a significant decrease;
        "kept": in both; "unclear": crossed the border without a significant change; "": in neither.

    Where the lowest scores are best (`localize_heads`), all columns are of the scores with their sign turned.

    Raises ValueError for different methods, units or shapes, k outside 1 to the number of heads, or too few trials.
    """
    import pandas as pd

    check_pair(before, after)
    if before.method != after.method:
        raise ValueError(f"scores of {before.method} and of {after.method}: checkpoints are compared by one method")
    if not before.top(k):
        raise ValueError(f"k={k}: no heads to compare; {before.method} has {before.values.numel()} heads")
    before, after = highest_first(before), highest_first(after)
    means = _resampled(before, after, paired, n, seed)
    ranks = [{head: rank for rank, head in enumerate(scores.ranking(), 1)} for scores in (before, after)]
    rows = []
    gaps, effects = means[1] - means[0], _effect(means[0], means[1])
    bounds, effect_bounds = (np.quantile(x.numpy(), [0.025, 0.975], axis=0) for x in (gaps, effects))
    p = _two_sided(gaps)
    for head in before.ranking():
        one, other, at = (
            before.values[head.layer, head.head],
            after.values[head.layer, head.head],
            (head.layer, head.head),
        )
        row = {"head": str(head), "before": float(one), "after": float(other), "difference": float(other - one)}
        row |= {"low": bounds[0][at], "high": bounds[1][at], "p": float(p[at]), "effect": float(_effect(one, other))}
        row |= {"effect_low": effect_bounds[0][at], "effect_high": effect_bounds[1][at]}
        rows.append(row | {"rank_before": ranks[0][head], "rank_after": ranks[1][head]})
    frame = pd.DataFrame(rows)
    return frame.assign(status=_status(frame, k, alpha)).sort_values("difference", ascending=False, ignore_index=True)


def _resampled(
    before: HeadScores, after: HeadScores, paired: bool | None, n: int, seed: int
) -> list[Float[Tensor, "sample layer head"]]:
    """Bootstrap means of both checkpoints: of the trials they share, in pairs, or of each one's own."""
    shared = [trial for trial in before.trial_ids if trial in set(after.trial_ids)]
    if paired is None:
        paired = len(shared) == len(before.trial_ids) == len(after.trial_ids)
    sides = [before.per_trial, after.per_trial]
    if paired:
        sides = [scores.per_trial[[scores.trial_ids.index(trial) for trial in shared]] for scores in (before, after)]
    if min(len(side) for side in sides) < 2:
        counts = f"{len(shared)} shared" if paired else f"{len(sides[0])} before and {len(sides[1])} after"
        raise ValueError(f"{before.method}: {counts} trials: at least 2 are needed to tell a change from noise")
    return [stats.bootstrap_means(side, n, seed if paired else seed + i) for i, side in enumerate(sides)]


def _effect(before: Float[Tensor, "..."], after: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
    before, after = before.clamp(min=0), after.clamp(min=0)
    return (after - before) / (after + before + EPSILON)


def _two_sided(gaps: Float[Tensor, "sample layer head"]) -> Float[Tensor, "layer head"]:
    """Twice the share of resamples on the rarer side of zero."""
    rarer = torch.minimum((gaps <= 0).sum(0), (gaps >= 0).sum(0))
    return (2 * (rarer + 1) / (len(gaps) + 1)).clamp(max=1)


def _status(frame: pd.DataFrame, k: int, alpha: float) -> list[str]:
    was, is_ = frame["rank_before"] <= k, frame["rank_after"] <= k
    either = (was | is_).to_numpy()
    changed = np.zeros(len(frame), dtype=bool)
    changed[either] = stats.benjamini_hochberg(torch.tensor(frame["p"].to_numpy()[either]), alpha).numpy()
    found = []
    for before, after, clear, gap in zip(was, is_, changed, frame["difference"], strict=True):
        moved = "emergent" if after and clear and gap > 0 else "lost" if before and clear and gap < 0 else "unclear"
        found.append("kept" if before and after else moved if before or after else "")
    return found
