"""The rank of a lead among random sets: by hand, against a loop, and how often a random set is called harmful."""

from __future__ import annotations

import re

import numpy as np
import pytest

from lens_heads import stats


def test_a_rank_by_hand() -> None:
    random = np.array([-1.0, -2.0, -3.0, -0.5])
    assert stats.rank_p(-2.5, random) == stats.RandomRank(p=2 / 5, rank=2, draws=4)
    assert stats.rank_p(-2.5, random, harmful="higher").rank == 4
    assert stats.rank_p(-9.0, random) == (1 / 5, 1, 4)
    assert stats.rank_p(9.0, random) == (1.0, 5, 4)
    assert stats.rank_p(-2.0, random).rank == 3, "a tie counts against the lead"


def test_trials_are_averaged_as_in_a_loop() -> None:
    rng = np.random.default_rng(0)
    lead, random = rng.normal(size=7) + 0.5, rng.normal(size=(25, 7))
    harmful = sum(sum(row) / 7 >= sum(lead) / 7 for row in random.tolist())
    assert stats.rank_p(lead, random, harmful="higher") == ((1 + harmful) / 26, 1 + harmful, 25)
    same = stats.rank_p(random[3], random[[3, 3, 3]], harmful="higher")
    assert same.rank == 4, "sets with the same values tie whatever the order of the sum"


def test_a_lead_that_is_a_random_set_is_rarely_called_harmful() -> None:
    """40 draws of sets on 5 trials, 2,000 times; the trials' own difficulty is shared by all sets."""
    rng = np.random.default_rng(1)
    sets = rng.exponential(size=(2000, 41, 1)) + rng.normal(size=(2000, 41, 5)) + 3 * rng.normal(size=(2000, 1, 5))
    p = np.array([stats.rank_p(one[0], one[1:], harmful="higher").p for one in sets])
    for level in (0.05, 0.1, 0.5):
        assert (p <= level).mean() <= level + 0.005
        assert (p <= level).mean() >= level - 0.03
    assert np.mean([stats.rank_p(one[0] + 5, one[1:], harmful="higher").p <= 0.05 for one in sets[:200]]) > 0.8


@pytest.mark.parametrize(
    ("lead", "random", "message"),
    [
        (1.0, np.zeros(0), "observed of shape [] and random of shape [0]: must be [] and [draw]"),
        (np.zeros(3), np.zeros((5, 4)), "observed of shape [3] and random of shape [5, 4]"),
        (np.zeros(3), np.zeros(5), "observed of shape [3] and random of shape [5]"),
        (np.nan, np.zeros(5), "observed is nan at []: must be finite"),
        (0.0, np.array([0.0, np.inf]), "random is inf at [1]: must be finite"),
    ],
)
def test_what_has_no_rank_is_refused(lead: float, random: np.ndarray, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        stats.rank_p(lead, random)


def test_an_unknown_direction_is_refused() -> None:
    with pytest.raises(ValueError, match=r"unknown harmful 'worse'\. Choose from lower, higher"):
        stats.rank_p(0.0, np.zeros(3), harmful="worse")  # type: ignore[arg-type]
