"""Sparse recovery against plain loops, optimality conditions, sklearn called by hand, and planted heads."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest
from sklearn.linear_model import Lasso, LassoCV, lars_path
from sklearn.model_selection import KFold

from lens_heads.ranking.masks import lasso
from lens_heads.ranking.masks.lasso import REGRESSIONS
from lens_heads.ranking.masks.sparse_fit import fit, solve_masks
from tests.ranking.masks.linear import BASE, PLANTED, TRUE, first, planted


def iterated(design: np.ndarray, target: np.ndarray, alpha: float, l1_ratio: float = 1.0) -> np.ndarray:
    """Proximal gradient descent on 1/(2M) ||target - design x||^2 + alpha (r ||x||_1 + (1 - r)/2 ||x||^2), from 0."""
    step = 1 / (np.linalg.norm(design, 2) ** 2 / len(design) + alpha * (1 - l1_ratio))
    x = np.zeros(design.shape[1])
    for _ in range(5000):
        moved = x - step * (design.T @ (design @ x - target) / len(design) + alpha * (1 - l1_ratio) * x)
        x = np.sign(moved) * np.maximum(np.abs(moved) - step * alpha * l1_ratio, 0)
    return x


def test_paper_minimises_the_papers_objective() -> None:
    masks, response = planted()
    design, alpha = masks.reshape(60, -1).astype(float), 0.004
    found = solve_masks(masks, response, method="paper", base=BASE, alpha=alpha, debias=False).ravel()
    np.testing.assert_allclose(found, iterated(design, response - BASE, alpha), atol=2e-3)
    slope = design.T @ (design @ found - (response - BASE)) / 60
    chosen = found != 0
    assert 4 <= chosen.sum() < 20
    np.testing.assert_allclose(slope[chosen], -alpha * np.sign(found[chosen]), atol=0.03 * alpha)
    assert (abs(slope[~chosen]) <= 1.03 * alpha).all()


def test_the_elastic_net_halves_the_penalty() -> None:
    masks, response = planted()
    design = masks.reshape(60, -1) - masks.reshape(60, -1).mean(0)
    found = solve_masks(masks, response, method="elastic_net", alpha=0.01, debias=False).ravel()
    np.testing.assert_allclose(found, iterated(design, response - response.mean(), 0.01, 0.5), atol=2e-3)


def test_script_is_the_authors_regression_in_units_of_the_response() -> None:
    masks, response = planted()
    z_scored = (response - response.mean()) / response.std()
    theirs = Lasso(alpha=0.01, max_iter=5000).fit(masks.reshape(60, -1), z_scored).coef_
    ours = solve_masks(masks, response, method="script", debias=False)
    assert ours.shape == (6, 8)
    np.testing.assert_allclose(ours.ravel(), theirs * response.std(), atol=1e-12)
    assert first(ours) == set(PLANTED)
    printed_first = set(np.argsort(-theirs)[:3].tolist())  # The largest, which the script calls the most important.
    assert not printed_first & set(PLANTED)
    assert 9 in printed_first


def test_lasso_is_lassocv_on_shuffled_folds() -> None:
    masks, response = planted()
    design = masks.reshape(60, -1).astype(float)
    largest = abs((design - design.mean(0)).T @ (response - response.mean())).max() / 60
    search = LassoCV(
        alphas=np.geomspace(largest, largest / 100, 30), cv=KFold(5, shuffle=True, random_state=4), max_iter=5000
    ).fit(design, response)
    found = fit(masks, response, seed=4, n_bootstrap=1, n_stability=1)
    assert found.alpha == pytest.approx(search.alpha_)
    np.testing.assert_allclose(found.raw.ravel(), search.coef_, atol=1e-10)
    # At the largest alpha of the grid nothing is left.
    assert (solve_masks(masks, response, alpha=largest, debias=False) == 0).all()
    assert (solve_masks(masks, response, alpha=0.98 * largest, debias=False) != 0).any()


def test_one_standard_error_takes_the_largest_alpha_within_it() -> None:
    masks, response = planted()
    least = fit(masks, response, n_bootstrap=1, n_stability=1)
    sparser = fit(masks, response, method="lasso_1se", n_bootstrap=1, n_stability=1)
    errors = {}
    for alpha in least.alpha * (1.172102297 ** np.arange(0, 25)):  # Upwards along the grid: 100 ** (1 / 29) apart.
        folds = KFold(5, shuffle=True, random_state=0).split(response)
        errors[alpha] = [
            np.mean((response[out] - model.predict(masks[out].reshape(len(out), -1))) ** 2)
            for rows, out in folds
            for model in [Lasso(alpha, max_iter=5000).fit(masks[rows].reshape(len(rows), -1), response[rows])]
        ]
    allowed = np.mean(errors[least.alpha]) + np.std(errors[least.alpha], ddof=1) / math.sqrt(5)
    assert sparser.alpha == pytest.approx(max(alpha for alpha, error in errors.items() if np.mean(error) <= allowed))
    assert sparser.alpha > least.alpha
    assert 3 <= sparser.support.sum() < least.support.sum()


@pytest.mark.parametrize("n_masks", [40, 60])
def test_bic_takes_the_step_of_the_path_with_the_least_criterion(n_masks: int) -> None:
    masks, response = planted(n_masks=n_masks)
    found = fit(masks, response, method="bic", n_bootstrap=1, n_stability=1)
    design = np.c_[np.ones(n_masks), masks.reshape(n_masks, -1)]
    if n_masks > 49:
        left = response - design @ np.linalg.lstsq(design, response, rcond=None)[0]
        noise = left @ left / (n_masks - 49)
    else:
        search = lasso.cross_validated(lasso.Problem(design[:, 1:], response))
        noise = search.mse_path_.mean(1).min()
    centred = design[:, 1:] - design[:, 1:].mean(0)
    alphas, _, path = lars_path(centred, response - response.mean(), method="lasso")
    errors = ((response - response.mean())[:, None] - centred @ path).T
    criterion = (errors**2).sum(1) / noise + math.log(n_masks) * (path != 0).sum(0)
    assert found.alpha == pytest.approx(alphas[criterion.argmin()])
    np.testing.assert_allclose(found.raw.ravel(), path[:, criterion.argmin()], atol=1e-10)
    assert first(found.coefficients) == set(PLANTED)


@pytest.mark.parametrize("method", REGRESSIONS)
def test_planted_heads_come_first_with_their_cost_and_not_from_a_flipped_response(method: str) -> None:
    masks, response = planted()
    found = solve_masks(masks, response, method=method, base=BASE)
    assert first(found) == set(PLANTED)
    np.testing.assert_allclose(found.ravel()[[*PLANTED, 9]], TRUE[[*PLANTED, 9]], atol=0.04)
    flipped = solve_masks(masks, -response, method=method, base=-BASE)
    assert not first(flipped) & set(PLANTED)
    assert first(-flipped) == set(PLANTED)


@pytest.mark.parametrize("method", ["lasso", "bic", "paper", "script"])
def test_without_noise_the_cost_is_exact(method: str) -> None:
    masks, response = planted(noise=0)
    found = fit(masks, response, method=method, base=BASE, n_bootstrap=20, n_stability=2, seed=1)
    np.testing.assert_allclose(found.coefficients.ravel(), TRUE, atol=1e-12)
    assert found.intercept == pytest.approx(BASE)
    assert (found.r2, found.held_out_r2) == (pytest.approx(1), pytest.approx(1))
    np.testing.assert_allclose(found.low[found.support], found.coefficients[found.support], atol=1e-10)


def test_units_are_those_of_the_response() -> None:
    masks, response = planted()
    found = solve_masks(masks, response)
    np.testing.assert_allclose(solve_masks(masks, 10 * response - 3), 10 * found, atol=1e-9)
    np.testing.assert_array_equal(solve_masks(masks.reshape(60, 48), response), found.ravel())


@pytest.mark.filterwarnings("ignore:masks. .* of .* heads are ablated in none")
def test_few_masks() -> None:
    masks, response = planted()
    assert math.isnan(fit(masks[:6], response[:6], method="script", n_bootstrap=2, n_stability=2).held_out_r2)
    with pytest.raises(ValueError, match=r"4 masks: lasso needs at least 5\. Evaluate more masks, or give alpha"):
        solve_masks(masks[:4], response[:4])
    with pytest.raises(ValueError, match=r"1 masks: script needs at least 2\. Evaluate more masks\.$"):
        solve_masks(masks[:1], response[:1], method="script")
    with pytest.warns(UserWarning, match="heads are ablated in none or in all of 4 masks"):
        assert solve_masks(masks[:4], response[:4], alpha=0.001).shape == (6, 8)


@pytest.mark.filterwarnings("ignore:masks. .* of .* heads are ablated in none")
def test_bad_input_is_refused_with_the_value() -> None:
    masks, response = planted(trials=2)
    with pytest.raises(ValueError, match="unknown method 'ridge': use lasso, lasso_1se, bic, paper"):
        solve_masks(masks, response, method="ridge")
    with pytest.raises(ValueError, match=r"response of shape \[59, 2\] for 60 masks"):
        solve_masks(masks, response[:59])
    with pytest.raises(
        ValueError, match=r"response of shape \[60, 2, 1\] for 60 masks: must be \[mask\] or \[mask, trial\]"
    ):
        solve_masks(masks, response[..., None])
    with pytest.raises(ValueError, match="paper fits the change against the model without ablation: give base="):
        solve_masks(masks, response, method="paper")
    with pytest.raises(ValueError, match=r"base of shape \[3\] for 2 trials"):
        solve_masks(masks, response, method="paper", base=np.ones(3))
    with pytest.raises(ValueError, match=r"alpha=0: must be positive and finite"):
        solve_masks(masks, response, alpha=0)
    with pytest.raises(ValueError, match=r"every mask gives the response 0\.5: nothing to explain"):
        solve_masks(masks, np.full(60, 0.5))
    with pytest.raises(ValueError, match="each of the 60 masks ablates no head"):
        solve_masks(np.zeros_like(masks), response)
    with pytest.raises(ValueError, match="n_stability=0: must be a positive integer"):
        fit(masks, response, n_stability=0)
    for value in (np.nan, np.inf):
        broken = response.copy()
        broken[13, 1] = value
        with pytest.raises(ValueError, match=rf"the response to mask 13 is {value} \(trial 1\)"):
            solve_masks(masks, broken)
    same = np.repeat(masks[:1], 60, 0)
    with (
        pytest.warns(UserWarning, match="59 of 60 masks repeat"),
        pytest.raises(ValueError, match="60 masks are the same"),
    ):
        solve_masks(same, response)


def test_fits_that_do_not_converge_are_reported_once_with_a_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    masks, response = planted()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        solve_masks(masks, response)
    monkeypatch.setattr(lasso, "MAX_ITER", 1)
    with pytest.warns(
        UserWarning, match="lasso: .* fits did not converge in 1 iterations.* Use a larger alpha"
    ) as caught:
        solve_masks(masks, response)
    assert len(caught) == 1
    assert caught[0].filename == __file__
