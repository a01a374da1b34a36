"""Sampling to a precision: by hand, and whether stopping harms the interval or the mean."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest
from scipy import stats as scipy_stats

from lens_heads import stats
from lens_heads.stats import Precision


def test_blocks_are_added_until_the_interval_is_narrow_or_trials_run_out() -> None:
    plan = Precision(half_width=0.5, at_most=50, block=20)
    assert not plan.enough(0.51, 20)
    assert plan.enough(0.5, 20)
    assert plan.enough(9.0, 50)
    assert plan.enough(math.nan, 50)
    assert not plan.enough(math.nan, 4), "no interval yet"
    assert [plan.next_block(n) for n in (0, 20, 40, 50, 60)] == [20, 20, 10, 0, 0]


def test_how_many_trials_would_have_told() -> None:
    assert stats.needed(0.5, 20, 0.25) == 80
    assert stats.needed(0.3, 10, 0.1) == 90, "rounding errors add no trial"
    assert stats.needed(0.5, 20, 0.26) == math.ceil(20 * (0.5 / 0.26) ** 2)
    assert stats.needed(0.0, 20, 0.25) == 1
    assert stats.n_to_tell(0.2, half_width=0.4, n=30, at=0.0) == 120
    assert stats.n_to_tell(0.1, half_width=0.2, n=30, at=0.5) == 8
    assert stats.n_to_tell(0.25, half_width=0.2, n=30, at=0.25) is None
    assert stats.n_to_tell(0.2, half_width=0.8, n=30, at=0.0) == 16 * 30
    assert stats.n_to_tell(0.2, half_width=1.0, n=30, at=0.0) is None, "25 times as many: too far to be told from these"


def test_the_number_needed_is_the_number_that_suffices() -> None:
    rng = np.random.default_rng(0)

    def half_width(n: int) -> float:
        values = rng.normal(size=(2000, n))
        return float((scipy_stats.t.ppf(0.975, n - 1) * values.std(1, ddof=1) / math.sqrt(n)).mean())

    wanted = stats.needed(half_width(30), 30, 0.2)
    assert half_width(wanted) == pytest.approx(0.2, rel=0.03)


def stopped(values: np.ndarray, plan: Precision) -> tuple[float, float, int]:
    """(mean, half-width of the t interval, trials) of one study that adds blocks of trials until `plan` has enough."""
    n = plan.next_block(0)
    while True:
        seen = values[:n]
        half_width = scipy_stats.t.ppf(0.975, n - 1) * seen.std(ddof=1) / math.sqrt(n)
        if plan.enough(half_width, n):
            return seen.mean(), half_width, n
        n += plan.next_block(n)


@pytest.mark.slow
@pytest.mark.parametrize("spread", [0.5, 0.8, 1.5])
def test_stopping_on_precision_keeps_coverage_and_the_mean(spread: float) -> None:
    """Normal data, studies that mostly stop after the first block, in the middle, and at the cap."""
    values = 0.1 + spread * np.random.default_rng(2).normal(size=(2000, 200))
    mean, half_width, n = np.array([stopped(row, Precision()) for row in values]).T
    assert (np.abs(mean - 0.1) <= half_width).mean() >= 0.93
    assert np.mean(mean) == pytest.approx(0.1, abs=3 * mean.std() / math.sqrt(len(mean)))
    assert {0.5: 20 <= n.mean() < 30, 0.8: 40 < n.mean() < 80, 1.5: n.mean() > 120}[spread]
    assert (half_width[n < 200] <= 0.25).all()


@pytest.mark.slow
def test_stopping_on_the_sign_would_not() -> None:
    """What the rule forbids: the same studies, stopped as soon as the interval excludes 0."""
    values = np.random.default_rng(3).normal(size=(400, 200))

    def excludes(row: np.ndarray, n: int) -> bool:
        half_width = scipy_stats.t.ppf(0.975, n - 1) * row[:n].std(ddof=1) / math.sqrt(n)
        return abs(row[:n].mean()) > half_width

    assert np.mean([any(excludes(row, n) for n in range(20, 201, 20)) for row in values]) > 0.12


@pytest.mark.parametrize(
    ("refused", "message"),
    [
        (lambda: Precision(half_width=0), "half_width=0: must be above 0"),
        (lambda: Precision(half_width=math.nan), "half_width=nan: must be a finite number"),
        (lambda: Precision(at_most=0), "at_most=0: must be a positive integer"),
        (lambda: Precision(block=2.5), "block=2.5: must be a positive integer"),  # type: ignore[arg-type]
        (lambda: Precision().enough(0.1, -1), "n_now=-1: must be a non-negative integer"),
        (lambda: stats.needed(0.1, 20, 0), "target=0: must be above 0"),
        (lambda: stats.needed(-0.1, 20, 1), "half_width_now=-0.1: must be a finite number of at least 0"),
        (lambda: stats.n_to_tell(math.inf, half_width=0.1, n=20, at=0), "estimate=inf: must be a finite number"),
    ],
)
def test_what_is_no_number_is_refused(refused: object, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        refused()  # type: ignore[operator]
