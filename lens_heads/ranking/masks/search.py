"""search: which masks find the most harmful heads? Judged on trials that did not select the heads."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Unpack

import numpy as np
import pandas as pd
import torch

from lens_heads.heads.controls import AnyControls, Controls
from lens_heads.heads.grouping import groups_of
from lens_heads.heads.head import Head, Unit
from lens_heads.heads.scores import HeadScores
from lens_heads.interventions.checked_kind import Ablation
from lens_heads.interventions.independence import check_made_on
from lens_heads.interventions.options import AblationRun
from lens_heads.model.geometry import Model
from lens_heads.ranking.masks.localize import DESIGNED, Settings, localize
from lens_heads.ranking.masks.measure import MaskedMetric
from lens_heads.runs import checks
from lens_heads.runs.drawn import Tabled
from lens_heads.runs.typed import typed
from lens_heads.stats import crossed_interval
from lens_heads.trials.digests import made_on
from lens_heads.trials.trial import AnyTrial

BESIDE = Controls("random")
"""The controls by default."""


@dataclass(frozen=True, eq=False)
class Search(Tabled):
    """The result of `search`. `frame`: one row per setting, in the order tried; `best`: the scores of the most harmful one.

    Columns: method, sparsity, n_masks; heads; damage = base - value on the held-out trials, with its 95 % interval (low, high;
    NaN below five trials); held_out_r2 (on masks left out of the fit); evaluations. The row "random" ablates as many random
    heads, over all draws. The damage of the best setting is biased upward, because it was chosen by it: measure it again on
    a third split.

    Example:
        >>> found = lh.ranking.search(model, trials[:2], held_out=others[:2], sparsities=0.25, n_masks=30, k=2, kind="zero")
        >>> found.best.top(2) == heads
        True
    """

    frame: pd.DataFrame
    best: HeadScores
    scores: list[HeadScores]

    def __repr__(self) -> str:
        row = self.frame.iloc[int(self.frame.loc[self.frame["method"] != "random", "damage"].argmax())]
        bounds = "" if np.isnan(row["low"]) else f" [{row['low']:.3g}, {row['high']:.3g}]"
        return (
            f"Search(best of {len(self.scores)}: {row['method']}, sparsity {row['sparsity']:g}, {row['n_masks']:.0f} masks; "
            f"damage {row['damage']:.3g}{bounds})"
        )


@typed(batch_size=8)
def search(
    model: Model,
    trials: Iterable[AnyTrial],
    *,
    held_out: Iterable[AnyTrial],
    methods: Sequence[str] | str = ("css",),
    sparsities: Sequence[float] | float = (0.02, 0.05, 0.1),
    n_masks: Sequence[int] | int = (100, 200, 400),
    metric: str = "logprob",
    k: int = 5,
    controls: AnyControls = BESIDE,
    seed: int = 0,
    estimator: str | None = None,
    patience: int | None = None,
    kind: str | Ablation,
    unit: Unit = "query_head",
    **options: Unpack[AblationRun],
) -> Search:
    """Localize with every method, sparsity and number of masks, and ablate the k heads found on held-out trials.

    The paper chooses hyperparameters by the damage of the heads they find; on the trials of the fit, that would reward chance.
    Larger numbers of masks extend smaller ones, so all together cost as much as the largest. The other arguments are those
    of `localize` and `MaskedMetric`; `out` is a folder for both run folders.

    Raises ValueError before running anything: for a method without masks, trials in both splits, and what `localize` refuses.

    `model`, `held_out`: where and on what the heads are ablated. `methods`, `sparsities`, `n_masks`: of each, all are tried.
    `metric`, `seed`, `estimator`, `patience`, `kind`, `unit`, `reference`: as in `localize_heads`. `controls`: "random",
    beside each.

    Example:
        >>> found = lh.ranking.search(model, trials[:2], held_out=others[:2], sparsities=0.25, n_masks=30, k=2, kind="zero")
        >>> found.frame[["method", "sparsity", "n_masks"]].values.tolist()
        [['css', 0.25, 30.0], ['random', nan, nan]]
    """
    controls = Controls.given(controls, BESIDE, ("random",), few=False, several=False)
    checks.seed(seed)
    methods = [methods] if isinstance(methods, str) else list(methods)
    sparsities = list(sparsities) if isinstance(sparsities, Iterable) else [sparsities]
    unknown = next((name for name in methods if name not in DESIGNED), None)
    if unknown is not None:
        raise ValueError(f"method {unknown!r} draws no masks: use {', '.join(DESIGNED)}")
    none = isinstance(n_masks, Sequence) and len(n_masks) == 0
    if none or not (methods and sparsities):
        raise ValueError("there are no settings to try: give at least one method, sparsity and number of masks")
    counts = sorted(checks.whole_numbers("n_masks", n_masks))
    tried = itertools.product(methods, sparsities, counts)
    settings = [Settings(method, count, sparsity, k, estimator, patience, seed) for method, sparsity, count in tried]
    out = options.pop("out", None)
    how: dict[str, Any] = {"metric": metric, "kind": kind, "unit": unit}
    measured, judge = (
        MaskedMetric(model, part, **how, **{**options, "out": None if out is None else Path(out) / name})
        for name, part in (("fit", trials), ("held_out", held_out))
    )
    check_made_on("of the search", made_on(measured.trials), made_on(judge.trials))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # `localize` warns again when it measures the masks.
        for one in settings:
            one.masks(measured)
    scores: list[HeadScores] = []
    rows: list[dict[str, Any]] = []
    for one in settings:
        found = localize(measured, **vars(one))
        scores.append(found)
        row = {"method": one.method, "sparsity": one.sparsity, "n_masks": one.n_masks}
        row |= _damage(judge, [found.ranking()[:k]])
        row |= {"held_out_r2": found.fit["held_out_r2"], "evaluations": found.evaluations}
        rows.append(row)
    everyone = judge.everyone
    draws = controls.random(everyone, k)
    best = scores[int(np.argmax([row["damage"] for row in rows]))]
    if draws:
        rows.append({"method": "random"} | _damage(judge, draws) | {"heads": f"{controls.draws} draws"})
    return Search(pd.DataFrame(rows), best, scores)


def _damage(judge: MaskedMetric, sets: Sequence[Sequence[Head]]) -> dict[str, Any]:
    values = judge(np.stack([judge.mask(heads) for heads in sets]))
    damage, low, high = crossed_interval(torch.from_numpy(judge.base - values), groups=groups_of(judge.trials))
    return {"heads": ", ".join(map(str, sets[0])), "damage": damage, "low": low, "high": high}
