"""What training did to the heads: scores of one architecture at two checkpoints, such as base and fine-tuned."""

from __future__ import annotations

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float
from torch import Tensor

from lens_heads.compare.overlap import check_pair, top_heads
from lens_heads.heads.scores import HeadScores
from lens_heads.heads.units import highest_first
from lens_heads.runs import checks
from lens_heads.stats import benjamini_hochberg, bootstrap_means, percentile_interval


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

    effect = (I_after - I_before) / (I_after + I_before + 1e-6), I = max(score, 0): 1 if a head appears from nothing, -1 if
    it vanishes. The ratio is meaningless for negative scores, so they count as zero; `difference` keeps the sign.

    Args:
        k: size of each top set.
        paired: resample the trials of both checkpoints together. By default, only if both have exactly the same trials.
            True uses the trials they share (at least two); False resamples each side independently.
        alpha: false discovery rate over the heads in either top set.
        n: bootstrap resamples; the smallest possible p is 2 / (n + 1).

    Returns one row per head, largest gain first: head, before, after, difference (after - before), its 95 % interval (low,
    high) and two-sided bootstrap p, effect with effect_low and effect_high, rank_before, rank_after (from 1), and status:
        "emergent": in the top k after but not before, with a significant increase;
        "lost": in the top k before but not after, with a significant decrease;
        "unclear": in one top k only, without a significant change; "kept": in both; "": in neither.
    If the lowest scores are best (`localize_heads`), every column is of the negated scores.

    Raises ValueError for different methods, units or shapes, a k not between 1 and the number of heads, or too few trials.
    """
    check_pair(before, after, one_model=False)
    if before.method != after.method:
        raise ValueError(f"methods differ: {before.method} before, {after.method} after. Score both with one method.")
    top_heads(before, k)
    checks.share("alpha", alpha, "0.05")
    checks.whole_number("n", n)
    checks.seed(seed)
    before, after = highest_first(before), highest_first(after)
    means = _resampled(before, after, paired, n, seed)
    heads, rank_after = before.ranking(), {head: rank for rank, head in enumerate(after.ranking(), 1)}
    gaps, effects = means[1] - means[0], _effect(*means)
    rarer = torch.minimum((gaps <= 0).sum(0), (gaps >= 0).sum(0))  # The side of zero with fewer resamples.
    columns = {"before": before.values, "after": after.values, "difference": after.values - before.values}
    columns |= dict(zip(("low", "high"), percentile_interval(gaps.numpy()), strict=True))
    columns |= {"p": (2 * (rarer + 1) / (n + 1)).clamp(max=1), "effect": _effect(before.values, after.values)}
    columns |= dict(zip(("effect_low", "effect_high"), percentile_interval(effects.numpy()), strict=True))
    by_head = {name: [float(values[head.layer, head.head]) for head in heads] for name, values in columns.items()}
    frame = pd.DataFrame({"head": [str(head) for head in heads]} | by_head)
    frame["rank_before"] = range(1, len(heads) + 1)
    frame["rank_after"] = [rank_after[head] for head in heads]
    frame["status"] = _status(frame, k, alpha)
    return frame.sort_values("difference", ascending=False, ignore_index=True)


def _resampled(
    before: HeadScores, after: HeadScores, paired: bool | None, n: int, seed: int
) -> list[Float[Tensor, "sample layer head"]]:
    """Bootstrap means of both checkpoints: of shared trials in pairs, or of each one's own."""
    ids_after = set(after.trial_ids)
    shared = [trial for trial in before.trial_ids if trial in ids_after]
    if paired is None:
        paired = len(shared) == len(before.trial_ids) == len(after.trial_ids)
    sides = [before.per_trial, after.per_trial]
    if paired:
        sides = [scores.per_trial[[scores.trial_ids.index(trial) for trial in shared]] for scores in (before, after)]
    if min(map(len, sides)) < 2:
        counts = f"{len(shared)} shared" if paired else f"{len(sides[0])} before and {len(sides[1])} after"
        raise ValueError(f"{before.method}: {counts} trials. A bootstrap needs at least 2 per checkpoint.")
    return [bootstrap_means(side, n, seed if paired else seed + i) for i, side in enumerate(sides)]


def _effect(before: Float[Tensor, "..."], after: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
    before, after = before.clamp(min=0), after.clamp(min=0)
    return (after - before) / (after + before + 1e-6)


def _status(frame: pd.DataFrame, k: int, alpha: float) -> np.ndarray:
    was, now, gap = frame["rank_before"] <= k, frame["rank_after"] <= k, frame["difference"]
    either, changed = was | now, pd.Series(False, frame.index)
    changed[either] = benjamini_hochberg(torch.tensor(frame.loc[either, "p"].to_numpy()), alpha).numpy()
    cases = [was & now, now & changed & (gap > 0), was & changed & (gap < 0), either]
    return np.select(cases, ["kept", "emergent", "lost", "unclear"], "")
