"""Intervals of means: how often they hold the truth, exact cases, scipy, and what has none. Every item is a study of its own."""

from __future__ import annotations

import copy
import math
import pickle
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats as scipy_stats

from lens_heads import stats
from lens_heads.stats import Interval
from lens_heads.stats.intervals import NOTHING

STUDIES = 3000
DRAWN = {
    "normal": (lambda rng, size: rng.normal(size=size), 0.0),
    "exponential": (lambda rng, size: rng.exponential(size=size), 1.0),
    "lognormal": (lambda rng, size: rng.lognormal(size=size), math.exp(0.5)),
}


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def coverage(bounds: tuple[torch.Tensor, torch.Tensor], truth: float) -> float:
    low, high = bounds
    return float(((low <= truth) & (truth <= high)).double().mean())


# How often they hold the truth


@pytest.mark.slow
@pytest.mark.parametrize(
    ("shape", "trials", "least"),
    [("normal", 6, 0.94), ("normal", 12, 0.95), ("normal", 28, 0.93)]
    + [("exponential", n, 0.92) for n in (6, 12, 28)]
    + [("lognormal", n, 0.89) for n in (6, 12, 28)],
)
def test_a_mean_is_covered(shape: str, trials: int, least: float) -> None:
    draw, truth = DRAWN[shape]
    rng = np.random.default_rng(trials)
    blocks = [torch.from_numpy(draw(rng, (trials, STUDIES))) for _ in range(3)]
    held = float(np.mean([coverage(stats.mean_interval(values, n=1000)[1:], truth) for values in blocks]))
    assert least <= held <= 0.99, held


@pytest.mark.slow
def test_the_percentile_bootstrap_that_this_replaces_is_caught() -> None:
    draw, truth = DRAWN["lognormal"]
    values = torch.from_numpy(draw(np.random.default_rng(6), (6, STUDIES)))
    _, low, high = stats.percentile_interval(stats.bootstrap_means(values).numpy())
    assert coverage((torch.from_numpy(low), torch.from_numpy(high)), truth) < 0.8


@pytest.mark.slow
@pytest.mark.parametrize(("draws", "trials"), [(5, 12), (12, 20), (50, 20)])
@pytest.mark.parametrize("spread", [(0.5, 0.5, 1.0), (1.0, 0.0, 0.3)], ids=["both", "draws alone"])
def test_a_table_of_draws_by_trials_is_covered(draws: int, trials: int, spread: tuple[float, float, float]) -> None:
    rng, held, studies = np.random.default_rng(0), 0, 800
    by_draw, by_trial, noise = spread
    for _ in range(studies):
        values = by_draw * rng.normal(size=(draws, 1)) + by_trial * rng.normal(size=trials)
        found = stats.crossed_interval(torch.from_numpy(values + noise * rng.normal(size=(draws, trials))), n=200)
        held += found.low <= 0 <= found.high
    assert held / studies >= 0.93


@pytest.mark.slow
def test_clusters_are_covered_and_trials_alone_would_not_be() -> None:
    """A hundred trials of 14 names, intraclass correlation .3."""
    rng, names = np.random.default_rng(1), np.arange(100) % 14
    effects = math.sqrt(0.3) * rng.normal(size=(14, STUDIES))
    values = torch.from_numpy(effects[names] + math.sqrt(0.7) * rng.normal(size=(100, STUDIES)))
    assert coverage(stats.mean_interval(values, groups=names)[1:], 0) >= 0.92
    assert coverage(stats.mean_interval(values)[1:], 0) < 0.8


@pytest.mark.slow
def test_clusters_of_two_kinds_that_cross_are_covered() -> None:
    rng, names, frames = np.random.default_rng(2), np.arange(100) % 14, np.arange(100) // 7
    effects = [math.sqrt(0.2) * rng.normal(size=(15, STUDIES))[labels] for labels in (names, frames)]
    values = torch.from_numpy(sum(effects) + math.sqrt(0.6) * rng.normal(size=(100, STUDIES)))
    assert coverage(stats.mean_interval(values, groups=[names, frames])[1:], 0) >= 0.92
    assert coverage(stats.mean_interval(values, groups=names)[1:], 0) < 0.92


@pytest.mark.slow
@pytest.mark.parametrize("shape", ["normal", "exponential"])
def test_six_clusters_that_cross_others_are_covered_and_have_bounds_that_tell(shape: str) -> None:
    """Six templates, whose resamples are too often the same few: bounds of a bootstrap over them would reach anywhere."""
    (draw, truth), rng = DRAWN[shape], np.random.default_rng(6)
    frames, kinds = np.arange(120) % 6, rng.permutation(np.arange(120) % 15)
    effects = 0.3 * rng.normal(size=(6, STUDIES))[frames] + 0.3 * rng.normal(size=(15, STUDIES))[kinds]
    values = torch.from_numpy(draw(rng, (120, STUDIES)) + effects)
    found = stats.mean_interval(values, groups=[frames, kinds], n=500)
    assert 0.92 <= coverage(found[1:], truth) <= 0.99
    # With the bootstrap-t over the six, one interval in a hundred is wider than 1.4, or than 1.6 if skewed.
    assert float(found.half_width.quantile(0.99)) < 0.9


@pytest.mark.slow
def test_a_rare_draw_that_breaks_a_task_is_covered() -> None:
    """One set of heads in twenty breaks it. Misses that remain are tables without any such draw, one in eight."""
    rng, held, studies = np.random.default_rng(8), 0, 1500
    for _ in range(studies):
        broken = 3 * (rng.random((40, 1)) < 0.05) * (1 + 0.3 * rng.normal(size=(1, 20)))
        noise = 0.1 * rng.normal(size=(40, 1)) + 0.3 * rng.normal(size=(1, 20)) + 0.3 * rng.normal(size=(40, 20))
        found = stats.crossed_interval(torch.from_numpy(broken + noise), n=300)
        held += found.low <= 0.15 <= found.high
    assert held / studies >= 0.92


@pytest.mark.slow
def test_a_ratio_is_covered() -> None:
    rng, held = np.random.default_rng(3), 0
    for _ in range(400):
        below = 2 + rng.normal(size=(1, 20))
        above = 0.5 * below + 0.5 * rng.normal(size=(8, 20)) + 0.2 * rng.normal(size=(8, 1))
        found = stats.ratio_interval(torch.from_numpy(above), torch.from_numpy(below).expand(8, 20), n=200)
        held += found.low <= 0.5 <= found.high
    assert held / 400 >= 0.93


@pytest.mark.slow
def test_a_sum_of_tables_with_the_same_draws_is_covered() -> None:
    """Taken one by one, they would not see that their draws go together."""
    rng, held, apart = np.random.default_rng(4), 0, 0
    for _ in range(400):
        luck = 0.5 * rng.normal(size=(5, 1))
        tables = [torch.from_numpy(luck + 0.5 * rng.normal(size=(5, 12))) for _ in range(5)]
        found = stats.sum_interval(tables, [None] * 5, n=200)
        held += found.low <= 0 <= found.high
        reach = math.sqrt(sum(stats.crossed_interval(table, n=200).half_width ** 2 for table in tables))
        apart += abs(found.value) <= reach
    assert held / 400 >= 0.93
    assert apart / 400 < held / 400 - 0.04


@pytest.mark.slow
def test_a_gap_of_two_samples_is_covered() -> None:
    rng = np.random.default_rng(5)
    first, second = 3 + rng.exponential(size=(8, STUDIES)), rng.exponential(size=(20, STUDIES))
    held = coverage(stats.gap_interval(torch.from_numpy(first), torch.from_numpy(second))[1:], 3)
    assert 0.92 <= held <= 0.99


# Exact cases


def test_means_of_normal_trials_have_students_t_or_wider() -> None:
    values = normal(12, 40)
    _, low, high = stats.mean_interval(values)
    t = scipy_stats.ttest_1samp(values.numpy(), 0).confidence_interval(0.95)
    assert (low.numpy() <= t.low + 1e-6).all()
    assert (high.numpy() >= t.high - 1e-6).all()
    assert np.isclose(low.numpy(), t.low, atol=1e-5).mean() > 0.2, "the bound of a sample without a tail on that side"


def test_the_upper_bound_follows_a_right_tail() -> None:
    values = torch.tensor([0.1, 0.2, 0.1, 0.3, 0.2, 0.1, 0.4, 0.2, 0.1, 3.0])
    _, low, high = (float(end) for end in stats.mean_interval(values))
    mean = float(values.mean())
    assert high - mean > 1.5 * (mean - low)


def test_bootstrap_t_bounds_are_those_of_a_loop() -> None:
    values = np.array([0.1, 0.2, 0.15, 0.3, 0.22, 0.12, 0.4, 0.2, 0.18, 3.0])
    counts = np.random.default_rng(7).multinomial(10, [0.1] * 10, size=500)
    t = []
    for count in counts:
        sample = np.repeat(values, count)
        t.append((sample.mean() - values.mean()) / (sample.std(ddof=0) / math.sqrt(9)))
    high = values.mean() - np.quantile(t, 0.025) * values.std(ddof=1) / math.sqrt(10)
    found = stats.mean_interval(torch.from_numpy(values), n=500, seed=7)[1:]
    assert float(found[1]) == pytest.approx(high, rel=1e-5)


def test_the_variance_of_a_crossed_table_is_its_mean_squares() -> None:
    """Five draws by six trials; the wider bound is Student's t, with Satterthwaite's degrees of freedom."""
    values = normal(5, 6, seed=4).numpy() + np.array([[0.0], [2.0], [4.0], [1.0], [3.0]])
    mean, by_draw, by_trial = values.mean(), values.mean(1), values.mean(0)
    draw = 6 * ((by_draw - mean) ** 2).sum() / 4
    trial = 5 * ((by_trial - mean) ** 2).sum() / 5
    within = sum((values[d, t] - by_draw[d] - by_trial[t] + mean) ** 2 for d in range(5) for t in range(6)) / 20
    total = draw + trial - within
    assert total > max(draw, trial)
    freedom = total**2 / (draw**2 / 4 + trial**2 / 5 + within**2 / 20)
    reach = scipy_stats.t.ppf(0.975, freedom) * math.sqrt(total / 30)
    assert stats.crossed_interval(torch.from_numpy(values)) == pytest.approx((mean, mean - reach, mean + reach))


def test_one_draw_is_the_mean_of_trials_and_equal_draws_change_nothing() -> None:
    values = normal(20)
    alone = [float(end) for end in stats.mean_interval(values)[1:]]
    for draws in (1, 6):
        found = stats.crossed_interval(values.expand(draws, 20))
        assert found == pytest.approx((float(values.mean()), *alone), abs=1e-6)


def test_a_cluster_of_equal_trials_is_one_trial() -> None:
    values, labels = normal(12, seed=2), np.repeat(np.arange(10, 22), 4)  # In the order of their names, too.
    whole = stats.mean_interval(values.repeat_interleave(4), groups=labels)[1:]
    assert [float(x) for x in whole] == pytest.approx([float(x) for x in stats.mean_interval(values)[1:]])
    named = stats.mean_interval(values.repeat_interleave(4), groups=[f"name {i}" for i in labels])[1:]
    assert named == whole


def test_an_empty_label_is_a_cluster_of_its_own() -> None:
    values = normal(12)
    assert stats.mean_interval(values, groups=[""] * 12)[1:] == stats.mean_interval(values)[1:]
    assert all(end.isnan() for end in stats.mean_interval(values, groups=[*"aaaaaaaaa", "", "", ""])[1:])
    assert not any(end.isnan() for end in stats.mean_interval(values, groups=[*"aaaaaaaa", "", "", "", ""])[1:])


def test_two_clusterings_of_which_one_separates_all_trials_are_the_other() -> None:
    values, names = normal(24), np.arange(24) % 8
    both = [float(end) for end in stats.mean_interval(values, groups=[names, np.arange(24)])[1:]]
    one = [float(end) for end in stats.mean_interval(values, groups=names)[1:]]
    assert both[0] <= one[0] + 1e-6
    assert both[1] >= one[1] - 1e-6


def test_a_sum_of_one_table_is_the_table_and_a_gap_is_a_sum() -> None:
    table, other = normal(6, 9), normal(1, 7, seed=3)
    assert stats.sum_interval([table], [None]) == stats.crossed_interval(table)
    summed = stats.sum_interval([table[:1], -other], [None, None])
    gap = stats.gap_interval(table[0], other[0])[1:]
    assert [float(end) for end in gap] == pytest.approx(summed[1:], abs=1e-6)
    welch = scipy_stats.ttest_ind(table[0].numpy(), other[0].numpy(), equal_var=False).confidence_interval(0.95)
    assert summed.low <= welch.low + 1e-9
    assert summed.high >= welch.high - 1e-9


def test_a_ratio_of_proportional_parts_is_certain() -> None:
    below = torch.rand(1, 8, generator=torch.Generator().manual_seed(0)) + 1
    assert stats.ratio_interval(0.25 * below, below) == pytest.approx((0.25, 0.25, 0.25))


def test_a_ratio_to_a_constant_is_a_mean() -> None:
    above = normal(1, 10)
    found = stats.ratio_interval(above, torch.full((1, 10), 2.0))
    assert found == pytest.approx([x / 2 for x in stats.crossed_interval(above)])


def test_a_difference_keeps_the_asymmetry_of_both() -> None:
    """Zou and Donner: the lower end of the first with the upper end of the second."""
    found = stats.difference(Interval(5, 2, 6), Interval(1, 0, 5))
    assert found == pytest.approx((4, 4 - 5, 4 + math.sqrt(2)))
    assert stats.difference(Interval(5, 4, 6), Interval(1, 0, 2), correlation=1) == (4, 4, 4)
    assert math.isnan(stats.difference(Interval(5, 2, 6), Interval(1, math.nan, math.nan)).low)
    assert Interval(5, 2, 6).half_width == 2


def test_equal_values_have_an_interval_of_no_width() -> None:
    for labels in (None, [0, 0, 1, 1, 2, 2, 3, 4]):
        _, low, high = stats.mean_interval(torch.full((8, 2), 0.25), groups=labels)
        assert low.tolist() == high.tolist() == [0.25, 0.25]
    assert stats.crossed_interval(torch.full((5, 8), 0.25)) == (0.25, 0.25, 0.25)


def test_a_single_trial_that_differs_has_a_bound() -> None:
    """Most resamples lack it and have no spread, so that the bootstrap-t has none."""
    values = torch.zeros(12)
    values[3] = 1.0
    t = scipy_stats.ttest_1samp(values.numpy(), 0).confidence_interval(0.95)
    assert [float(end) for end in stats.mean_interval(values)[1:]] == pytest.approx([t.low, t.high], abs=1e-6)
    table = stats.crossed_interval(values.expand(5, 12))
    assert table[1:] == pytest.approx((t.low, t.high), abs=1e-6)


def test_fewer_than_five_draws_have_no_interval() -> None:
    """Student's t of two draws reaches twelve times their spread: it would say nothing, at length."""
    values = normal(6, 20)
    for draws in (2, 3, 4):
        found = stats.crossed_interval(values[:draws])
        assert found.value == pytest.approx(float(values[:draws].mean()))
        assert math.isnan(found.low)
        assert math.isnan(found.high)
        assert math.isnan(stats.sum_interval([values[:draws], values[:1]], [None, None]).low)
    for draws in (1, 5):
        assert not math.isnan(stats.crossed_interval(values[:draws]).low)


@pytest.mark.slow
def test_what_a_mean_cannot_be_is_cut_and_covers_as_often() -> None:
    """Log-probabilities near their end: every interval that is cut still holds a mean below 0."""
    rng, covered, cut = np.random.default_rng(0), [0, 0], 0
    for _ in range(400):
        values = torch.from_numpy(-(rng.exponential(size=6) ** 3))
        found = stats.crossed_interval(values[None], n=200)
        inside = found.within(-math.inf, 0.0)
        assert inside.value <= inside.high <= 0
        assert inside.low == found.low
        covered[0] += found.low <= -6 <= found.high
        covered[1] += inside.low <= -6 <= inside.high
        cut += found.high > 0
    assert cut
    assert covered[0] == covered[1]
    assert math.isnan(stats.Interval(0.5, math.nan, math.nan).within(0, 1).low)


def test_a_higher_level_is_wider() -> None:
    values = normal(12)
    ends = [stats.crossed_interval(values[None], level=level) for level in (0.5, 0.8, 0.95, 0.99)]
    widths = [found.half_width for found in ends]
    assert widths == sorted(widths)
    t = scipy_stats.ttest_1samp(values.numpy(), 0).confidence_interval(0.5)
    assert ends[0].low <= t.low < t.high <= ends[0].high


def test_items_keep_their_shape_and_are_each_their_own() -> None:
    values = normal(10, 2, 3)
    _, low, high = stats.mean_interval(values)
    assert low.shape == high.shape == (2, 3)
    assert low.dtype == torch.float32
    alone = stats.mean_interval(values[:, 1, 2])[1:]
    assert (float(low[1, 2]), float(high[1, 2])) == pytest.approx([float(end) for end in alone])


# What has none


def test_there_is_no_interval_below_five_trials_or_clusters() -> None:
    for trials in (1, 4):
        assert all(end.isnan().all() for end in stats.mean_interval(normal(trials, 2))[1:])
        found = stats.crossed_interval(normal(30, trials))
        assert not math.isnan(found.value)
        assert math.isnan(found.low)
        assert math.isnan(found.high)
    assert not any(end.isnan().any() for end in stats.mean_interval(normal(5, 2))[1:])
    assert all(end.isnan() for end in stats.mean_interval(normal(40), groups=np.arange(40) % 4)[1:])
    assert all(end.isnan() for end in stats.mean_interval(normal(40), groups=[np.arange(40), np.arange(40) % 4])[1:])
    assert not any(end.isnan() for end in stats.mean_interval(normal(40), groups=np.arange(40) % 5)[1:])
    assert math.isnan(stats.sum_interval([normal(1, 9), normal(1, 4)], [None, None]).low)
    assert all(end.isnan().all() for end in stats.gap_interval(normal(9), normal(4))[1:])


def test_a_share_of_no_cost_is_not_defined() -> None:
    above = torch.ones(1, 6)
    assert all(math.isnan(x) for x in stats.ratio_interval(above, -torch.ones(1, 6)))
    assert all(math.isnan(x) for x in stats.ratio_interval(above, torch.zeros(1, 6)))
    assert all(math.isnan(x) for x in NOTHING)
    found = stats.ratio_interval(above, torch.tensor([[3.0, -1.0, 0.5, 2.0, -2.0, 0.5]]))
    assert found.value == pytest.approx(2)
    assert math.isnan(found.low), "the cost may be zero, so that the ratio has no bounds"
    assert math.isnan(found.high)
    assert math.isnan(stats.ratio_interval(torch.ones(1, 4), torch.ones(1, 4)).low)


REFUSED: list[tuple[Any, str]] = [
    (lambda x: stats.mean_interval(x[0], level=95), "level=95: must lie strictly between 0 and 1"),
    (lambda x: stats.mean_interval(x[0], level=-0.5), "level=-0.5"),
    (lambda x: stats.mean_interval(x[0], n=0), "n=0: must be a positive integer"),
    (lambda x: stats.mean_interval(x[0], seed=-1), "seed=-1"),
    (lambda x: stats.mean_interval(x[0, :0]), "there are no trials"),
    (lambda x: stats.crossed_interval(x[0]), r"values of shape \[8\]: must be \[draw, trial\]"),
    (lambda x: stats.crossed_interval(x[:0]), "with at least one draw"),
    (lambda x: stats.crossed_interval(x[:, :0]), "there are no trials"),
    (lambda x: stats.mean_interval(x[0], groups=["a"] * 7), "7 labels for 8 trials: give one label per trial"),
    (lambda x: stats.mean_interval(x[0], groups=[range(8)] * 3), "3 kinds of clusters: use at most two that cross"),
    (lambda x: stats.sum_interval([], []), "values of shape none"),
    (lambda x: stats.sum_interval([x, x[:2]], [None, None]), "tables of 3, 2 draws: must have the same draws"),
    (lambda x: stats.ratio_interval(x, x.abs(), level=1), "level=1"),
    (lambda x: stats.bootstrap_means(x[:, :0].T), "there are no trials"),
]


@pytest.mark.parametrize("case", REFUSED, ids=[message for _, message in REFUSED])
def test_what_is_no_sample_is_refused(case: Any) -> None:
    call, message = case
    with pytest.raises(ValueError, match=message):
        call(normal(3, 8))


def test_an_interval_keeps_its_level() -> None:
    one = Interval(1.0, 0.0, 2.0, 0.9)
    kept = [pickle.loads(pickle.dumps(one)), copy.deepcopy(one), one._replace(value=1.0), one.within(-5, 5)]
    assert all((each, each.level) == (one, 0.9) for each in kept)
    assert one._replace(low=0.5) == (1.0, 0.5, 2.0)
    assert one._replace(level=0.8).level == 0.8
    value, low, high = one
    assert (value, low, high) == (1.0, 0.0, 2.0)
    assert stats.mean_interval(normal(9), level=0.8).level == 0.8
