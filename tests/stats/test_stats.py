"""Statistics against plain loops, scipy, and numbers worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import stats as scipy_stats

from lens_heads import stats


def normal(*shape: int, seed: int = 0, shift: float = 0.0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)) + shift


def test_bootstrap_means_are_means_of_resampled_trials() -> None:
    values = normal(7, 2, 3)
    means = stats.bootstrap_means(values, n=20, seed=3)
    counts = np.random.default_rng(3).multinomial(7, [1 / 7] * 7, size=20)
    for sample in range(20):
        drawn = torch.stack([values[i].double() for i in range(7) for _ in range(counts[sample, i])])
        assert len(drawn) == 7
        torch.testing.assert_close(means[sample], drawn.mean(0), atol=1e-12, rtol=0)


def test_the_interval_agrees_with_scipy() -> None:
    values = normal(60, seed=1, shift=2.0)
    low, high = stats.bootstrap_interval(values, n=5000)
    other = scipy_stats.bootstrap(
        (values.numpy(),), np.mean, n_resamples=5000, method="percentile", rng=np.random.default_rng(0)
    ).confidence_interval
    assert float(low) == pytest.approx(other.low, abs=0.03)
    assert float(high) == pytest.approx(other.high, abs=0.03)


def test_the_interval_covers_as_often_as_it_says() -> None:
    inside = 0
    for seed in range(200):
        low, high = stats.bootstrap_interval(normal(40, seed=seed, shift=1.0), level=0.9, n=300)
        inside += bool(low < 1.0 < high)
    assert 165 <= inside <= 194  # 180 expected, a little fewer for 40 trials.


def test_a_constant_has_an_interval_of_no_width() -> None:
    low, high = stats.bootstrap_interval(torch.full((5, 2), 0.25))
    assert low.tolist() == high.tolist() == [0.25, 0.25]


@pytest.mark.parametrize("level", [0, 1, 95, -0.5])
def test_a_level_that_is_no_probability_is_refused(level: float) -> None:
    with pytest.raises(ValueError, match=f"level={level}"):
        stats.bootstrap_interval(torch.ones(3), level=level)


def test_a_percentile_interval_leaves_samples_out_that_are_not_finite() -> None:
    samples = np.stack(
        [np.arange(101.0), np.where(np.arange(101) < 51, np.arange(101), np.inf), np.full(101, np.nan)], 1
    )
    low, high = stats.percentile_interval(samples, level=0.9)
    assert (low[:2].tolist(), high[:2].tolist()) == (pytest.approx([5, 2.5]), pytest.approx([95, 47.5]))
    assert np.isnan([low[2], high[2]]).all()
    with pytest.raises(ValueError, match="level=1"):
        stats.percentile_interval(samples, level=1)


def test_no_trials_cannot_be_resampled() -> None:
    with pytest.raises(ValueError, match="there are no trials"):
        stats.bootstrap_interval(torch.zeros(0, 2))


def test_benjamini_hochberg_by_hand() -> None:
    # Sorted: .005 .01 .03 .04 .5 against alpha * rank / 5.
    p = torch.tensor([[0.01, 0.04, 0.03], [0.005, 0.5, 0.9]])[:, :].flatten()[:5]
    assert stats.benjamini_hochberg(p, 0.06).tolist() == [True, True, True, True, False]
    assert stats.benjamini_hochberg(p, 0.03).tolist() == [True, False, False, True, False]
    assert not stats.benjamini_hochberg(p, 0.02).any()
    # It steps up: .03 alone is above .05 / 2, but .04 carries it.
    assert stats.benjamini_hochberg(torch.tensor([0.03, 0.04]), 0.05).tolist() == [True, True]
    assert stats.benjamini_hochberg(torch.tensor([0.03, 0.06]), 0.05).tolist() == [False, False]


def test_benjamini_hochberg_keeps_the_shape_and_its_rate() -> None:
    generator = np.random.default_rng(4)
    false_share = []
    for _ in range(60):
        p = torch.from_numpy(generator.uniform(size=(10, 10)))
        p[:2] = p[:2] * 1e-4  # 20 true effects.
        found = stats.benjamini_hochberg(p, 0.1)
        assert found[:2].float().mean() > 0.9
        false_share.append(float(found[2:].sum() / max(int(found.sum()), 1)))
    assert np.mean(false_share) < 0.1


def test_a_single_draw_is_a_plain_bootstrap_and_unequal_draws_widen_it() -> None:
    values = torch.rand(1, 30, generator=torch.Generator().manual_seed(0))
    mean, low, high = stats.bootstrap_over_draws(values)
    expected = stats.bootstrap_interval(values[0])
    assert (mean, low, high) == pytest.approx((float(values.mean()), *map(float, expected)), abs=1e-6)
    shifted = values + torch.tensor([[-0.5], [0.0], [0.5]])
    wide = stats.bootstrap_over_draws(shifted)
    assert wide[0] == pytest.approx(mean)
    assert wide[2] - wide[1] > 3 * (high - low)
