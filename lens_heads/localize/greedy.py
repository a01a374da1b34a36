"""Greedy searches, the baselines of compressed sensing: every head ablated alone, or on top of those chosen so far."""

from __future__ import annotations

import warnings

import numpy as np
from jaxtyping import Float

from lens_heads.heads.head import Head
from lens_heads.heads.sets import every_head
from lens_heads.localize.measure import MaskedMetric


def one_shot(measured: MaskedMetric) -> Float[np.ndarray, "trial layer head"]:
    """How each trial's metric changes when each head alone is ablated: one evaluation per head.

    Heads that stand in for each other score nothing here, for each is enough. Raises RuntimeError when a run failed.
    """
    every = np.eye(int(np.prod(measured.units)), dtype=bool).reshape(-1, *measured.units)
    change = _finished(measured, every) - measured.base
    return change.T.reshape(-1, *measured.units)


def greedy(measured: MaskedMetric, k: int) -> tuple[list[Head], Float[np.ndarray, "trial layer head"]]:
    """k heads, each the one whose ablation on top of those before it lowers the mean metric most: about k evaluations a head.

    Returns the heads in the order they were chosen (kv heads, where masks are of kv groups), and how each trial's metric
    changed when each was added; 0 for heads never chosen. Stops early, with a warning, when no further head lowers the
    metric. Raises ValueError for k outside 1 to the number of heads, RuntimeError when a run failed.
    """
    everyone = every_head(*measured.units)
    if not 1 <= k <= len(everyone):
        raise ValueError(f"k={k}: greedy search chooses 1 to {len(everyone)} heads")
    chosen: list[Head] = []
    before, marginal = measured.base, np.zeros((len(measured.trials), *measured.units))
    while len(chosen) < k:
        left = [head for head in everyone if head not in chosen]
        values = _finished(measured, np.stack([measured.mask([*chosen, head]) for head in left]))
        best = int(values.mean(1).argmin())
        if values[best].mean() >= before.mean():
            warnings.warn(
                f"greedy search stopped at {len(chosen)} of {k} heads: ablating one more does not lower {measured.metric}",
                stacklevel=3,
            )
            break
        head = left[best]
        marginal[:, head.layer, head.head] = values[best] - before
        chosen, before = [*chosen, head], values[best]
    return chosen, marginal


def others(measured: MaskedMetric, chosen: list[Head]) -> list[Head]:
    """The heads that a greedy search did not choose, by what ablating each in the last head's place costs: no new runs.

    None where all cost the same, which puts them in no order.
    """
    everyone = every_head(*measured.units)
    left = [head for head in everyone if head not in chosen]
    if not left:
        return []
    values = _finished(measured, np.stack([measured.mask([*chosen[:-1], head]) for head in left])).mean(1)
    return [left[int(at)] for at in np.argsort(values, kind="stable")] if np.ptp(values) else []


def _finished(measured: MaskedMetric, masks: np.ndarray) -> Float[np.ndarray, "mask trial"]:
    values = measured(masks)
    failed = np.isnan(values).any(1)
    if failed.any():
        heads = ", ".join(str(head) for head in measured.heads(masks[failed.argmax()]))
        raise RuntimeError(
            f"{int(failed.sum())} of {len(masks)} runs failed, the first with {heads} ablated: see the warnings above; a "
            "greedy search needs all of them"
        )
    return values
