"""The test of mean > 0: what it computes, and the false discovery rate it keeps where other tests lose it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from scipy import stats as scipy_stats

from lens_heads.stats import benjamini_hochberg
from lens_heads.stats.positive_mean import FEWEST_TRIALS, positive_mean_p

HEADS, REAL = 270, 13
KINDS = ("normal", "right skew", "left skew")


def shaped(kind: str, z: np.ndarray) -> np.ndarray:
    """Standard normal values as others of mean 0 and variance 1: centred exponential, or minus a centred lognormal."""
    if kind == "right skew":
        return -np.log(scipy_stats.norm.sf(z)) - 1
    if kind == "left skew":
        return (np.exp(0.5) - np.exp(z)) / np.sqrt((np.e - 1) * np.e)
    return z


def experiment(kind: str, trials: int, correlation: float, effect: float, seed: int) -> torch.Tensor:
    """[trial, head] scores, of which the first 13 heads have a mean above zero."""
    generator = np.random.default_rng(seed)
    common, own = generator.standard_normal((trials, 1)), generator.standard_normal((trials, HEADS))
    found = shaped(kind, np.sqrt(correlation) * common + np.sqrt(1 - correlation) * own)
    found[:, :REAL] += effect
    return torch.from_numpy(found)


def rates(
    test: Callable[[torch.Tensor], torch.Tensor], kind: str, trials: int, correlation: float, effect: float, n: int
) -> tuple[float, float]:
    """(false discovery rate, share of the real heads found) at .05 over n experiments."""
    false, power = [], []
    for seed in range(n):
        found = benjamini_hochberg(test(experiment(kind, trials, correlation, effect, seed)))
        false.append(float(found[REAL:].sum()) / max(1, int(found.sum())))
        power.append(float(found[:REAL].double().mean()))
    return float(np.mean(false)), float(np.mean(power))


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("correlation", [0.0, 0.5])
@pytest.mark.parametrize("trials", [12, 28, 60])
def test_the_false_discovery_rate_holds_under_either_skew(trials: int, correlation: float, kind: str) -> None:
    for effect in (1.0, 2.0):
        false, _ = rates(positive_mean_p, kind, trials, correlation, effect, n=100)
        assert false <= 0.06


def student(values: torch.Tensor) -> torch.Tensor:
    return torch.from_numpy(scipy_stats.ttest_1samp(values.numpy(), 0, alternative="greater").pvalue)


def test_students_t_does_not_hold_it() -> None:
    """So that the test above can fail."""
    assert rates(student, "left skew", 28, 0.0, 2.0, n=20)[0] > 0.3


@pytest.mark.parametrize(
    ("kind", "trials", "effect", "least"),
    [("normal", 12, 2.0, 0.9), ("normal", 28, 1.0, 0.85), ("right skew", 28, 1.0, 0.95), ("left skew", 28, 2.0, 0.75)],
)
def test_real_effects_are_found(kind: str, trials: int, effect: float, least: float) -> None:
    assert rates(positive_mean_p, kind, trials, 0.0, effect, n=20)[1] >= least


def test_p_is_never_below_students_and_grows_with_the_skew_of_the_others() -> None:
    first = np.random.default_rng(0).standard_normal((20, 1)) + 0.8
    ps = []
    for kind in KINDS:
        others = shaped(kind, np.random.default_rng(1).standard_normal((20, 200)))
        values = torch.from_numpy(np.concatenate([first, others], 1))
        p = positive_mean_p(values)
        assert (p >= student(values)).all()
        ps.append(float(p[0]))
    assert ps[0] <= ps[1] + 1e-9 < ps[2], "normal and right-skewed neighbours count alike, left-skewed ones raise p"
    alone = float(positive_mean_p(torch.from_numpy(first))[0])
    assert alone >= ps[2], "nothing is known about the skew of one item alone"


def test_p_by_hand_from_a_simulation_of_ones_own() -> None:
    """One item: t under a mirrored lognormal of sigma 1.25, from other random numbers and scipy's t."""
    values = np.array([3.0, 2, 4, 3, 5, 2, 3, 4, 3, 2, 4, 5]) - 1.5
    z = np.random.default_rng(5).standard_normal((12, 40_000))
    null = scipy_stats.ttest_1samp(np.exp(1.25**2 / 2) - np.exp(1.25 * z), 0).statistic
    expected = (null >= scipy_stats.ttest_1samp(values, 0).statistic).mean()
    assert 0.005 < expected < 0.2
    assert float(positive_mean_p(torch.from_numpy(values)[:, None])[0]) == pytest.approx(expected, abs=0.006)


def test_items_that_never_vary() -> None:
    values = torch.zeros(12, 2, 2)
    values[:, 0, 1], values[:, 1, 0], values[:, 1, 1] = 1.0, -1.0, torch.linspace(-1, 1, 12)
    p = positive_mean_p(values)
    assert p.shape == (2, 2)
    assert p[0, 0] > 0.3
    assert p[0, 1] == pytest.approx(1 / 200_001)
    assert p[1, 0] == 1


def test_few_trials_are_refused() -> None:
    with pytest.raises(ValueError, match="9 trials: a test of mean > 0 needs at least 10"):
        positive_mean_p(torch.randn(FEWEST_TRIALS - 1, 5))
