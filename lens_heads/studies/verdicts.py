"""Verdicts on a paper's claims, and intervals wide enough for few trials."""

from __future__ import annotations

HOLDS, DOES_NOT, UNTOLD = "holds", "does not hold", "cannot be told"


def widened(value: float, low: float, high: float, trials: int) -> tuple[float, float]:
    """An interval no narrower than what so many trials may well not have shown: a share of 1 - 0.025 ** (1 / trials).

    (The exact upper bound of a share that was never seen.) A bootstrap has no width where every trial has the same value.
    """
    unseen = 1 - 0.025 ** (1 / max(trials, 1))
    return min(low, value - unseen), max(high, value + unseen)


def counted(verdicts: list[str]) -> str:
    """How many of each."""
    return ", ".join(f"{verdicts.count(verdict)} {verdict}" for verdict in (HOLDS, DOES_NOT, UNTOLD))
