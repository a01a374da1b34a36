"""How well a method finds planted heads: AUROC, average precision and precision at k, with intervals over models."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Unpack

import pandas as pd
import torch

from lens_heads.heads.scores import HeadScores
from lens_heads.runs import checks
from lens_heads.runs.typed import typed
from lens_heads.sanity.planted import Planted, PlantedOptions, planted_model
from lens_heads.stats import mean_interval

QUALITIES = ("auroc", "average_precision", "precision")


@typed
def planted_quality(
    rank: Callable[[Planted], HeadScores],
    *,
    seeds: Sequence[int] | int = 10,
    roles: Sequence[str] | None = None,
    level: float = 0.95,
    **options: Unpack[PlantedOptions],
) -> pd.DataFrame:
    """Rank the heads of models that are planted anew for every seed, and see whether the heads that matter come first.

    Args:
        rank: from a planted model to scores, such as
            `lambda one: lh.score_heads(one.model, one.trials(), "locos", teacher_forced=True)["locos"]`.
        seeds: of the models; a number n for 0 to n - 1.
        roles: the roles to find; None for every head whose ablation alone changes the answer (`Planted.matters`), suppressors
            included, which signed scores put last.
        level: of the intervals.
        **options: of `planted_model`, as `PlantedOptions` says.

    Returns a row per metric (auroc, average_precision, precision at k): value, low, high, over seeds (NaN below five), chance
    (the mean over seeds of what random numbers are expected to get), seeds.

    Raises ValueError for no seeds and whatever `planted_model` and `Planted.quality` refuse.

    Example:
        >>> by_locos = lambda one: lh.rank(one.model, one.trials(8), "locos")["locos"]
        >>> lh.sanity.planted_quality(by_locos, seeds=1, roles=["copier", "writer"], backups=0, chains=0)[["metric", "value"]]
                      metric  value
        0              auroc    1.0
        1  average_precision    1.0
        2          precision    1.0
    """
    listed = list(range(checks.count("seeds", seeds))) if checks.whole(seeds) is not None else _seeds(seeds)
    checks.level(level)
    rows = []
    for seed in listed:
        truth = planted_model(seed=seed, **options)
        wanted = truth.matters if roles is None else truth.of(*roles)
        rows.append({**truth.quality(rank(truth), truth=wanted), "share": len(wanted) / len(truth.roles)})
    found = pd.DataFrame(rows)
    share = float(found["share"].mean())
    return over_seeds(found, level).assign(chance=[0.5, share, share], seeds=len(listed))


def _seeds(given: Any) -> list[int]:
    listed = checks.whole_numbers("seeds", given, 0, ", or how many; better ten") if given != [] else []
    if not listed:
        raise ValueError("there are no seeds: give at least one, better ten")
    return [checks.seed(seed, "seeds") for seed in listed]


def over_seeds(rows: pd.DataFrame, level: float = 0.95) -> pd.DataFrame:
    """The mean of every quality over rows, one per model, with its interval: metric, value, low, high."""
    values = torch.from_numpy(rows[list(QUALITIES)].to_numpy(float).copy())
    _, low, high = mean_interval(values, level=level)
    return pd.DataFrame(
        {"metric": QUALITIES, "value": values.mean(0).tolist(), "low": low.tolist(), "high": high.tolist()}
    )
