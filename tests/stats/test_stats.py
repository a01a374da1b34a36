"""Statistics against plain loops, scipy, and numbers worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch

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


def test_a_percentile_interval_leaves_samples_out_that_are_not_finite() -> None:
    samples = np.stack(
        [np.arange(101.0), np.where(np.arange(101) < 51, np.arange(101), np.inf), np.full(101, np.nan)], 1
    )
    value, low, high = stats.percentile_interval(samples, level=0.9)
    assert value[:2].tolist() == pytest.approx([50, 25])
    assert np.isnan(value[2])
    assert (low[:2].tolist(), high[:2].tolist()) == (pytest.approx([5, 2.5]), pytest.approx([95, 47.5]))
    assert np.isnan([low[2], high[2]]).all()
    with pytest.raises(ValueError, match="level=1"):
        stats.percentile_interval(samples, level=1)


def test_benjamini_hochberg_by_hand() -> None:
    # Sorted: .005 .01 .03 .04 .5 against alpha * rank / 5.
    p = torch.tensor([[0.01, 0.04, 0.03], [0.005, 0.5, 0.9]])[:, :].flatten()[:5]
    assert stats.benjamini_hochberg(p, alpha=0.06).tolist() == [True, True, True, True, False]
    assert stats.benjamini_hochberg(p, alpha=0.03).tolist() == [True, False, False, True, False]
    assert not stats.benjamini_hochberg(p, alpha=0.02).any()
    # It steps up: .03 alone is above .05 / 2, but .04 carries it.
    assert stats.benjamini_hochberg(torch.tensor([0.03, 0.04]), alpha=0.05).tolist() == [True, True]
    assert stats.benjamini_hochberg(torch.tensor([0.03, 0.06]), alpha=0.05).tolist() == [False, False]


def test_benjamini_hochberg_keeps_the_shape_and_its_rate() -> None:
    generator = np.random.default_rng(4)
    false_share = []
    for _ in range(60):
        p = torch.from_numpy(generator.uniform(size=(10, 10)))
        p[:2] = p[:2] * 1e-4  # 20 true effects.
        found = stats.benjamini_hochberg(p, alpha=0.1)
        assert found[:2].float().mean() > 0.9
        false_share.append(float(found[2:].sum() / max(int(found.sum()), 1)))
    assert np.mean(false_share) < 0.1


def test_tab_shows_what_is_public() -> None:
    assert dir(stats) == sorted(stats.__all__)
    assert all(hasattr(stats, name) for name in stats.__all__)
