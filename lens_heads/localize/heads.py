"""localize_heads: which few heads a capability needs, from a few hundred runs with random heads ablated."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float

from lens_heads import tasks
from lens_heads.activations import MeanActivations, TrialActivations
from lens_heads.heads import Head, HeadScores, Unit
from lens_heads.localize.greedy import greedy, one_shot
from lens_heads.localize.lasso import FOLDS, METHODS
from lens_heads.localize.masks import draw_masks
from lens_heads.localize.measure import Level, MaskedMetric
from lens_heads.localize.sparse_fit import Fit, fit, recover
from lens_heads.models import Model
from lens_heads.trials import AnyTrial

DESIGNED = {
    "css": ("stratified", "lasso"),
    "csb": ("bernoulli", "lasso"),
    "csl": ("layer_balanced", "lasso"),
    "elastic_net": ("stratified", "elastic_net"),
}
"""Compressed sensing by name: the design of the masks, and the regression."""

SEARCHES = ("greedy", "one_shot")
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
    estimator: str | None = None,
    kind: str = "zero",
    reference: MeanActivations | TrialActivations | None = None,
    level: Level = "query_head",
    patience: int | None = None,
    seed: int = 0,
    max_new_tokens: int = 50,
    batch_size: int = 8,
    progress: bool = True,
    out: str | Path | None = None,
    **options: float,
) -> HeadScores:
    """Find the few heads that a capability needs   (Compressed Sensing for Capability Localization)

    y_m = the task's metric with the heads of mask m ablated; a sparse regression on the masks finds the heads whose ablation
    lowers it. Values are its coefficients: the change of the metric when the head is ablated. **Negative hurts**, and the most
    negative heads come first (`meta["best"]` is "lowest"): `top(5)` are the task's heads.

    Args:
        task: trials, or the name of a task of `lens_heads.tasks` with its default arguments.
        method: "css" (stratified masks, lasso), "csb" (Bernoulli masks), "csl" (layer-balanced masks), "elastic_net"
            (stratified masks); or a search: "greedy" (adds the worst head k times: about k * heads evaluations), "one_shot"
            (every head alone: as many evaluations as heads).
        n_masks, sparsity: how many masks, and the share of heads each ablates.
        metric: any metric of `evaluate`. Those of generated text ("correct", ..) decode; "logprob" and those of choices do
            not, and need far fewer trials: right or wrong is one bit of a trial, of which a mask moves few, while the
            log-probability of the answer moves in all of them.
        k: how many heads are looked for: what "greedy" adds, and what `patience` watches.
        estimator: another regression of `localize.lasso.METHODS` than the method's.
        kind, reference, **options: as in `ablate`; "zero" is the paper's.
        level: "query_head", or "kv_group": all query heads of a kv head are ablated together, and scores are of kv heads.
        patience: stop before n_masks once the k first heads were the same in so many rounds of 25 masks after the first.
        seed: of the masks, folds and resamples.
        out: a run folder: every mask is stored when it is finished, and the same trials under any method continue it. The
            newest scores of each method are saved there as `method.json`.

    Returns:
        HeadScores with, per trial, the least-squares coefficients on the heads the lasso chose (their mean is the value). All
        other heads are 0, and rank by the plain difference between masks with and without them. `meta["fit"]`: alpha, r2,
        held_out_r2 (prediction of masks left out), and of each chosen head the interval over masks and its stability;
        `meta["evaluations"]`; `meta["base"]`, the metric without ablation. For "greedy" values are the change when the head
        was added, and heads rank in the order they were added.

    The model is as it was afterwards, also after an error. Raises ValueError for an unknown method or estimator, too few
    masks, k or patience below 1, a sparsity that ablates no head or every head, a metric that is the same under every mask,
    and what `MaskedMetric` refuses; RuntimeError when runs of a search failed. Masks whose runs failed are left out, and
    warned about.

    Differs from the authors' script: the sign (the script prints the heads whose ablation helps first), alpha by
    cross-validation, least squares on the chosen heads, one loaded model whose shared prefixes are run once.
    """
    _check(method, estimator, n_masks, k, patience)
    trials = tasks.load(task) if isinstance(task, str) else task
    measured = MaskedMetric(
        model, trials, metric, kind, reference, level, max_new_tokens, batch_size, progress, out, **options
    )
    scores = localize(measured, method, n_masks, sparsity, k, estimator, patience, seed)
    if measured.folder is not None:
        scores.save(measured.folder.path / f"{method}.json")
    return scores


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

    `meta["evaluations"]` counts the masks that this method asked for, whoever asked for them before. Arguments, result and
    errors as in `localize_heads`.
    """
    _check(method, estimator, n_masks, k, patience)
    measured.requested.clear()
    if method in DESIGNED:
        design, regression = DESIGNED[method]
        masks = _different(draw_masks(design, n_masks, *measured.units, sparsity, seed))
        found, more = _sensed(measured, masks, estimator or regression, k, patience, seed)
        more |= {"sparsity": sparsity, "design": design}
    elif method == "greedy":
        order, found = greedy(measured, k)
        more = {"order": [str(head) for head in order]}
    else:
        found, more = one_shot(measured), {}
    return _scores(measured, method, found, {**more, "seed": seed})


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
    finished = ~np.isnan(values).any(1)
    used, values = used[finished], values[finished]
    result = fit(used, values, estimator, base=base, seed=seed)
    hurting = int((result.coefficients < 0).sum())
    if hurting < k:
        warnings.warn(
            f"{estimator} found {hurting} of {k} heads whose ablation hurts in {len(used)} masks; the others rank by the plain "
            "difference between masks with and without them: draw more masks, ablate more heads in each, or take a finer metric",
            stacklevel=4,
        )
    order = [str(head) for head in _order(result, used, values.mean(1))]
    return result.per_trial, {"n_masks": len(used), "order": order, "fit": _described(result)}


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
    """All heads: those whose coefficient is negative, then those that were not chosen, then those whose ablation helps.

    Heads that the regression leaves at 0 come in order of the plain difference between masks with and without them.
    """
    flat = masks.reshape(len(masks), -1).astype(float)
    often = flat.sum(0)
    with_, without = response @ flat, response @ (1 - flat)
    with np.errstate(invalid="ignore", divide="ignore"):
        difference = np.nan_to_num(with_ / often - without / (len(flat) - often))
    coefficients = result.coefficients.ravel()
    order = np.lexsort((difference, coefficients))
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
            found = recover(masks[:end][finished], values[finished], estimator, base=measured.base, seed=seed).ravel()
        first = {int(head) for head in np.argsort(found, kind="stable")[:k] if found[head] < 0}
        same = same + 1 if first == before and len(first) == k else 0
        if same >= patience:
            break
        before = first
    return masks[: len(values)], values


def _described(result: Fit) -> dict[str, Any]:
    """A fit as JSON holds it: numbers, and a row per head of the support, the worst first."""
    at = sorted(zip(*result.support.nonzero(), strict=True), key=lambda place: result.coefficients[place])
    return {
        "estimator": result.method,
        "alpha": result.alpha,
        "intercept": result.intercept,
        "r2": _number(result.r2),
        "held_out_r2": _number(result.held_out_r2),
        "heads": [
            {
                "head": str(Head(*map(int, place))),
                "coefficient": float(result.coefficients[place]),
                "low": _number(float(result.low[place])),
                "high": _number(float(result.high[place])),
                "stability": float(result.stability[place]),
            }
            for place in at
        ],
    }


def _number(value: float) -> float | None:
    """JSON has no NaN."""
    return float(value) if math.isfinite(value) else None


def _scores(
    measured: MaskedMetric, method: str, per_trial: Float[np.ndarray, "trial layer head"], more: dict[str, Any]
) -> HeadScores:
    unit: Unit = "query_head" if measured.level == "query_head" else "kv_head"
    meta = {
        **measured.settings,
        "metric": measured.metric,
        "best": "lowest",
        "score_unit": f"change of {measured.metric}",
        "signed": True,
        "base": float(measured.base.mean()),
        "evaluations": len(measured.requested),
        "trials": measured.about,
        "n_trials": len(measured.trials),
        **more,
    }
    ids = [trial.id for trial in measured.trials]
    return HeadScores.from_trials(method, torch.from_numpy(per_trial), ids, meta, unit)
