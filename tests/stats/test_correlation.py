"""Correlations, what strata and covariates explain, and reliability: against scipy, least squares, and by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import stats as scipy_stats

from lens_heads import stats
from lens_heads.stats.correlation import covariate_basis, pearson, spearman, within_strata

STRATA = np.array([0, 1, 0, 2, 1, 0, 2, 2, 1])


def test_batches_of_correlations_are_scipys() -> None:
    x, y = np.random.default_rng(0).integers(0, 6, size=(2, 5, 9)).astype(float)
    for i in range(5):
        assert pearson(x, y)[i] == pytest.approx(scipy_stats.pearsonr(x[i], y[i]).statistic)
        assert spearman(x, y)[i] == pytest.approx(scipy_stats.spearmanr(x[i], y[i]).statistic)
    assert np.isnan(pearson(np.ones((1, 4)), y[:1, :4])).all()
    assert np.isnan(spearman(x[0], np.zeros(9)))


def test_within_strata_is_minus_the_mean_of_the_own_stratum() -> None:
    values = np.random.default_rng(1).normal(size=(2, 4, 9))
    found = within_strata(values, STRATA)
    for place in np.ndindex(2, 4):
        for task in range(9):
            members = [other for other in range(9) if STRATA[other] == STRATA[task]]
            mean = sum(values[place][other] for other in members) / len(members)
            assert found[place][task] == pytest.approx(values[place][task] - mean)


def test_the_basis_gives_least_squares_residuals_at_every_k() -> None:
    rng = np.random.default_rng(2)
    covariates, values = rng.normal(size=(2, 3, 9)), rng.normal(size=(3, 9))
    basis = covariate_basis(covariates, STRATA)
    for k in range(3):
        design = np.column_stack([*(code == STRATA for code in range(3)), *covariates[:, k]]).astype(float)
        fitted = design @ np.linalg.lstsq(design, values[k], rcond=None)[0]
        inside = within_strata(values[k], STRATA)
        np.testing.assert_allclose(inside - basis[k] @ (basis[k].T @ inside), values[k] - fitted, atol=1e-12)
        np.testing.assert_allclose(basis[k].T @ basis[k], np.eye(2), atol=1e-12)


def test_a_covariate_that_adds_nothing_takes_nothing() -> None:
    """One repeated, one of zeros, and one that only says which stratum a task is in."""
    own = np.random.default_rng(3).normal(size=9)
    basis = covariate_basis(np.stack([own, 2 * own + 7, 0 * own, 1e6 + 5.0 * STRATA])[:, None], STRATA)
    assert (basis**2).sum() == pytest.approx(1)
    projected = basis[0] @ (basis[0].T @ within_strata(own, STRATA))
    np.testing.assert_allclose(projected, within_strata(own, STRATA), atol=1e-12)


def test_reliability_of_two_trials_is_their_spearman_stepped_up() -> None:
    first, second = torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0]), torch.tensor([1.0, 3.0, 2.0, 4.0, 5.0])
    rho = 1 - 6 * 2 / (5 * 24)  # Two ranks differ by one each: 0.9.
    found = stats.split_half_reliability(torch.stack([first, second]), n=5)
    assert found == pytest.approx(2 * rho / (1 + rho))


def test_reliability_is_the_mean_over_all_halvings() -> None:
    generator = torch.Generator().manual_seed(7)
    values = torch.randn(4, 9, generator=generator) + 2 * torch.randn(9, generator=generator)
    exact = []
    for half in ((0, 1), (0, 2), (0, 3)):
        rest = [i for i in range(4) if i not in half]
        rho = scipy_stats.spearmanr(values[list(half)].mean(0), values[rest].mean(0)).statistic
        exact.append(2 * rho / (1 + rho) if rho > 0 else rho)
    assert stats.split_half_reliability(values, n=3000) == pytest.approx(np.mean(exact), abs=0.01)


def test_reversed_halves_are_not_stepped_up() -> None:
    up = torch.arange(6.0)
    assert stats.split_half_reliability(torch.stack([up, -up]), n=3) == pytest.approx(-1)


def test_degenerate_reliability_is_not_a_number() -> None:
    assert np.isnan(stats.split_half_reliability(torch.zeros(1, 5)))
    assert np.isnan(stats.split_half_reliability(torch.zeros(6, 5)))
    assert np.isnan(stats.split_half_reliability(torch.randn(6, 1)))
