"""localize_heads: which few heads a capability needs, from a few hundred runs with random heads ablated.

Masks that all ablate equally many heads (of every method but "csb") tell heads from each other only: a coefficient is then beyond
what an ablated head costs on the average of those not chosen, which the intercept holds, and above 0 is no sign that the model is
better without the head. Heads that trials chose look better on them than they are, so there are no intervals over trials.

Differs from the authors' script: the sign (the script prints the heads whose ablation helps first), alpha by cross-validation,
least squares on the chosen heads, one loaded model whose shared prefixes are run once.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import Any, Unpack

import numpy as np
import torch
from jaxtyping import Bool, Float

from lens_heads import tasks
from lens_heads.heads.head import Head
from lens_heads.heads.scores import HeadScores
from lens_heads.interventions.ablation import Ablation, Reference
from lens_heads.interventions.options import AblationRun
from lens_heads.localize.greedy import greedy, one_shot, others
from lens_heads.localize.lasso import FOLDS, METHODS
from lens_heads.localize.masks import draw_masks, share
from lens_heads.localize.measure import Level, MaskedMetric
from lens_heads.localize.sparse_fit import Fit, fit, recover
from lens_heads.model.geometry import Model
from lens_heads.trials.digests import made_on
from lens_heads.trials.trial import AnyTrial

DESIGNED = {
    "css": ("stratified", "lasso"),
    "csb": ("bernoulli", "lasso"),
    "csl": ("layer_balanced", "lasso"),
    "elastic_net": ("stratified", "elastic_net"),
}
"""Compressed sensing by name: the design of the masks, and the regression."""

SEARCHES = ("greedy", "one_shot")
MOST_FAILED = 0.1
"""Share of masks whose runs may fail."""

ROUND = 25
"""Masks between two looks at whether the ranking has settled."""


def localize_heads(
    model: Model,
    task: Iterable[AnyTrial] | AnyTrial | str,
    method: str = "css",
    n_masks: int = 200,
    sparsity: float = 0.02,
    metric: str = "logprob",
    k: int = 5,
    kind: str | Ablation = "zero",
    reference: Reference | None = None,
    level: Level = "query_head",
    seed: int = 0,
    **options: Unpack[AblationRun],
) -> HeadScores:
    """Find the few heads that a capability needs   (Compressed Sensing for Capability Localization)

    y_m = the task's metric with the heads of mask m ablated; a sparse regression on the masks finds the heads whose ablation
    lowers it. Values are its coefficients: the change of the metric when the head is ablated. **Negative hurts**, and the most
    negative heads come first (`best` is "lowest"): `top(5)` are the task's heads.

    Args:
        task: trials, or the name of a task of `lens_heads.tasks`: its "select" half where it has halves.
        method: "css" (stratified masks, lasso), "csb" (Bernoulli), "csl" (layer-balanced), "elastic_net" (stratified); or a
            search: "greedy" (adds the worst head k times: about k * heads evaluations), "one_shot" (every head alone).
        n_masks, sparsity: how many masks, and the share of heads each ablates.
        metric: any of `evaluate`'s. Those of generated text ("correct", ..) decode; "logprob" and those of choices do not,
            and need far fewer trials: a mask moves few right or wrong answers, but the log-probability of every one.
        k: how many heads are looked for, which is what "greedy" adds.
        kind, reference: as in `ablate`; "zero" is the paper's.
        level: "query_head", or "kv_group": all query heads of a kv head are ablated together, and scores are of kv heads.
        seed: of the masks, folds and resamples.
        **options: run options (`runs.options.RunOptions`; 8 trials at a time by default), and those of the ablation. The run
            folder holds finished masks, which any method continues, and the newest scores of each as `method.json`.

    Returns:
        HeadScores with, per trial, the least-squares coefficients on the heads the lasso chose (their mean is the value);
        they rank by the lasso's own. All others are 0, and rank by the plain difference between masks with and without them.
        `meta["fit"]`: alpha, r2, held_out_r2 (prediction of masks left out), and of each chosen head the interval over masks
        and its stability; `meta["evaluations"]`; `meta["base"]`, the metric without ablation. For "greedy" values are the
        change when the head was added, and heads rank in that order (`meta["chosen"]` of them), the others as last tried.

    For another regression, or to stop when the ranking has settled, make a `MaskedMetric` and call `localize`.

    The model is as it was afterwards, also after an error. Raises ValueError for an unknown method, too few masks, k out of
    range, a sparsity that ablates no head or every head, a metric that is the same under every
    mask, and what `MaskedMetric` refuses; RuntimeError when runs of a search or a tenth of the masks failed (fewer: a warning).
    """
    _check(method, None, n_masks, k, None)
    trials = tasks.load(task, **tasks.to_select(task)) if isinstance(task, str) else task
    measured = MaskedMetric(model, trials, metric, kind, reference, level, **options)
    return localize(measured, method, n_masks, sparsity, k, seed=seed)


def localize(
    measured: MaskedMetric,
    method: str = "css",
    n_masks: int = 200,
    sparsity: float = 0.02,
    k: int = 5,
    estimator: str | None = None,
    patience: int | None = None,
    seed: int = 0,
) -> HeadScores:
    """`localize_heads` on trials whose runs are kept: several methods or settings share every mask that they have in common.

    Args:
        method, n_masks, sparsity, k, seed: as in `localize_heads`, as are result and errors.
        estimator: another regression of `localize.lasso.METHODS` than the method's.
        patience: stop once the k first heads were the same in so many rounds of 25 masks after the first (`stopped_early`).

    `meta["evaluations"]` counts the masks that this method asked for, whoever asked for them before.
    """
    masks = masks_of(measured.units, method, n_masks, sparsity, k, estimator, patience, seed)
    measured.requested.clear()
    if masks is not None:
        design, regression = DESIGNED[method]
        found, more = _sensed(measured, masks, estimator or regression, k, patience, seed)
        more |= {"sparsity": sparsity, "design": design}
    elif method == "greedy":
        order, found = greedy(measured, k)
        more = {"chosen": len(order), "order": [*order, *others(measured, order)]}
    else:
        found, more = one_shot(measured), {}
    scores = _scores(measured, method, found, {**more, "seed": seed})
    if measured.folder is not None:
        scores.save(measured.folder.path / f"{method}.json")
    return scores


def masks_of(
    units: tuple[int, int],
    method: str,
    n_masks: int,
    sparsity: float,
    k: int,
    estimator: str | None = None,
    patience: int | None = None,
    seed: int = 0,
) -> Bool[np.ndarray, "mask layer head"] | None:
    """The different masks that `localize` measures, None for a search. ValueError for settings that it refuses."""
    _check(method, estimator, n_masks, k, patience)
    if method in SEARCHES:
        return None
    heads = units[0] * units[1]
    if k > heads:
        raise ValueError(f"k={k}: the model has {heads} heads")
    masks = _different(draw_masks(DESIGNED[method][0], n_masks, *units, sparsity, seed))
    if masks.sum((1, 2)).max() == 1:
        warnings.warn(
            f"sparsity={sparsity} of {heads} heads ablates one at a time, which is method 'one_shot' with extra steps: give "
            f"at least {share(2, heads)}, so that heads are ablated together",
            stacklevel=3,
        )
    return masks


def _check(method: str, estimator: str | None, n_masks: int, k: int, patience: int | None) -> None:
    if method not in (*DESIGNED, *SEARCHES):
        raise ValueError(f"unknown method {method!r}: there are {', '.join((*DESIGNED, *SEARCHES))}")
    if estimator is not None and (estimator not in METHODS or method in SEARCHES):
        why = f"{method} fits nothing" if method in SEARCHES else f"there are {', '.join(METHODS)}"
        raise ValueError(f"estimator={estimator!r}: {why}")
    if method in DESIGNED and n_masks < FOLDS:
        raise ValueError(f"n_masks={n_masks}: cross-validation needs at least {FOLDS}, and finding heads some hundred")
    if k < 1:
        raise ValueError(f"k={k}: at least 1 head is looked for")
    if patience is not None and patience < 1:
        raise ValueError(f"patience={patience}: at least one further round has to agree; None measures all masks")


def _sensed(
    measured: MaskedMetric,
    masks: Bool[np.ndarray, "mask layer head"],
    estimator: str,
    k: int,
    patience: int | None,
    seed: int,
) -> tuple[Float[np.ndarray, "trial layer head"], dict[str, Any]]:
    """Coefficients per trial, and what the fit says of itself."""
    base = measured.base
    used, values = masks, measured(masks) if patience is None else np.empty(0)
    if patience is not None:
        used, values = _until_settled(measured, masks, estimator, k, patience, seed)
    failed = np.isnan(values).any(1)
    if np.mean(failed) > MOST_FAILED:
        raise RuntimeError(
            f"{np.sum(failed)} of {len(values)} masks failed: without them, heads whose ablation makes a run fail would "
            "look harmless; see the warnings above"
        )
    stopped, used, values = len(used) < len(masks), used[~failed], values[~failed]
    with warnings.catch_warnings():
        if len(used) == len(masks):  # Already warned about when the masks were drawn.
            warnings.filterwarnings("ignore", "masks: ", UserWarning)
        result = fit(used, values, estimator, base=base, seed=seed)
    hurting = int((result.raw < 0).sum())
    if hurting < k:
        warnings.warn(
            f"{estimator} found {hurting} of {k} heads whose ablation hurts in {len(used)} masks; the others rank by the plain "
            "difference between masks with and without them: draw more masks, ablate more heads in each, or take a finer metric",
            stacklevel=4,
        )
    order = _order(result, used, values.mean(1))
    more = {"n_masks": len(used), "stopped_early": stopped, "order": order, "fit": result.record()}
    return result.per_trial, more


def _different(masks: Bool[np.ndarray, "mask layer head"]) -> Bool[np.ndarray, "mask layer head"]:
    """The masks without repeats: a run repeated gives the same number, and in two folds would pass for a good prediction."""
    _, first = np.unique(masks.reshape(len(masks), -1), axis=0, return_index=True)
    if len(first) < FOLDS:
        raise ValueError(
            f"only {len(first)} of the {len(masks)} masks differ, and cross-validation needs at least {FOLDS}: take another "
            "sparsity, or more masks"
        )
    return masks[np.sort(first)]


def _order(result: Fit, masks: Bool[np.ndarray, "mask layer head"], response: Float[np.ndarray, " mask"]) -> list[Head]:
    """All heads: those whose coefficient is negative, then those that were not chosen, then those above 0.

    By the coefficients as the penalty shrank them, which rank better than those of least squares. Heads that the regression
    leaves at 0 come in order of the plain difference between masks with and without them.
    """
    flat = masks.reshape(len(masks), -1).astype(float)
    often = flat.sum(0)
    with_, without = response @ flat, response @ (1 - flat)
    with np.errstate(invalid="ignore", divide="ignore"):
        difference = np.nan_to_num(with_ / often - without / (len(flat) - often))
    order = np.lexsort((difference, result.raw.ravel()))
    return [Head(*map(int, np.unravel_index(at, masks.shape[1:]))) for at in order]


def _until_settled(
    measured: MaskedMetric,
    masks: Bool[np.ndarray, "mask layer head"],
    estimator: str,
    k: int,
    patience: int,
    seed: int,
) -> tuple[Bool[np.ndarray, "mask layer head"], Float[np.ndarray, "mask trial"]]:
    """The first masks, as many as it takes for the k first heads to stay the same for `patience` rounds."""
    before, same, values = None, 0, np.empty((0, len(measured.trials)))
    for end in range(ROUND, len(masks) + ROUND, ROUND):
        values = measured(masks[:end])
        finished = ~np.isnan(values).any(1)
        if finished.sum() < FOLDS or np.ptp(values[finished].mean(1)) == 0:
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # What is true of all masks is said of the last fit.
            known, options = values[finished], {"base": measured.base, "debias": False, "seed": seed}
            found = recover(masks[:end][finished], known, estimator, **options).ravel()
        first = {int(head) for head in np.argsort(found, kind="stable")[:k] if found[head] < 0}
        same = same + 1 if first == before and len(first) == k else 0
        if same >= patience:
            break
        before = first
    return masks[: len(values)], values


def _scores(
    measured: MaskedMetric, method: str, per_trial: Float[np.ndarray, "trial layer head"], more: dict[str, Any]
) -> HeadScores:
    order = more.pop("order", ())
    meta = {**measured.settings, "metric": measured.metric, "base": float(measured.base.mean()), **more}
    meta |= {"evaluations": len(measured.requested), "n_trials": len(measured.trials)}
    about: dict[str, Any] = {
        "unit": "query_head" if measured.level == "query_head" else "kv_head",
        "best": "lowest",
        "order": tuple(order),
        "selected": method != "one_shot",  # The heads were chosen on these trials, which cannot test them again.
        "score_unit": f"change of {measured.metric}",
        "model": measured.identity,
        "made_on": made_on(measured.trials),
    }
    ids = [trial.id for trial in measured.trials]
    return HeadScores.from_trials(method, torch.from_numpy(per_trial), ids, meta, **about)
