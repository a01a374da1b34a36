"""How much is enough: trials are added in blocks until an interval is narrow enough, and how many trials would have told.

A rule that stops on the sign, or on p, finds something in nothing. A rule that stops on the width of the interval alone
hardly touches its coverage (Chow and Robbins, "On the asymptotic theory of fixed-width sequential confidence intervals", 1965).
Widths are taken to fall with 1 / sqrt(trials).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from lens_heads.runs import checks
from lens_heads.runs.typed import typed

FURTHEST = 20
"""No number of trials beyond so many times those that were run is given: their spread does not carry so far."""


@dataclass(frozen=True)
class Precision:
    """When to stop adding trials: at an interval's half-width, or at a number of trials.

    `half_width`: the target, in the metric's unit (nats of log-probability by default). `at_most`: trials. `block`: trials
    added at a time; the first block is the least that anything is judged by.

    Example:
        >>> until = lh.stats.Precision(half_width=0.1, at_most=500)
        >>> until.half_width, until.block
        (0.1, 20)
    """

    half_width: float = 0.25
    at_most: int = 200
    block: int = 20

    def __post_init__(self) -> None:
        check_half_width("half_width", self.half_width)
        checks.whole_fields(self, at_most=1, block=1)

    def enough(self, half_width_now: float, n_now: int) -> bool:
        """Whether to stop after `n_now` trials. A half-width of NaN (too few trials for an interval) is never narrow enough."""
        return checks.whole_number("n_now", n_now, 0) >= self.at_most or half_width_now <= self.half_width

    def next_block(self, n_now: int) -> int:
        """How many trials to add to `n_now`: a block, or what is left below `at_most`."""
        return max(min(self.block, self.at_most - checks.whole_number("n_now", n_now, 0)), 0)


@typed
def needed(half_width_now: float, n_now: int, target: float) -> int:
    """How many trials would have had the half-width `target`, if `n_now` trials have `half_width_now`; rounded up.

    Example:
        >>> lh.stats.needed(1.0, 20, target=0.5)
        80
    """
    checks.finite("half_width_now", half_width_now, 0)
    checks.whole_number("n_now", n_now)
    n = n_now * (half_width_now / check_half_width("target", target)) ** 2
    return max(math.ceil(n * (1 - 1e-12)), 1)  # Without the rounding errors of a square.


@typed
def n_to_tell(estimate: float, *, half_width: float, n: int, at: float) -> int | None:
    """How many trials would have told an effect of the size seen from the threshold `at`; None if the two are equal.

    That is, how many would have an interval around `estimate` that excludes `at`, if `n` trials have `half_width`. None too
    for more than `FURTHEST` times `n`. Where the interval also runs over random draws, the answer holds for as many times the
    draws: with the same draws, no number of trials brings it below what these leave.

    Example:
        >>> lh.stats.n_to_tell(estimate=0.5, half_width=1.0, n=20, at=0.0)
        80
    """
    distance = abs(checks.finite("estimate", estimate) - checks.finite("at", at))
    if not distance:
        return None
    wanted = needed(half_width, n, distance)
    return wanted if wanted <= FURTHEST * n else None


def check_half_width(name: str, value: float) -> float:
    """The value as a float. ValueError unless it is a finite number above 0."""
    number = checks.finite(name, value)
    if number <= 0:
        raise ValueError(f"{name}={value!r}: must be above 0, such as 0.25")
    return number
