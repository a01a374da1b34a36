"""Would other trials of the same kind give the same ranking?"""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float
from scipy import stats as scipy_stats
from torch import Tensor


def split_half_reliability(values: Float[Tensor, "trial item"], n: int = 100, seed: int = 0) -> float:
    """Spearman between item means of two random halves of the trials, Spearman-Brown corrected, mean over n splits.

    Skips splits in which all items of a half tie. NaN with fewer than two trials, or when every split is skipped.
    """
    trials = len(values)
    generator = np.random.default_rng(seed)
    corrected = []
    for _ in range(n if trials > 1 else 0):
        order = torch.from_numpy(generator.permutation(trials))
        first, second = values[order[: trials // 2]].mean(0), values[order[trials // 2 :]].mean(0)
        if first.unique().numel() > 1 and second.unique().numel() > 1:
            rho = float(scipy_stats.spearmanr(first.numpy(), second.numpy()).statistic)
            corrected.append(2 * rho / (1 + rho) if rho > 0 else rho)  # The correction is meaningless below zero.
    return float(np.mean(corrected)) if corrected else float("nan")
