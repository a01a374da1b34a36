"""The sparse regressions: which few heads explain how the response changes from mask to mask?

All minimize a penalized squared loss over the coefficients x of the masks Phi (0 and 1, not scaled or z-scored):
    1 / (2 M) ||y - b - Phi x||^2 + alpha * (l1_ratio ||x||_1 + (1 - l1_ratio) / 2 ||x||^2)
with an intercept b, except "paper" (y minus the response without ablation, no intercept). l1_ratio is 1 (the lasso), except
0.5 for "elastic_net", where heads that are often ablated together share their cost. Compressed sensing for capability
localization takes the most negative coefficients: ablating those hurts.

A method maps a `Problem` to coefficients in units of the response, and the alpha it used.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from jaxtyping import Float
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import ElasticNet, ElasticNetCV, LassoLarsIC
from sklearn.model_selection import KFold

from lens_heads.runs.warned import users_line

FOLDS = 5
ALPHAS = np.geomspace(1, 0.01, 30)
"""The grid of alpha for cross-validation, as fractions of the smallest alpha at which every coefficient is 0."""
MAX_ITER = 5000
SCRIPT_ALPHA = 0.01


@dataclass(frozen=True, eq=False)
class Problem:
    """Masks, the response to explain, alpha (None: the method chooses), and the seed of the folds."""

    masks: Float[np.ndarray, "mask head"]
    response: Float[np.ndarray, " mask"]
    alpha: float | None = None
    seed: int = 0


Solution: TypeAlias = tuple[Float[np.ndarray, " head"], float]
"""Coefficients in units of the response, and alpha."""


def lasso(problem: Problem, l1_ratio: float = 1.0, intercept: bool = True, one_se: bool = False) -> Solution:
    """Alpha with the least mean error in 5-fold cross-validation (`sklearn.linear_model.LassoCV`).

    `one_se`: the largest alpha whose error is within one standard error of the least (Breiman et al. 1984; Hastie et al. 2009).
    Selects fewer heads, but almost none where masks are few: of five planted heads among 1,024 it ranked 0.90, 0.88 and 0.02
    first with 100 masks of 5 %, 200 of 2 % and 200 of 1 %; "lasso" 0.93, 0.94 and 0.59 (`benchmarks/recovery.py`).
    """
    alpha = problem.alpha
    if alpha is None:
        search = cross_validated(problem, l1_ratio, intercept)
        if not one_se:
            return search.coef_, float(search.alpha_)
        error = search.mse_path_.mean(-1)
        least = error.argmin()
        allowed = error[least] + search.mse_path_[least].std(ddof=1) / np.sqrt(FOLDS)
        alpha = float(search.alphas_[error <= allowed].max())
    model = ElasticNet(alpha=alpha, l1_ratio=l1_ratio, fit_intercept=intercept, max_iter=MAX_ITER)
    return model.fit(problem.masks, problem.response).coef_, alpha


def script(problem: Problem) -> Solution:
    """The authors' script: z-scored response, alpha 0.01 (in z units), intercept, 5000 iterations; coefficients times std.

    Unlike its paper, it ranks the *largest* coefficients first: heads whose ablation helps. Here, the most negative rank first.
    """
    spread = problem.response.std()
    alpha = SCRIPT_ALPHA if problem.alpha is None else problem.alpha
    coefficients, alpha = lasso(Problem(problem.masks, (problem.response - problem.response.mean()) / spread, alpha))
    return coefficients * spread, alpha


def bic(problem: Problem) -> Solution:
    """Alpha with the least Bayesian information criterion on the LARS path (`sklearn.linear_model.LassoLarsIC`).

    With more masks than heads, ordinary least squares estimates the noise variance. With fewer, the least mean squared error
    of cross-validation stands in; it includes prediction error, so it overestimates the noise and selects fewer heads.
    """
    if problem.alpha is not None:
        return lasso(problem)
    masks, heads = problem.masks.shape
    noise = float(cross_validated(problem).mse_path_.mean(-1).min()) if masks <= heads + 1 else None
    with warnings.catch_warnings():
        # These concern the end of the path, beyond the step that is chosen.
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = LassoLarsIC(criterion="bic", noise_variance=noise).fit(problem.masks, problem.response)
    return model.coef_, float(model.alpha_)


class Regression(NamedTuple):
    """The regression; whether it has an intercept (else it fits the change against the base), and cross-validates alpha."""

    solve: Callable[[Problem], Solution]
    intercept: bool = True
    cross_validates: bool = True


REGRESSIONS = {
    "lasso": Regression(lasso),
    "lasso_1se": Regression(partial(lasso, one_se=True)),
    "bic": Regression(bic),
    "paper": Regression(partial(lasso, intercept=False), intercept=False),
    "script": Regression(script, cross_validates=False),
    "elastic_net": Regression(partial(lasso, l1_ratio=0.5)),
}


def solve(method: str, problem: Problem) -> Solution:
    """The method's solution; all 0 for a constant response."""
    if np.ptp(problem.response) == 0:
        return np.zeros(problem.masks.shape[1]), problem.alpha or 0.0
    return REGRESSIONS[method].solve(problem)


def cross_validated(problem: Problem, l1_ratio: float = 1.0, intercept: bool = True) -> ElasticNetCV:
    """Cross-validation over the grid, with the masks shuffled into folds."""
    masks, response = problem.masks, problem.response
    if intercept:
        masks, response = masks - masks.mean(0), response - response.mean()
    # Without any correlation every alpha gives 0, so any grid will do.
    largest = np.abs(masks.T @ response).max() / len(masks) / l1_ratio or 1.0
    folds = KFold(FOLDS, shuffle=True, random_state=problem.seed)
    grid: Any = largest * ALPHAS  # sklearn annotates only a number of alphas.
    search = ElasticNetCV(l1_ratio=l1_ratio, alphas=grid, fit_intercept=intercept, cv=folds, max_iter=MAX_ITER)
    return search.fit(problem.masks, problem.response)


@contextmanager
def convergence_in_words(method: str) -> Iterator[None]:
    """Replace sklearn's convergence warnings, one per fit, by a single one that suggests a remedy."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
    unfinished = [warning for warning in caught if issubclass(warning.category, ConvergenceWarning)]
    for warning in caught:
        if warning not in unfinished:
            warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)
    if unfinished:
        warnings.warn(
            f"{method}: {len(unfinished)} fits did not converge in {MAX_ITER} iterations, so coefficients are approximate. Use "
            f"a larger alpha, draw more masks, or check the response for outliers. First: {unfinished[0].message}",
            stacklevel=users_line(),
        )
