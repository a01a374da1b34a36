"""Gained and lost heads, planted and worked by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from lens_heads.compare import compare_checkpoints
from lens_heads.heads.made_on import MadeOn
from lens_heads.heads.scores import HeadScores
from lens_heads.stats import gap_interval, mean_interval

BEFORE = [[4.0, 3.0, 2.0, 0.0], [-0.1, 0.5, -1.0, 1.0]]
AFTER = [[4.0, 0.2, 2.0, 3.5], [-0.1, 0.5, 1.0, -1.0]]  # L0H3 comes, L0H1 goes.


def scores(means: list[list[float]], noise: float, seed: int, trials: int = 30, name: str = "t") -> HeadScores:
    """Trials around exactly these means."""
    around = torch.randn(trials, 2, 4, generator=torch.Generator().manual_seed(seed))
    per_trial = torch.tensor(means) + noise * (around - around.mean(0))
    return HeadScores.from_trials("locos", per_trial, [f"{name}{i}" for i in range(trials)])


def test_the_symmetric_effect_is_the_published_formula() -> None:
    found = compare_checkpoints(scores(BEFORE, 0.1, 0), scores(AFTER, 0.1, 1), k=3).set_index("head")
    effects = {"L0H0": 0, "L0H1": -2.8 / 3.2, "L0H3": 1, "L1H0": 0, "L1H2": 1, "L1H3": -1}
    for head, effect in effects.items():
        assert found.loc[head, "effect"] == pytest.approx(effect, abs=1e-5)
    # Below zero counts as nothing for the effect; the difference keeps it.
    assert found.loc["L1H2", "difference"] == pytest.approx(2)
    assert found.loc["L1H3", "difference"] == pytest.approx(-2)
    assert found["difference"].is_monotonic_decreasing
    assert found.loc["L0H3", ["rank_before", "rank_after"]].tolist() == [6, 2]
    assert found["effect_low"].le(found["effect"] + 1e-6).all()
    assert found["effect_high"].ge(found["effect"] - 1e-6).all()


@pytest.mark.parametrize("name", ["t", "other"])
def test_planted_heads_emerge_and_are_lost_paired_or_not(name: str) -> None:
    found = compare_checkpoints(scores(BEFORE, 0.3, 0), scores(AFTER, 0.3, 1, name=name), k=3).set_index("head")
    status = {"L0H0": "kept", "L0H2": "kept", "L0H3": "emergent", "L0H1": "lost"}
    assert found["status"].to_dict() == {head: status.get(head, "") for head in found.index}


def test_noise_alone_makes_nothing_emerge() -> None:
    """All heads score alike; the first three lead before and the last three after, by a thousandth."""
    lead = torch.linspace(1.001, 0.999, 8).reshape(2, 4)
    found = compare_checkpoints(scores(lead.tolist(), 2, 2), scores(lead.flip(0, 1).tolist(), 2, 3), k=3)
    assert sorted(found["status"]) == ["", "", *["unclear"] * 6]


def test_pairing_sees_a_gain_that_the_spread_of_trials_hides() -> None:
    """Trials differ much from each other, but each gains half a point."""
    before = scores(BEFORE, 5, 0)
    after = HeadScores.from_trials("locos", before.per_trial + 0.5, before.trial_ids)
    paired = compare_checkpoints(before, after, k=3)
    apart = compare_checkpoints(before, after, k=3, paired=False)
    np.testing.assert_allclose(paired[["low", "high"]], 0.5, atol=1e-5)
    assert (apart["low"] < 0).all()
    assert (apart["high"] > 1).all()
    assert paired["p"].max() == pytest.approx(2 / 4001)
    assert apart["p"].min() > 0.05


def test_pairing_by_force_takes_the_shared_trials_whatever_their_order() -> None:
    before = scores(BEFORE, 5, 0)
    flipped = HeadScores.from_trials("locos", (before.per_trial + 0.5).flip(0)[:20], before.trial_ids[::-1][:20])
    found = compare_checkpoints(before, flipped, k=3, paired=True)
    np.testing.assert_allclose(found[["low", "high"]], 0.5, atol=1e-5)
    assert compare_checkpoints(before, flipped, k=3)["low"].min() < 0, "not the very same trials: unpaired"


def test_intervals_of_differences_are_those_of_means_over_trials_and_their_groups() -> None:
    before, after = scores(BEFORE, 1, 0, trials=12), scores(AFTER, 1, 1, trials=12)
    groups = [f"needle {i // 2}" for i in range(12)]
    told = tuple(MadeOn(trial, group) for trial, group in zip(before.trial_ids, groups, strict=True))
    at, gaps = [str(head) for head in before.ranking()], after.per_trial - before.per_trial
    known = (replace(before, made_on=told), replace(after, made_on=told))
    cases = [
        (compare_checkpoints(before, after, k=3), mean_interval(gaps, n=4000)),
        (compare_checkpoints(*known, k=3), mean_interval(gaps, groups=groups, n=4000)),
        (
            compare_checkpoints(*known, k=3, paired=False),
            gap_interval(after.per_trial, before.per_trial, groups=(groups, groups), n=4000),
        ),
    ]
    for found, (_, low, high) in cases:
        listed = found.set_index("head").loc[at]
        np.testing.assert_allclose(listed["low"], [low[head.layer, head.head] for head in before.ranking()], rtol=1e-5)
        np.testing.assert_allclose(
            listed["high"], [high[head.layer, head.head] for head in before.ranking()], rtol=1e-5
        )
    widths = [(found["high"] - found["low"]).mean() for found, _ in cases]
    assert len({round(width, 3) for width in widths}) == 3


def test_four_trials_have_no_intervals() -> None:
    found = compare_checkpoints(scores(BEFORE, 1, 0, trials=4), scores(AFTER, 1, 1, trials=4), k=3)
    assert found[["low", "high", "effect_low", "effect_high"]].isna().all(axis=None)
    assert found[["difference", "p", "effect"]].notna().all(axis=None)


def test_what_cannot_be_compared_is_refused() -> None:
    before, after = scores(BEFORE, 1, 0), scores(AFTER, 1, 1)
    other = HeadScores("copy", after.values, after.per_trial, after.trial_ids)
    with pytest.raises(ValueError, match="methods differ: locos before, copy after"):
        compare_checkpoints(before, other)
    with pytest.raises(ValueError, match="2 layers x 4 query heads against 1 layers x 4 query heads"):
        compare_checkpoints(before, HeadScores.from_trials("locos", after.per_trial[:, :1], after.trial_ids), k=2)
    with pytest.raises(ValueError, match="k=0: must be an integer from 1 to 8, the number of heads that locos scores"):
        compare_checkpoints(before, after, k=0)
    with pytest.raises(ValueError, match="k=9: must be an integer from 1 to 8"):
        compare_checkpoints(before, after, k=9)
    with pytest.raises(ValueError, match=r"locos: 30 before and 1 after trials\. .* at least 2"):
        compare_checkpoints(before, scores(AFTER, 1, 1, trials=1), k=3)
    with pytest.raises(ValueError, match=r"locos: 0 shared trials\. .* at least 2"):
        compare_checkpoints(before, scores(AFTER, 1, 1, name="other"), k=3, paired=True)
