"""From masks and responses to coefficients of heads, with measures of how reliable they are.

The lasso selects heads and shrinks their coefficients; least squares on the selected heads restores their size.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Bool, Float
from scipy import stats as scipy_stats
from sklearn.model_selection import KFold

from lens_heads.heads.head import Head
from lens_heads.ranking.masks.designs import check_masks
from lens_heads.ranking.masks.lasso import FOLDS, REGRESSIONS, Problem, Solution, convergence_in_words, solve
from lens_heads.runs import checks
from lens_heads.runs.drawn import Tabled
from lens_heads.runs.typed import typed
from lens_heads.runs.warned import users_line
from lens_heads.stats import percentile_interval

if TYPE_CHECKING:
    import pandas as pd


class NothingToExplain(ValueError):  # noqa: N818 - a finding as well as an error
    """Every mask gave the same response."""


@dataclass(frozen=True, eq=False)
class Fit(Tabled):
    """A sparse regression on masks. Arrays have the shape of a mask; values are in units of the response.

    Attributes:
        coefficients: the change of the response when the head is ablated (negative hurts); 0 outside the `support`.
        raw: the coefficients as the penalty shrank them.
        intercept: the fitted response without ablation. If all masks ablate equally many heads, it is the response with as
            many unselected heads ablated, and coefficients are relative to those.
        support: the heads that the method selected.
        per_trial: least squares on the support for each trial (or the one response); their mean is the debiased coefficient.
            Heads that the masks cannot separate share their cost (minimum norm); those selected by chance are overestimated.
        r2: the explained share of the variance of the masks' mean responses, in sample.
        held_out_r2: the same on masks left out (5 folds) of the whole procedure, choice of alpha and support included.
            Negative if the mean of the other masks predicts better; NaN with too few masks.
        stability: the share of random halves of the masks (without replacement; stability selection, Meinshausen & Buhlmann,
            arXiv 0809.2932) in which the penalized coefficient is negative, at the alpha of the whole fit.
        low, high: 95 % interval of the debiased coefficient over masks (not trials): percentiles of resampled masks, widened
            for how few masks ablate the head and for the size of the support. The support is fixed, so heads selected by
            chance still seem to matter. NaN outside the support, and where no resample can separate the head.

    Example:
        >>> masks = lh.ranking.draw_masks("stratified", 40, 2, 4, 0.25)
        >>> found = lh.ranking.fit(masks, 3.0 - 2.0 * masks[:, 1, 2])
        >>> round(float(found.coefficients[1, 2]), 2)
        -2.0
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

    @property
    def frame(self) -> pd.DataFrame:
        """A row per head of the support, most harmful first: head, coefficient, low, high, stability."""
        import pandas as pd

        return pd.DataFrame(self.record()["heads"], columns=["head", "coefficient", "low", "high", "stability"])

    def __repr__(self) -> str:
        return f"Fit({self.method}: {int(self.support.sum())} of {self.support.size} heads, held-out r2 {self.held_out_r2:.3g})"

    def record(self) -> dict[str, Any]:
        """The fit as JSON: numbers (None for NaN), and a row per head of the support [layer, head], most harmful first."""
        at = sorted(zip(*self.support.nonzero(), strict=True), key=lambda place: self.coefficients[place])
        parts = {"coefficient": self.coefficients, "low": self.low, "high": self.high, "stability": self.stability}
        numbers = {"alpha": self.alpha, "intercept": self.intercept, "r2": self.r2, "held_out_r2": self.held_out_r2}
        heads = [
            {"head": str(Head(int(place[0]), int(place[1])))}
            | {name: _number(float(values[place])) for name, values in parts.items()}
            for place in at
        ]
        return {"estimator": self.method} | {name: _number(value) for name, value in numbers.items()} | {"heads": heads}


@typed
def solve_masks(
    masks: Bool[np.ndarray, "mask *unit"],
    response: Float[np.ndarray, "mask ..."],
    *,
    method: str = "lasso",
    base: float | Float[np.ndarray, " trial"] | None = None,
    alpha: float | None = None,
    debias: bool = True,
    seed: int = 0,
) -> Float[np.ndarray, "*unit"]:
    """The heads that explain a response to masks: its change when each head is ablated. **Negative hurts.**

    The most negative coefficients are the task's heads (compressed sensing for capability localization). Most are exactly 0.

    Args:
        masks: True where a head is ablated.
        response: the metric under each mask, per trial or not; the mean over trials is fitted. The result is in its unit.
        method: one of `lasso.REGRESSIONS`.
        base: the metric without ablation. Only "paper" uses it; the other methods estimate it as the intercept.
        alpha: the weight of the penalty; None lets the method choose.
        debias: False returns the coefficients as the penalty shrank them. They are too small, but rank heads slightly better
            (`benchmarks/recovery.py`), because least squares overestimates those selected by chance.
        seed: shuffles the folds of cross-validation.

    Raises ValueError for shapes that disagree, a response that is not finite or constant, an unknown method, a missing base,
    fewer masks than folds, and masks that `check_masks` refuses. Warns as it does, and if a fit does not converge.

    Example:
        >>> masks = lh.ranking.draw_masks("stratified", 40, 2, 4, 0.25)
        >>> effects = lh.ranking.solve_masks(masks, 3.0 - 2.0 * masks[:, 1, 2])
        >>> effects.round(1)
        array([[ 0.,  0.,  0.,  0.],
               [ 0.,  0., -2.,  0.]])
    """
    task = _Task.checked(check_masks(masks), response, method, base, alpha, seed)
    with convergence_in_words(method):
        raw, _ = task.solve()
    return (task.refit(raw != 0).mean(0) if debias else raw).reshape(task.shape)


@typed
def fit(
    masks: Bool[np.ndarray, "mask *unit"],
    response: Float[np.ndarray, "mask ..."],
    *,
    method: str = "lasso",
    base: float | Float[np.ndarray, " trial"] | None = None,
    alpha: float | None = None,
    debias: bool = True,
    n_bootstrap: int = 1000,
    n_stability: int = 100,
    seed: int = 0,
) -> Fit:
    """`solve_masks` with everything that tells how far to trust it: see `Fit`.

    `debias=False` uses the shrunk coefficients for `coefficients` and both r2; `per_trial` and the interval stay those of the
    refit. Raises and warns as `solve_masks` does, and ValueError for fewer than one resample.

    `masks`, `response`, `method`, `base`, `alpha`, `seed`: as there. `n_bootstrap`: resamples for the interval;
    `n_stability`: halves for
    the stability.

    Example:
        >>> masks = lh.ranking.draw_masks("stratified", 40, 2, 4, 0.25)
        >>> found = lh.ranking.fit(masks, 3.0 - 2.0 * masks[:, 1, 2])
        >>> int(found.support.sum()), round(float(found.r2), 3)
        (1, 1.0)
    """
    for name, n in (("n_bootstrap", n_bootstrap), ("n_stability", n_stability)):
        checks.whole_number(name, n)
    task = _Task.checked(check_masks(masks), response, method, base, alpha, seed)
    with convergence_in_words(method):
        raw, chosen = task.solve()
        stability = task.stability(chosen, n_stability)
        held_out = task.held_out_r2(debias)
    support, per_trial = raw != 0, task.refit(raw != 0)
    if support.sum() > len(task.masks) / 3:
        warnings.warn(
            f"{method} chose {support.sum()} heads from {len(task.masks)} masks, so least squares fits noise. "
            "Measure more masks, or choose fewer heads (lasso_1se).",
            stacklevel=users_line(),
        )
    coefficients = per_trial.mean(0) if debias else raw
    intercept = task.intercept(coefficients)
    seen = task.response.mean(1)
    left = seen - intercept - task.masks @ coefficients
    low, high = task.interval(support, n_bootstrap)
    return Fit(
        coefficients=coefficients.reshape(task.shape),
        raw=raw.reshape(task.shape),
        intercept=intercept,
        alpha=chosen,
        method=method,
        support=support.reshape(task.shape),
        per_trial=per_trial.reshape(-1, *task.shape),
        r2=float(1 - (left**2).mean() / seen.var()),
        held_out_r2=held_out,
        stability=stability.reshape(task.shape),
        low=low.reshape(task.shape),
        high=high.reshape(task.shape),
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
        if method not in REGRESSIONS:
            raise ValueError(f"unknown method {method!r}: use {', '.join(REGRESSIONS)}")
        checks.seed(seed)
        if alpha is not None and not checks.finite("alpha", alpha) > 0:
            raise ValueError(f"alpha={alpha}: must be positive and finite, or None to let the method choose")
        response = np.asarray(response, dtype=float)
        if response.ndim not in (1, 2) or len(response) != len(masks) or response.size == 0:
            found = f"response of shape {list(response.shape)} for {len(masks)} masks"
            raise ValueError(f"{found}: must be [mask] or [mask, trial]")
        needed = FOLDS if REGRESSIONS[method].cross_validates and alpha is None else 2
        if len(response) < needed:
            remedy = ", or give alpha" if needed == FOLDS else ""
            raise ValueError(f"{len(response)} masks: {method} needs at least {needed}. Evaluate more masks{remedy}.")
        response = response.reshape(len(response), -1)
        bad = np.argwhere(~np.isfinite(response))
        if len(bad):
            mask, trial = bad[0]
            raise ValueError(
                f"the response to mask {mask} is {response[mask, trial]} (trial {trial}): omit the mask or trial"
            )
        if np.ptp(response.mean(1)) == 0:
            found = f"every mask gives the response {response[0].mean():g}: nothing to explain"
            raise NothingToExplain(
                f"{found}. Ablate more heads in each mask, or use a finer metric (a log-probability)."
            )
        flat, bases = masks.reshape(len(masks), -1).astype(float), _base(method, base, response.shape[1])
        if (flat == flat[0]).all():
            raise ValueError(f"all {len(flat)} masks are the same, so heads cannot be separated: draw different ones")
        seen, at = response.mean(1), bases.mean()
        if not REGRESSIONS[method].intercept and abs(at - np.clip(at, seen.min(), seen.max())) > np.ptp(seen):
            warnings.warn(
                f"base={at:.3g} lies farther from all responses ({seen.min():.3g} to {seen.max():.3g}) than these from each "
                "other, so that every head seems to matter: pass the response without ablation, of the same metric",
                stacklevel=users_line(),
            )
        return cls(flat, response, bases, method, alpha, seed, masks.shape[1:])

    def solve(self, rows: np.ndarray | slice = slice(None), alpha: float | None = None) -> Solution:
        """The method on some masks and the mean over trials, with the task's alpha unless one is given."""
        target = (self.response[rows] - self.base).mean(1)
        return solve(self.method, Problem(self.masks[rows], target, self.alpha if alpha is None else alpha, self.seed))

    def refit(
        self, support: Bool[np.ndarray, " head"], rows: np.ndarray | slice = slice(None)
    ) -> Float[np.ndarray, "trial head"]:
        """Least squares of every trial on the support, of minimum norm where masks cannot separate its heads."""
        coefficients = np.zeros((self.response.shape[1], len(support)))
        coefficients[:, support] = self._least_squares(support, rows, self.response - self.base)[0].T
        return coefficients

    def _least_squares(
        self, heads: Bool[np.ndarray, " head"], rows: np.ndarray | slice, target: Float[np.ndarray, "mask column"]
    ) -> tuple[Float[np.ndarray, "chosen column"], int]:
        """The minimum-norm solution on some masks, and how many heads these masks separate."""
        design, target = self.masks[rows][:, heads], target[rows]
        if REGRESSIONS[self.method].intercept:
            design, target = design - design.mean(0), target - target.mean(0)
        solution, _, rank, _ = np.linalg.lstsq(design, target, rcond=None)
        return solution, int(rank)

    def intercept(self, coefficients: Float[np.ndarray, " head"], rows: np.ndarray | slice = slice(None)) -> float:
        """The response without ablation: the base, or the value that makes the mean residual 0."""
        if not REGRESSIONS[self.method].intercept:
            return float(self.base.mean())
        return float(self.response[rows].mean() - self.masks[rows].mean(0) @ coefficients)

    def stability(self, alpha: float, n: int) -> Float[np.ndarray, " head"]:
        """The share of n random halves of the masks in which each coefficient is negative at alpha."""
        generator, half = np.random.default_rng(self.seed), len(self.masks) // 2
        halves = (generator.permutation(len(self.masks))[:half] for _ in range(n))
        return np.mean([self.solve(rows, alpha)[0] < 0 for rows in halves], axis=0)

    def held_out_r2(self, debias: bool) -> float:
        """R2 on masks left out, fold by fold, of the whole procedure; NaN if the others are too few to choose alpha from."""
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

    def interval(
        self, support: Bool[np.ndarray, " head"], n: int
    ) -> tuple[Float[np.ndarray, " head"], Float[np.ndarray, " head"]]:
        """Percentiles of n resamples, widened around the refit: they are too narrow for a few masks with a head.

        A coefficient is in essence a difference of two means, of the masks with a head and of those without: Student's t for
        the fewer of them, m, and the variance of m items and of a regression on the support, each in its unbiased form.
        """
        masks, ablated = len(self.masks), self.masks.sum(0)
        fewer = np.minimum(ablated, masks - ablated)
        spare = max(masks - int(support.sum()) - 1, 1)
        with np.errstate(divide="ignore", invalid="ignore"):
            widened = scipy_stats.t.ppf(0.975, fewer - 1) / scipy_stats.norm.ppf(0.975)
            widened *= np.sqrt(fewer / (fewer - 1) * masks / spare)
        centre = self.refit(support).mean(0)
        ends = percentile_interval(self.resampled(support, n))[1:]
        low, high = (centre + widened * (end - centre) for end in ends)
        return low, high

    def resampled(self, support: Bool[np.ndarray, " head"], n: int) -> Float[np.ndarray, "sample head"]:
        """The refit of the mean over trials on n bootstrap resamples of the masks; NaN where a resample cannot tell."""
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
    """What to subtract from each trial's response before the fit. ValueError if the method needs a base and has none."""
    kinds = set(map(type, base)) if isinstance(base, list | tuple) else {type(base)}
    if kinds & {bool, str} or str(getattr(base, "dtype", "")).endswith("bool"):  # numpy makes numbers of them.
        raise ValueError(f"base={base!r:.80}: must be one finite number, or one per trial")
    if REGRESSIONS[method].intercept:
        return np.zeros(trials)
    if base is None:
        raise ValueError(f"{method} fits the change against the model without ablation: give base=, its response")
    values = np.asarray(base, dtype=float)
    if values.shape not in ((), (trials,)) or not np.isfinite(values).all():
        found = f"base of shape {list(values.shape)} for {trials} trials"
        raise ValueError(f"{found}: must be one finite number, or one per trial")
    return np.broadcast_to(values, (trials,))
