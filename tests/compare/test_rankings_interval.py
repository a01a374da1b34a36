"""The interval of a rank correlation resamples the trials of both rankings."""

from __future__ import annotations

import math

import pytest
import torch
from scipy.stats import spearmanr

from lens_heads.compare import rank_correlation_interval
from lens_heads.heads.scores import HeadScores


def scores(noise: float, seed: int, trials: int = 20) -> HeadScores:
    order = torch.arange(12.0).reshape(1, 3, 4)
    spread = noise * torch.randn(trials, 3, 4, generator=torch.Generator().manual_seed(seed))
    return HeadScores.from_trials(f"m{seed}", order + spread, [str(i) for i in range(trials)])


def test_clear_rankings_have_a_narrow_interval_and_noisy_ones_a_wide_one() -> None:
    clear = rank_correlation_interval(scores(0.01, 0), scores(0.01, 1))
    assert clear == pytest.approx((1, 1, 1))
    a, b = scores(20, 2), scores(20, 3)
    rho, low, high = rank_correlation_interval(a, b)
    assert rho == pytest.approx(spearmanr(a.values.flatten(), b.values.flatten()).statistic)
    assert low < high
    assert high - low > 0.2


def test_four_trials_have_no_interval() -> None:
    rho, low, high = rank_correlation_interval(scores(20, 2, trials=4), scores(20, 3))
    assert -1 <= rho <= 1
    assert math.isnan(low)
    assert math.isnan(high)
