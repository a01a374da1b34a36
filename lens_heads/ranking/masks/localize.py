"""localize_heads: find the few heads a capability needs, from a few hundred runs with random heads ablated.

If all masks ablate equally many heads (every method except "csb"), coefficients are relative to the average unselected head
(see `Fit.intercept`), so a positive one does not show that the model is better without the head. There are no intervals over
trials: heads selected on a set of trials look better on these trials than they are.

Differs from the authors' script: the sign (the script lists the heads whose ablation helps first), alpha by
cross-validation, least squares on the selected heads, and one loaded model that runs shared prefixes once.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Unpack

import numpy as np
import torch
from jaxtyping import Bool, Float

from lens_heads.heads.head import Head, Unit
from lens_heads.heads.scores import HeadScores, settings_of
from lens_heads.interventions.checked_kind import Ablation
from lens_heads.interventions.options import AblationRun
from lens_heads.model.geometry import Model, head_geometry
from lens_heads.model.workers import shared
from lens_heads.ranking.masks.designs import draw_masks, share
from lens_heads.ranking.masks.greedy import greedy, one_shot, others
from lens_heads.ranking.masks.in_turn import MADE_ON, best_in_turn
from lens_heads.ranking.masks.lasso import FOLDS, REGRESSIONS
from lens_heads.ranking.masks.measure import MaskedMetric
from lens_heads.ranking.masks.sparse_fit import Fit, fit, solve_masks
from lens_heads.ranking.material import Material
from lens_heads.ranking.method import Method, k_rounds, total
from lens_heads.ranking.method import every_head as passes_for_every_head
from lens_heads.runs import checks
from lens_heads.runs.typed import typed
from lens_heads.runs.warned import users_line
from lens_heads.trials.digests import made_on
from lens_heads.trials.trial import AnyTrial

DESIGNED = {
    "css": ("stratified", "lasso"),
    "csb": ("bernoulli", "lasso"),
    "csl": ("layer_balanced", "lasso"),
    "elastic_net": ("stratified", "elastic_net"),
}
"""The compressed-sensing methods: the design of the masks, and the regression."""

SEARCHES = ("greedy", "one_shot", "best_in_turn")
MOST_FAILED = 0.1
"""The largest share of masks whose runs may fail."""

ROUND = 25
"""Masks between two checks of whether the ranking has settled."""


@dataclass(frozen=True)
class Settings:
    """The settings of `localize`, checked: ValueError for those that it refuses."""

    method: str = "css"
    n_masks: int = 200
    sparsity: float = 0.02
    k: int = 5
    estimator: str | None = None
    patience: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if self.method not in (*DESIGNED, *SEARCHES):
            raise ValueError(f"unknown method {self.method!r}: use {', '.join((*DESIGNED, *SEARCHES))}")
        if self.estimator is not None and self.method in SEARCHES:
            raise ValueError(f"estimator={self.estimator!r}: {self.method} uses no regression, so omit it")
        if self.estimator is not None and self.estimator not in REGRESSIONS:
            raise ValueError(f"estimator={self.estimator!r}: use {', '.join(REGRESSIONS)}")
        if self.method in DESIGNED:
            checks.count("n_masks", self.n_masks, FOLDS, remedy=" for cross-validation, better a few hundred")
            checks.share("sparsity", self.sparsity, "0.02")
        checks.whole_number("k", self.k)
        checks.seed(self.seed)
        if self.patience is not None and self.method in SEARCHES:
            raise ValueError(f"patience={self.patience!r}: {self.method} draws no masks, so omit it")
        if self.patience is not None:
            checks.whole_number("patience", self.patience, remedy=", or None to measure every mask")

    def masks(self, measured: MaskedMetric) -> Bool[np.ndarray, "mask layer head"]:
        """The distinct masks of a method that draws masks. ValueError for settings that do not fit the model."""
        heads, counts = len(measured.everyone), sorted({*measured.there.sum(1)} - {0})
        table = (heads // counts[0], counts[0]) if len(counts) == 1 else (1, heads)  # Of layers that have heads.
        if self.k > heads:
            raise ValueError(f"k={self.k}: the model has only {heads} heads")
        compact = draw_masks(DESIGNED[self.method][0], self.n_masks, *table, self.sparsity, seed=self.seed)
        drawn = measured.table(compact.reshape(len(compact), -1), fill=False)
        # A repeated mask gives the same number again, and in two folds would pass for a good prediction.
        _, first = np.unique(drawn.reshape(len(drawn), -1), axis=0, return_index=True)
        if len(first) < FOLDS:
            found = f"only {len(first)} of the {len(drawn)} masks differ, and cross-validation needs at least {FOLDS}"
            raise ValueError(f"{found}. Use another sparsity, or more masks.")
        masks = drawn[np.sort(first)]
        if masks.sum((1, 2)).max() == 1:
            warnings.warn(
                f"sparsity={self.sparsity} of {heads} heads ablates one at a time, like method 'one_shot' but less directly. "
                f"Use at least {share(2, heads)}, so that heads are ablated together.",
                stacklevel=users_line(),
            )
        return masks


@typed(batch_size=8)
@shared
def localize_heads(
    model: Model,
    trials: Iterable[AnyTrial] | AnyTrial,
    *,
    method: str = "css",
    n_masks: int = 200,
    sparsity: float = 0.02,
    metric: str = "logprob",
    k: int = 5,
    kind: str | Ablation,
    unit: Unit = "query_head",
    seed: int = 0,
    estimator: str | None = None,
    patience: int | None = None,
    **options: Unpack[AblationRun],
) -> HeadScores:
    """Find the few heads that a capability needs   (Compressed Sensing for Capability Localization)

    y_m = the task's metric with the heads of mask m ablated. A sparse regression of y on the masks finds the heads whose
    ablation lowers it. Values are its coefficients: the change of the metric when the head is ablated. **Negative hurts**, and
    the most negative heads rank first (`best` is "lowest"): `top(5)` are the task's heads.

    Args:
        trials: the trials of one task, those that select.
        method: "css" (stratified masks, lasso), "csb" (Bernoulli), "csl" (layer-balanced), "elastic_net" (stratified), or a
            search: "greedy" (adds the worst head k times, about k * heads evaluations), "one_shot" (every head alone),
            "best_in_turn" (the best of three cheap rankings, for 7 + 1.5 k passes: see `localize.in_turn`).
        n_masks, sparsity: the number of masks, and the share of heads that each ablates.
        metric: any of `evaluate`'s. Metrics of generated text ("correct", ...) decode; "logprob" and those of choices do not.
            "logprob" needs far fewer trials: a mask flips few answers, but shifts the log-probability of every one.
        k: how many heads to look for; "greedy" adds this many, "best_in_turn" ranks this many together.
        kind: as in `ablate`. The paper uses "zero". "best_in_turn" takes "zero" and "mean".
        unit: "query_head", or "kv_head" to ablate all query heads of a kv head together and score kv heads.
        seed: for the masks, folds and resamples.
        estimator: a regression from `ranking.masks.lasso.REGRESSIONS` instead of the method's own.
        patience: stop once the top k heads stay the same for this many rounds of 25 masks (`meta["stopped_early"]`).
        **options: run options (`runs.options.RunOptions`; 8 trials at a time by default), and `reference` and the options of
            the ablation. The run folder holds finished masks, which any method reuses, and each method's latest scores as
            `method.json`.

    Returns:
        HeadScores with, per trial, the least-squares coefficients on the heads the lasso selected; the value is their mean.
        Selected heads rank by the lasso's own coefficients. All others are 0 and rank by the plain difference between masks
        with and without them. `fit` is the record of the `Fit`, `base` the metric without ablation. For
        "greedy", a value is the change when the head was added; the `meta["chosen"]` heads rank in that order, followed by
        the others as last tried. For "best_in_turn", the chosen heads share the change that they make together equally;
        `meta["proposed_by"]` is the ranking that proposed them, and orders all heads.

    `localize` does the same on masks that are measured already. The model is left unchanged, even after an error.

    Raises ValueError for an unknown method, too few masks, k out of range, a sparsity that ablates no head or every head, a
    metric that is the same under every mask, and what `MaskedMetric` refuses; RuntimeError if a run of a search or over a
    tenth of the masks fails (fewer: a warning).

    Example:
        >>> found = lh.localize_heads(model, trials[:2], n_masks=40, sparsity=0.25, k=2, kind="zero")
        >>> set(found.top(2)) == set(heads)
        True
    """
    settings = Settings(method, n_masks, sparsity, k, estimator, patience, seed)
    return localize(MaskedMetric(model, trials, metric=metric, kind=kind, unit=unit, **options), **vars(settings))


@typed
def localize(
    measured: MaskedMetric,
    *,
    method: str = "css",
    n_masks: int = 200,
    sparsity: float = 0.02,
    k: int = 5,
    estimator: str | None = None,
    patience: int | None = None,
    seed: int = 0,
) -> HeadScores:
    """`localize_heads` on a MaskedMetric, which keeps its runs: several methods or settings share the masks they have in common.

    Args:
        method, n_masks, sparsity, k, estimator, patience, seed: as in `localize_heads`, with the same result and errors.

    `evaluations` of the result counts the masks this call asked for, including those measured before.

    `measured`: it keeps the runs.

    Example:
        >>> measured = lh.ranking.MaskedMetric(model, trials[:2])
        >>> set(lh.ranking.localize(measured, n_masks=40, sparsity=0.25, k=2).top(2)) == set(heads)
        True
    """
    settings = Settings(method, n_masks, sparsity, k, estimator, patience, seed)
    masks = settings.masks(measured) if method in DESIGNED else None
    measured.requested.clear()
    order: list[Head] = []
    more: dict[str, Any] = {}
    if masks is not None:
        found, order, more = _sensed(measured, masks, settings)
    elif method == "greedy":
        chosen, found = greedy(measured, k)
        order, more = [*chosen, *others(measured, chosen)], {"chosen": len(chosen)}
    elif method == "best_in_turn":
        order, found, by = best_in_turn(measured, k)
        more = {"chosen": k, "proposed_by": by}
    else:
        found = one_shot(measured)
    record = more.pop("fit", {})
    meta = {**measured.settings, "metric": measured.metric, **more, "seed": seed, "n_trials": len(measured.trials)}
    scores = HeadScores.from_trials(
        method,
        torch.from_numpy(found),
        [trial.id for trial in measured.trials],
        meta=meta,
        unit=measured.unit,
        best="lowest",
        order=tuple(order),
        selected=method != "one_shot",  # These trials selected the heads, so they cannot also test them.
        score_unit=f"change of {measured.metric}",
        evaluations=len(measured.requested),
        base=float(measured.base.mean()),
        fit=record,
        settings=settings_of(meta),
        model=measured.identity,
        made_on=made_on(measured.trials),
    )
    if scores.flat.min() == scores.flat.max():
        warnings.warn(
            f"{method} found nothing: ablating any head changes {measured.metric} by {float(scores.flat.min()):g}, so the "
            "order of heads is arbitrary. Use a finer metric, or another kind of ablation.",
            stacklevel=users_line(),
        )
    if measured.folder is not None:
        scores.save(measured.folder.path / f"{method}.json")
    return scores


def _sensed(
    measured: MaskedMetric, masks: Bool[np.ndarray, "mask layer head"], settings: Settings
) -> tuple[Float[np.ndarray, "trial layer head"], list[Head], dict[str, Any]]:
    """Coefficients per trial, the ranking, and what the fit reports about itself."""
    design, regression = DESIGNED[settings.method]
    estimator, k, seed = settings.estimator or regression, settings.k, settings.seed
    base = measured.base
    shrunk = partial(solve_masks, method=estimator, base=base, debias=False, seed=seed)
    values = (
        measured(masks) if settings.patience is None else _until_settled(measured, masks, k, settings.patience, shrunk)
    )
    failed = np.isnan(values).any(1)
    if np.mean(failed) > MOST_FAILED:
        lost = f"{np.sum(failed)} of {len(values)} masks failed"
        raise RuntimeError(
            f"{lost}: without them, heads that make a run fail would look harmless. See the warnings above."
        )
    tried, used, values = len(values), masks[: len(values)][~failed], values[~failed]
    with warnings.catch_warnings():
        if len(used) == len(masks):  # Already warned about when the masks were drawn.
            warnings.filterwarnings("ignore", "masks: ", UserWarning)
        found = fit(used[:, measured.there], values, method=estimator, base=base, seed=seed)
        result = _tables(found, measured)
    hurting = int((result.raw < 0).sum())
    if hurting < k:
        warnings.warn(
            f"{estimator} found only {hurting} of {k} heads whose ablation hurts, from {len(used)} masks; the others rank by "
            "plain differences. Draw more masks, ablate more heads in each, or use a finer metric.",
            stacklevel=users_line(),
        )
    more = {"n_masks": len(used), "stopped_early": tried < len(masks), "fit": result.record()}
    more |= {"sparsity": settings.sparsity, "design": design}
    return result.per_trial, _order(found.raw, used[:, measured.there], values.mean(1), measured.everyone), more


def _tables(found: Fit, measured: MaskedMetric) -> Fit:
    """A fit of all heads as one of tables, with zeros, and NaN for the trials' coefficients, where there is no head."""
    names = ("coefficients", "raw", "support", "stability", "low", "high")
    fields = {name: measured.table(getattr(found, name), fill=0) for name in names}
    return replace(found, per_trial=measured.table(found.per_trial), **fields)


def _order(
    raw: Float[np.ndarray, " unit"],
    masks: Bool[np.ndarray, "mask unit"],
    response: Float[np.ndarray, " mask"],
    everyone: Sequence[Head],
) -> list[Head]:
    """All heads by penalized coefficient, which ranks better than least squares, then by the plain difference."""
    flat = masks.astype(float)
    often = flat.sum(0)
    with np.errstate(invalid="ignore", divide="ignore"):
        difference = np.nan_to_num(response @ flat / often - response @ (1 - flat) / (len(flat) - often))
    return [everyone[at] for at in np.lexsort((difference, raw))]


def _until_settled(
    measured: MaskedMetric, masks: np.ndarray, k: int, patience: int, solve: Callable[..., np.ndarray]
) -> Float[np.ndarray, "mask trial"]:
    """The values of the first masks, as many as it takes for the top k heads to stay the same for `patience` rounds."""
    before, same, values = None, 0, np.empty((0, len(measured.trials)))
    for end in range(ROUND, len(masks) + ROUND, ROUND):
        values = measured(masks[:end])
        finished = ~np.isnan(values).any(1)
        known = values[finished]
        if len(known) < FOLDS or np.ptp(known.mean(1)) == 0:
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # The final fit warns about what holds for all masks.
            found = solve(masks[:end][finished], known).ravel()
        first = {int(head) for head in np.argsort(found, kind="stable")[:k] if found[head] < 0}
        same = same + 1 if first == before and len(first) == k else 0
        if same >= patience:
            break
        before = first
    return values


BATCH = 16
"""Trials in a batch of masked runs."""


def masked_metric(material: Material, name: str = "masks") -> MaskedMetric:
    """The answer's log-probability on the selection trials, as a function of the heads that mean ablation takes."""
    how: dict[str, Any] = {"kind": "mean", "reference": material.reference, "batch_size": BATCH}
    return MaskedMetric(material.model, material.trials, **how, **material.loop(name))


def _method(name: str, family: str, fails: str, **about: Any) -> Method:
    def rank(material: Material) -> HeadScores:
        sparsity = max(0.05, 2 / total(head_geometry(material.model)))
        more = {"n_masks": material.masks, "sparsity": sparsity} if name in DESIGNED else {}
        return localize(masked_metric(material), method=name, k=material.k, seed=material.seed, **more)

    return Method(name, family, rank, fails=fails, signed=True, unit="change of logprob", **about)


_SENSING: dict[str, Any] = {
    "passes": lambda shape, masks, k: float(masks),
    "halves": True,
    "paper": "compressed sensing for capability localization",
}
METHODS = (
    _method(
        "one_shot", "ablation", "misses heads for which others stand in", label="one-shot greedy",
        passes=passes_for_every_head,
    ),
    _method(
        "css", "masks", "assumes few heads whose damages add up; few masks leave heads untold",
        label="compressed sensing, stratified", **_SENSING,
    ),
    _method(
        "csl", "masks", "as css; layers weigh the same however many heads matter in them",
        label="compressed sensing, layer-balanced", **_SENSING,
    ),
    _method(
        "csb", "masks", "as css; masks of unequal size, so that a head's score also tells of how many others were ablated",
        label="compressed sensing, Bernoulli", only_named=True, **_SENSING,
    ),
    _method("elastic_net", "masks", "as css; spreads the blame over heads that were ablated together", **_SENSING),
    _method("greedy", "search", "costs k rounds over all heads; a first wrong head stays", passes=k_rounds, halves=True),
    _method(
        "best_in_turn", "combined", "misses heads that none of three cheap rankings proposes", needs="needle",
        passes=lambda shape, masks, k: 7 + 1.5 * k, halves=True, made_on=MADE_ON,
    ),
)  # fmt: skip
