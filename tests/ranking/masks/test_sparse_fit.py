"""What a fit says of itself: the refit, r2, stability and intervals, each against a plain loop."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats as scipy_stats
from sklearn.linear_model import Lasso
from sklearn.model_selection import KFold

from lens_heads.ranking.masks.designs import draw_masks
from lens_heads.ranking.masks.sparse_fit import _Task, fit, solve_masks
from tests.ranking.masks.linear import BASE, PLANTED, TRUE, planted


def test_the_refit_is_least_squares_on_the_support_for_every_trial() -> None:
    masks, response = planted(trials=7, noise=0.1)
    for method, base in (("lasso", None), ("paper", np.linspace(0.7, 0.9, 7))):
        found = fit(masks, response, method=method, base=base, n_bootstrap=1, n_stability=1)
        assert 3 <= found.support.sum() < 40
        design = masks[:, found.support].astype(float)
        if method == "lasso":
            design = np.c_[np.ones(60), design]
        by_trial = np.linalg.lstsq(design, response - (0 if base is None else base), rcond=None)[0]
        np.testing.assert_allclose(found.per_trial[:, found.support].T, by_trial[-found.support.sum() :], atol=1e-12)
        assert (found.per_trial[:, ~found.support] == 0).all()
        np.testing.assert_allclose(found.per_trial.mean(0), found.coefficients, atol=1e-14)
        assert found.intercept == pytest.approx(by_trial[0].mean() if method == "lasso" else 0.8)
        np.testing.assert_allclose(
            solve_masks(masks, response.mean(1), method=method, base=0.8), found.coefficients, atol=1e-12
        )


def test_heads_that_are_always_ablated_together_share_their_cost() -> None:
    masks, _ = planted()
    masks[:, 0, 0] = masks[:, 2, 1]
    found = solve_masks(masks, BASE - 0.3 * masks[:, 2, 1], method="elastic_net")
    assert found[0, 0] == pytest.approx(-0.15)
    assert found[2, 1] == pytest.approx(-0.15)


def test_shrunk_coefficients_on_request() -> None:
    masks, response = planted()
    whole, shrunk = (fit(masks, response, debias=debias, n_bootstrap=1, n_stability=1) for debias in (True, False))
    np.testing.assert_array_equal(shrunk.coefficients, whole.raw)
    np.testing.assert_array_equal(shrunk.per_trial, whole.per_trial)
    assert abs(whole.coefficients).sum() > abs(whole.raw).sum()
    assert whole.r2 > shrunk.r2  # Least squares: no other coefficients on the support explain more.


@pytest.mark.slow
def test_r2_of_masks_that_were_left_out() -> None:
    masks, response = planted(noise=0.1)
    for method, base in (("lasso", None), ("paper", BASE)):
        found = fit(masks, response, method=method, base=base, n_bootstrap=1, n_stability=1)
        error = total = 0.0
        for rows, out in KFold(5, shuffle=True, random_state=0).split(response):
            part = fit(masks[rows], response[rows], method=method, base=base, n_bootstrap=1, n_stability=1)
            predicted = part.intercept + (masks[out] * part.coefficients).sum((1, 2))
            error += ((response[out] - predicted) ** 2).sum()
            total += ((response[out] - response[rows].mean()) ** 2).sum()
        assert found.held_out_r2 == pytest.approx(1 - error / total)
        left = response - found.intercept - (masks * found.coefficients).sum((1, 2))
        assert found.r2 == pytest.approx(1 - (left @ left) / ((response - response.mean()) ** 2).sum(), abs=1e-9)
        assert 0 < found.held_out_r2 < found.r2 < 1


def test_noise_explains_masks_in_sample_only() -> None:
    masks, _ = planted()
    held_out, in_sample = [], []
    for seed in range(5):
        found = fit(
            masks, np.random.default_rng(seed).standard_normal(60), method="script", n_bootstrap=1, n_stability=1
        )
        held_out.append(found.held_out_r2)
        in_sample.append(found.r2)
    assert min(in_sample) > 0.6
    assert max(held_out) < 0


def test_stability_is_the_share_of_halves_that_find_the_head() -> None:
    masks, response = planted(noise=0.06)
    found = fit(masks, response, n_bootstrap=1, n_stability=25, seed=3)
    generator, negative = np.random.default_rng(3), np.zeros(48)
    for _ in range(25):
        half = generator.permutation(60)[:30]
        negative += Lasso(found.alpha, max_iter=5000).fit(masks[half].reshape(30, -1), response[half]).coef_ < 0
    np.testing.assert_allclose(found.stability.ravel(), negative / 25)
    others = np.delete(found.stability.ravel(), PLANTED)
    assert found.stability.ravel()[list(PLANTED)].min() > others.max() > 0
    assert found.stability.ravel()[9] < 0.2, "ablating it helps, which is not what stability counts"


def test_the_interval_resamples_masks_with_the_support_fixed() -> None:
    masks, response = planted(noise=0.05)
    found = fit(masks, response, n_bootstrap=300, n_stability=1, seed=1)
    generator, chosen = np.random.default_rng(1), masks[:, found.support]
    samples = np.full((300, chosen.shape[1]), np.nan)
    for sample in samples:
        rows = generator.integers(60, size=60)
        told = chosen[rows].any(0) & ~chosen[rows].all(0)
        solution, _, rank, _ = np.linalg.lstsq(np.c_[np.ones(60), chosen[rows][:, told]], response[rows], rcond=None)
        if rank == told.sum() + 1:
            sample[told] = solution[1:]
    low, high = np.nanquantile(samples, [0.025, 0.975], axis=0)
    ablated, centre = chosen.sum(0), found.per_trial.mean(0)[found.support]
    fewer = np.minimum(ablated, 60 - ablated)
    widened = scipy_stats.t.ppf(0.975, fewer - 1) / scipy_stats.norm.ppf(0.975)
    widened *= np.sqrt(fewer / (fewer - 1)) * np.sqrt(60 / (60 - chosen.shape[1] - 1))
    low, high = (centre + widened * (end - centre) for end in (low, high))
    np.testing.assert_allclose(found.low[found.support], low, atol=1e-9)
    np.testing.assert_allclose(found.high[found.support], high, atol=1e-9)
    assert np.isnan(found.low[~found.support]).all()
    assert (found.low < found.high)[found.support].all()
    at = np.isin(np.arange(48), PLANTED).reshape(6, 8)
    assert (found.high[at] < 0).all()
    assert ((found.low[at] < TRUE[list(PLANTED)]) & (TRUE[list(PLANTED)] < found.high[at])).all()


@pytest.mark.slow
@pytest.mark.parametrize(("n_masks", "others"), [(150, 0.0), (150, 0.1), (60, 0.05)])
def test_intervals_hold_the_coefficients_of_heads_that_matter(n_masks: int, others: float) -> None:
    """At the sizes used: 72 heads, 6 % ablated, five that matter; all others may matter a little."""
    rng, fixed, chosen = np.random.default_rng(0), [], []
    for seed in range(20):
        masks, truth, at = (
            draw_masks("stratified", n_masks, 18, 4, 0.06, seed=seed),
            others * rng.normal(size=72),
            slice(0, 5),
        )
        order = rng.permutation(72)
        truth[order[at]] = -rng.uniform(0.5, 3, 5)
        response = masks.reshape(n_masks, -1) @ truth + 0.3 * rng.normal(size=n_masks)
        task = _Task.checked(masks, response, "lasso", None, None, 0)
        for support, held in ((np.isin(np.arange(72), order[at]), fixed), (task.solve()[0] != 0, chosen)):
            if support.sum() <= n_masks / 3:  # `fit` warns of more.
                low, high = task.interval(support, 300)
                held += ((low <= truth) & (truth <= high))[order[at]][support[order[at]]].tolist()
    assert np.mean(fixed) >= 0.93
    assert len(chosen) < 50 or np.mean(chosen) >= 0.93


def test_more_heads_than_masks_can_tell_are_named_and_have_no_interval() -> None:
    masks, response = planted(n_masks=15, noise=0.2)
    with pytest.warns(UserWarning, match=r"script chose \d+ heads from 15 masks.*choose fewer heads"):
        found = fit(masks, response, method="script", alpha=1e-4, n_bootstrap=50, n_stability=2)
    assert found.support.sum() > 5
    told = masks.reshape(15, -1)[:, found.support.ravel()]
    assert np.linalg.matrix_rank(told - told.mean(0)) < told.shape[1], "the masks do not tell them apart"
    assert np.isnan(found.low[found.support]).all()
