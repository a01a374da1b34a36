"""Greedy searches, the baselines of compressed sensing: ablate every head alone, or on top of the heads chosen so far."""

from __future__ import annotations

import warnings

import numpy as np
from jaxtyping import Float

from lens_heads.heads.head import Head
from lens_heads.ranking.masks.measure import MaskedMetric
from lens_heads.runs import checks
from lens_heads.runs.typed import typed
from lens_heads.runs.warned import users_line


@typed
def one_shot(measured: MaskedMetric) -> Float[np.ndarray, "trial layer head"]:
    """The change of each trial's metric when each head is ablated alone: one evaluation per head.

    Redundant heads score nothing here, because either of them suffices. Raises RuntimeError if a run fails.

    `measured`: the metric.

    Example:
        >>> changes = lh.ranking.one_shot(lh.ranking.MaskedMetric(model, trials[:2]))
        >>> changes.shape, bool(changes.mean(0).min() < 0)
        ((2, 2, 4), True)
    """
    change = _values(measured, [[head] for head in measured.everyone]) - measured.base
    return measured.table(change.T)


@typed
def greedy(measured: MaskedMetric, k: int) -> tuple[list[Head], Float[np.ndarray, "trial layer head"]]:
    """Choose k heads one by one, each the one that lowers the mean metric most when ablated with those before it.

    Needs about k evaluations per head. Returns the heads in the order chosen (kv heads for masks of kv groups), and the
    change of each trial's metric when each was added, 0 for heads never chosen. Stops early, with a warning, when no further
    head lowers the metric. Raises ValueError for k outside 1 to the number of heads, RuntimeError if a run fails.

    `measured`: the metric. `k`: how many heads.

    Example:
        >>> chosen, changes = lh.ranking.greedy(lh.ranking.MaskedMetric(model, trials[:2]), 2)
        >>> set(chosen) == set(heads)
        True
    """
    everyone = measured.everyone
    checks.whole_number("k", k, 1, len(everyone), ", the number of heads")
    chosen: list[Head] = []
    before = measured.base
    marginal = measured.table(np.zeros((len(measured.trials), len(everyone))))
    while len(chosen) < k:
        left = [head for head in everyone if head not in chosen]
        values = _values(measured, [[*chosen, head] for head in left])
        best = int(values.mean(1).argmin())
        if values[best].mean() >= before.mean():
            warnings.warn(
                f"greedy search stopped at {len(chosen)} of {k} heads: ablating one more does not lower {measured.metric}",
                stacklevel=users_line(),
            )
            break
        head = left[best]
        marginal[:, head.layer, head.head] = values[best] - before
        chosen, before = [*chosen, head], values[best]
    return chosen, marginal


def others(measured: MaskedMetric, chosen: list[Head]) -> list[Head]:
    """The heads a greedy search did not choose, most harmful in the last one's place first; empty if all cost the same."""
    left = [head for head in measured.everyone if head not in chosen]
    if not left:
        return []
    means = _values(measured, [[*chosen[:-1], head] for head in left]).mean(1)
    return [left[int(at)] for at in np.argsort(means, kind="stable")] if np.ptp(means) else []


def _values(measured: MaskedMetric, sets: list[list[Head]]) -> Float[np.ndarray, "set trial"]:
    """The metric with each set of heads ablated. RuntimeError if a run fails."""
    masks = np.stack([measured.mask(heads) for heads in sets])
    values = measured(masks)
    failed = np.isnan(values).any(1)
    if failed.any():
        heads = ", ".join(str(head) for head in measured.heads(masks[failed.argmax()]))
        found = f"{int(failed.sum())} of {len(masks)} runs failed, the first with {heads} ablated"
        raise RuntimeError(f"{found}. A greedy search needs every run: see the warnings above.")
    return values
