"""From masks and responses to coefficients of heads, with how sure they are.

The lasso chooses the heads and shrinks their coefficients; least squares on the heads it chose gives the size back.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Float
from sklearn.model_selection import KFold

from lens_heads.heads.head import Head
from lens_heads.localize.lasso import FOLDS, METHODS, Problem, Solution, convergence_in_words, solve
from lens_heads.localize.masks import check_masks
from lens_heads.stats import percentile_interval


class NothingToExplain(ValueError):  # noqa: N818 - it says what is the case
    """Every mask gave the same response."""


@dataclass(frozen=True, eq=False)
class Fit:
    """What masks and responses say of each head; arrays have the shape of a mask, values are in units of the response.

    `coefficients`: the change of the response when the head is ablated: negative hurts. 0 outside the `support`, the heads
    that the method chose. `raw`: as the penalty shrank them. `intercept`: the fitted response without ablation; where all masks
    ablate equally many heads, with as many of those that were not chosen, so that coefficients are relative to these.
    `per_trial` [trial, *unit]: least squares on the support for each trial; its mean is the debiased coefficient, for a
    refit is linear in the response. One row for a response without a trial axis. Heads that the masks do not tell apart share
    what they cost (the solution of least norm). A head that was chosen by luck is also overstated by it.
    `r2`: explained share of the variance of the masks' mean responses, in sample. `held_out_r2`: the same of masks that were
    left out (5 folds) of the whole procedure, choice of alpha and support included, against predicting the mean of the
    others; negative where that mean is better, NaN with too few masks to leave some out.
    `stability`: share of random halves of the masks (drawn without replacement; stability selection, Meinshausen & Buhlmann,
    arXiv 0809.2932) in which the penalised coefficient is negative, at the alpha of the whole fit.
    `low`, `high`: 95 % percentile bootstrap over masks of the debiased coefficient, the support fixed: conditional on the
    choice of heads, hence too narrow for a head that was chosen by luck; over masks only; and over those resamples in which the
    head is ablated and told from the others. NaN outside the support, and where no resample tells it.
    """

    coefficients: Float[np.ndarray, "*unit"]
    raw: Float[np.ndarray, "*unit"]
    intercept: float
    alpha: float
    method: str
    support: Bool[np.ndarray, "*unit"]
    per_trial: Float[np.ndarray, "trial *unit"]
    r2: float
    held_out_r2: float
    stability: Float[np.ndarray, "*unit"]
    low: Float[np.ndarray, "*unit"]
    high: Float[np.ndarray, "*unit"]

    def record(self) -> dict[str, Any]:
        """The fit as JSON holds it: numbers (None for NaN), and a row per head of the support [layer, head], worst first."""
        at = sorted(zip(*self.support.nonzero(), strict=True), key=lambda place: self.coefficients[place])
        parts = {"coefficient": self.coefficients, "low": self.low, "high": self.high, "stability": self.stability}
        numbers = {"alpha": self.alpha, "intercept": self.intercept, "r2": self.r2, "held_out_r2": self.held_out_r2}
        heads = [
            {"head": str(Head(*map(int, place)))}
            | {name: _number(float(values[place])) for name, values in parts.items()}
            for place in at
        ]
        return {"estimator": self.method} | {name: _number(value) for name, value in numbers.items()} | {"heads": heads}


def recover(
    masks: Bool[np.ndarray, "mask *unit"],
    response: Float[np.ndarray, " mask"] | Float[np.ndarray, "mask trial"],
    method: str = "lasso",
    base: float | Float[np.ndarray, " trial"] | None = None,
    alpha: float | None = None,
    debias: bool = True,
    seed: int = 0,
) -> Float[np.ndarray, "*unit"]:
    """How the response changes when each head is ablated, in units of the response: **negative hurts**.

    Task heads are the most negative coefficients (compressed sensing for capability localization). Most are exactly 0.

    `masks`: True where a head is ablated. `response`: the task metric under each mask, or of each trial under it, whose mean
    is fitted. `method`: one of `lasso.METHODS`. `base`: the metric without ablation, which "paper" needs; the others
    estimate it (the intercept) and do not read it. `alpha`: the weight of the penalty, None for the method's own choice.
    `debias=False` returns the coefficients as the penalty shrank them, which are too small but rank heads a little better
    (`benchmarks/recovery.py`): least squares overstates those that were chosen by luck. `seed` shuffles the folds of
    cross-validation.

    Differs from the authors' script in what it ranks first: the script prints the largest coefficients as the most important
    ones, which are those of heads whose ablation helps.

    Raises ValueError for shapes that disagree, a response that is not finite (naming the mask) or the same everywhere, an
    unknown method, no base for "paper", fewer masks than cross-validation has folds, and masks that `check_masks` refuses;
    warns as it does, and where a fit did not converge.
    """
    task = _Task.checked(check_masks(masks), response, method, base, alpha, seed)
    with convergence_in_words(method):
        raw, _ = task.solve()
    return (task.refit(raw != 0).mean(0) if debias else raw).reshape(task.shape)


def fit(
    masks: Bool[np.ndarray, "mask *unit"],
    response: Float[np.ndarray, " mask"] | Float[np.ndarray, "mask trial"],
    method: str = "lasso",
    base: float | Float[np.ndarray, " trial"] | None = None,
    alpha: float | None = None,
    debias: bool = True,
    n_bootstrap: int = 1000,
    n_stability: int = 100,
    seed: int = 0,
) -> Fit:
    """`recover` with everything that says how far to trust it: see `Fit`.

    `debias=False` makes the shrunk coefficients the `coefficients`, for both r2 too; `per_trial` and the interval stay those
    of the refit. Raises and warns as `recover` does, and ValueError for fewer than one resample.
    """
    for name, n in (("n_bootstrap", n_bootstrap), ("n_stability", n_stability)):
        if n < 1:
            raise ValueError(f"{name}={n}: at least 1 is needed")
    task = _Task.checked(check_masks(masks), response, method, base, alpha, seed)
    with convergence_in_words(method):
        raw, chosen = task.solve()
        stability = task.stability(chosen, n_stability)
        held_out = task.held_out_r2(debias)
    support, per_trial = raw != 0, task.refit(raw != 0)
    if support.sum() > len(task.masks) / 3:
        warnings.warn(
            f"{method} chose {support.sum()} heads from {len(task.masks)} masks, of which least squares fits the noise: measure "
            "more masks, or choose fewer heads (lasso_1se)",
            stacklevel=3,
        )
    coefficients = per_trial.mean(0) if debias else raw
    intercept = task.intercept(coefficients)
    left = task.response.mean(1) - intercept - task.masks @ coefficients
    low, high = percentile_interval(task.resampled(support, n_bootstrap))
    low, high = (np.where(support, side, np.nan).reshape(task.shape) for side in (low, high))
    return Fit(
        coefficients=coefficients.reshape(task.shape),
        raw=raw.reshape(task.shape),
        intercept=intercept,
        alpha=chosen,
        method=method,
        support=support.reshape(task.shape),
        per_trial=per_trial.reshape(-1, *task.shape),
        r2=float(1 - (left**2).mean() / task.response.mean(1).var()),
        held_out_r2=held_out,
        stability=stability.reshape(task.shape),
        low=low,
        high=high,
    )


@dataclass(frozen=True, eq=False)
class _Task:
    """Checked masks and responses of trials, the method and its settings; `base` is 0 for a method with an intercept."""

    masks: Float[np.ndarray, "mask head"]
    response: Float[np.ndarray, "mask trial"]
    base: Float[np.ndarray, " trial"]
    method: str
    alpha: float | None
    seed: int
    shape: tuple[int, ...]

    @classmethod
    def checked(
        cls, masks: np.ndarray, response: np.ndarray, method: str, base: object, alpha: float | None, seed: int
    ) -> _Task:
        """Checked masks with a response; everything refused that cannot be fitted."""
        if method not in METHODS:
            raise ValueError(f"unknown method {method!r}: there are {', '.join(METHODS)}")
        if alpha is not None and not (alpha > 0 and math.isfinite(alpha)):
            raise ValueError(f"alpha={alpha}: the weight of the penalty is above 0; None lets the method choose")
        response = np.asarray(response, dtype=float)
        if response.ndim not in (1, 2) or len(response) != len(masks) or response.size == 0:
            raise ValueError(
                f"response of shape {list(response.shape)} for {len(masks)} masks: [mask] or [mask, trial] is needed"
            )
        needed = FOLDS if METHODS[method].cross_validates and alpha is None else 2
        if len(response) < needed:
            remedy = ", or give alpha" if needed == FOLDS else ""
            raise ValueError(f"{len(response)} masks: {method} needs at least {needed}: evaluate more masks{remedy}")
        response = response.reshape(len(response), -1)
        bad = np.argwhere(~np.isfinite(response))
        if len(bad):
            raise ValueError(
                f"the response to mask {bad[0][0]} is {response[tuple(bad[0])]} (trial {bad[0][1]}): leave such masks or "
                "trials out"
            )
        if np.ptp(response.mean(1)) == 0:
            raise NothingToExplain(
                f"every mask gives the response {response[0].mean():g}: nothing to explain; ablate more heads in a mask, or "
                "take a finer metric (a log-probability)"
            )
        flat = masks.reshape(len(masks), -1).astype(float)
        if (flat == flat[0]).all():
            raise ValueError(
                f"all {len(flat)} masks are the same, which tells no head from another: draw different ones"
            )
        return cls(flat, response, _base(method, base, response.shape[1]), method, alpha, seed, masks.shape[1:])

    def solve(self, rows: np.ndarray | slice = slice(None), alpha: float | None = None) -> Solution:
        """The method on the mean over trials of some masks, with the task's alpha unless one is given."""
        target = (self.response[rows] - self.base).mean(1)
        return solve(self.method, Problem(self.masks[rows], target, self.alpha if alpha is None else alpha, self.seed))

    def refit(
        self, support: Bool[np.ndarray, " head"], rows: np.ndarray | slice = slice(None)
    ) -> Float[np.ndarray, "trial head"]:
        """Least squares of every trial on the heads of the support; of least norm where masks do not tell them apart."""
        coefficients = np.zeros((self.response.shape[1], len(support)))
        coefficients[:, support] = self._least_squares(support, rows, self.response - self.base)[0].T
        return coefficients

    def _least_squares(
        self, heads: Bool[np.ndarray, " head"], rows: np.ndarray | slice, target: Float[np.ndarray, "mask column"]
    ) -> tuple[Float[np.ndarray, "chosen column"], int]:
        """The solution of least norm on some masks, and how many heads these masks tell apart."""
        design, target = self.masks[rows][:, heads], target[rows]
        if METHODS[self.method].intercept:
            design, target = design - design.mean(0), target - target.mean(0)
        solution, _, rank, _ = np.linalg.lstsq(design, target, rcond=None)
        return solution, int(rank)

    def intercept(self, coefficients: Float[np.ndarray, " head"], rows: np.ndarray | slice = slice(None)) -> float:
        """The response without ablation: the base, or what leaves no mean residual."""
        if not METHODS[self.method].intercept:
            return float(self.base.mean())
        return float(self.response[rows].mean() - self.masks[rows].mean(0) @ coefficients)

    def stability(self, alpha: float, n: int) -> Float[np.ndarray, " head"]:
        """Share of n halves of the masks in which each coefficient is negative at alpha."""
        generator, half = np.random.default_rng(self.seed), len(self.masks) // 2
        negative = np.zeros(self.masks.shape[1])
        for _ in range(n):
            coefficients, _ = self.solve(generator.permutation(len(self.masks))[:half], alpha)
            negative += coefficients < 0
        return negative / n

    def held_out_r2(self, debias: bool) -> float:
        """Of masks left out, fold by fold, of everything; NaN where the others are too few to choose alpha from."""
        masks = len(self.masks)
        if masks - math.ceil(masks / FOLDS) < FOLDS:
            return math.nan
        error = total = 0.0
        for rows, others in KFold(FOLDS, shuffle=True, random_state=self.seed).split(self.masks):
            coefficients, _ = self.solve(rows)
            if debias:
                coefficients = self.refit(coefficients != 0, rows).mean(0)
            seen = self.response[others].mean(1)
            predicted = self.intercept(coefficients, rows) + self.masks[others] @ coefficients
            error += float(((seen - predicted) ** 2).sum())
            total += float(((seen - self.response[rows].mean()) ** 2).sum())
        return 1 - error / total

    def resampled(self, support: Bool[np.ndarray, " head"], n: int) -> Float[np.ndarray, "sample head"]:
        """The refit of the mean over trials on n resamples of the masks, with replacement; NaN where one tells nothing."""
        generator, masks = np.random.default_rng(self.seed), len(self.masks)
        target = (self.response - self.base).mean(1, keepdims=True)
        samples = np.full((n, len(support)), np.nan)
        for sample in samples:
            rows = generator.integers(masks, size=masks)
            told = support & self.masks[rows].any(0) & ~self.masks[rows].all(0)
            solution, rank = self._least_squares(told, rows, target)
            if rank == told.sum():
                sample[told] = solution[:, 0]
        return samples


def _number(value: float) -> float | None:
    """JSON has no NaN."""
    return float(value) if math.isfinite(value) else None


def _base(method: str, base: object, trials: int) -> Float[np.ndarray, " trial"]:
    """What is taken from each trial's response before the fit. ValueError where the method needs a base that is not given."""
    if METHODS[method].intercept:
        return np.zeros(trials)
    if base is None:
        raise ValueError(f"{method} fits the change against the model without ablation: give base=, its response")
    values = np.asarray(base, dtype=float)
    if values.shape not in ((), (trials,)) or not np.isfinite(values).all():
        raise ValueError(
            f"base of shape {list(values.shape)} for {trials} trials: give one finite number, or one per trial"
        )
    return np.broadcast_to(values, (trials,))
