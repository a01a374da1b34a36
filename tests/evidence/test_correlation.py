"""correlate: published numbers, a plain loop over permutations, planted models, and how often nothing is called something."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats as scipy_stats

from lens_heads.evidence.correlation import correlate
from lens_heads.evidence.correlation_results import Correlation
from lens_heads.evidence.transfer_results import TransferMatrix
from lens_heads.stats import Interval
from tests.evidence.matrices import counted, planted

PUBLISHED = Path(__file__).parents[3] / "shared" / "data" / "fragile_tasks" / "target_fragility.csv"
WEAK = {"a": 0.5, "b": 0.0, "c": 0.25, "d": 0.1, "e": 0.4}


def table(seed: int, ks: int = 7, tasks: int = 6, own: float = 1.0) -> pd.DataFrame:
    """Every task with a level of its own at all k, as fragility is, and noise at each."""
    rng = np.random.default_rng(seed)
    values = own * rng.normal(size=tasks) + 0.3 * rng.normal(size=(ks, tasks)) + np.arange(ks)[:, None]
    return pd.DataFrame(values, [8 * (k + 1) for k in range(ks)], [f"t{i}" for i in range(tasks)])


def looped(a: pd.DataFrame, b: pd.DataFrame) -> tuple[float, float]:
    """(r2, p) from the formula: means taken away k by k, every order of the columns correlated by scipy."""

    def r(order: tuple[str, ...]) -> float:
        x, y = [], []
        for k in a.index:
            for task, other in zip(a.columns, order, strict=True):
                x.append(a.loc[k, task] - a.loc[k].mean())
                y.append(b.loc[k, other] - b.loc[k].mean())
        return float(scipy_stats.pearsonr(x, y).statistic)

    found = [r(order) for order in itertools.permutations(a.columns)]
    return found[0] ** 2, float(np.mean([value >= found[0] - 1e-12 for value in found]))


# The numbers


@pytest.mark.slow
@pytest.mark.skipif(not PUBLISHED.exists(), reason=f"{PUBLISHED} is not there")
@pytest.mark.parametrize(
    ("a", "b", "r2", "p"),
    [
        ("llama_3_1_8b", "qwen_2_5_7b", 0.183, 0.06),
        ("llama_3_1_8b", "mistral_7b_v0_3", 0.472, 0.007),
        ("qwen_2_5_7b", "mistral_7b_v0_3", 0.593, 0.0004),
    ],
)
def test_the_published_correlations_come_out(a: str, b: str, r2: float, p: float) -> None:
    published = pd.read_csv(PUBLISHED)
    found = correlate(*(published.pivot(index="k", columns="task", values=model) for model in (a, b)))
    assert found.r2 == pytest.approx(r2, abs=0.003)
    assert (found.plain.arrangements, found.plain.exact) == (40_320, True)
    assert found.p == pytest.approx(p, rel=0.1)
    assert found.naive_p < found.p / 10, "56 points that are not independent look like much more than 8 tasks"


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_r2_and_p_are_a_plain_loop(seed: int) -> None:
    a, b = table(seed, 3, 5), table(seed + 10, 3, 5)[["t3", "t0", "t4", "t2", "t1"]]
    found = correlate(a, b)
    assert (found.r2, found.p) == pytest.approx(looped(a, b[a.columns]))
    assert found.plain.arrangements == 120
    x, y = (frame.sub(frame.mean(axis=1), axis=0)[a.columns].to_numpy().ravel() for frame in (a, b))
    assert found.naive_p == pytest.approx(scipy_stats.pearsonr(x, y, alternative="greater").pvalue)
    assert (found.interval, found.reliability, found.noise_ceiling, found.noise_ceiling_r2) == (None,) * 4


def test_that_more_heads_do_more_harm_is_no_agreement() -> None:
    """Two unrelated models: more heads, more harm, in both."""
    a, b = table(0), table(1)
    assert np.corrcoef(a.to_numpy().ravel(), b.to_numpy().ravel())[0, 1] ** 2 > 0.4
    assert correlate(a, b).r2 < 0.1


def test_points_are_the_values_and_what_was_correlated() -> None:
    a, b = table(0), table(1)
    points = correlate(a, b).points
    assert list(points.columns) == ["k", "task", "a", "a_controlled", "b", "b_controlled"]
    for r in points.to_dict("records"):
        assert (r["a"], r["b"]) == (a.loc[r["k"], r["task"]], b.loc[r["k"], r["task"]])
        assert r["a_controlled"] == pytest.approx(r["a"] - a.loc[r["k"]].mean())
        assert r["b_controlled"] == pytest.approx(r["b"] - b.loc[r["k"]].mean())
    assert len(points) == 42


def test_many_tasks_are_permuted_at_random() -> None:
    a, b = table(0, tasks=9), table(1, tasks=9)
    found = correlate(a, b + a)
    assert (found.plain.arrangements, found.plain.exact) == (10_000, False)
    assert found.p * 10_001 == pytest.approx(round(found.p * 10_001))
    assert correlate(a, a).p == pytest.approx(1 / 10_001, abs=1e-4), "never zero"
    exact = correlate(table(0), table(3))
    sampled = correlate(table(0), table(3), permutations=700)
    assert (sampled.plain.arrangements, sampled.plain.exact) == (700, False)
    assert sampled.p == pytest.approx(exact.p, abs=0.05)
    assert correlate(table(0), table(3), permutations=50, seed=1).p != correlate(table(0), table(3), permutations=50).p


@pytest.mark.slow
@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10_000), st.permutations(range(5)), st.lists(st.floats(-5, 5), min_size=4, max_size=4))
def test_what_r2_does_not_depend_on(seed: int, order: list[int], by_k: list[float]) -> None:
    a, b = table(seed, 4, 5), table(seed + 1, 4, 5)
    plain = correlate(a, b)
    both = correlate(a.iloc[:, order], b.iloc[:, order])
    assert (both.r2, both.p) == pytest.approx((plain.r2, plain.p))
    moved = correlate(a.add(pd.Series(by_k, a.index), axis=0), b * 3.0)
    assert (moved.r2, moved.p) == pytest.approx((plain.r2, plain.p))
    swapped = correlate(b, a)
    assert (swapped.r2, swapped.p) == pytest.approx((plain.r2, plain.p))


# Something and nothing


@pytest.mark.slow
def test_nothing_is_called_something_as_often_as_p_says() -> None:
    """Unrelated tasks with levels of their own: p < .05 in 5 % of studies; the p over points calls most of them something."""
    found = [correlate(table(2 * i, 4, 6), table(2 * i + 1, 4, 6)) for i in range(300)]
    p, naive = np.array([each.p for each in found]), np.array([each.naive_p for each in found])
    assert 0.02 <= (p <= 0.05).mean() <= 0.085
    assert 0.42 <= (p <= 0.5).mean() <= 0.58
    assert (naive <= 0.05).mean() > 0.15


@pytest.mark.slow
def test_the_same_fragile_tasks_are_found_in_two_models() -> None:
    a, b = planted(1, WEAK, items=300), planted(2, WEAK, items=300)
    found = correlate(a, b)
    assert found.r2 > 0.8
    assert found.p <= 3 / 120
    assert found.interval is not None
    assert found.interval.low > 0.4
    assert found.noise_ceiling is not None
    assert found.r < found.noise_ceiling + 0.1
    assert found.noise_ceiling_r2 == pytest.approx(found.noise_ceiling**2)
    assert found.names == ("planted-1", "planted-2")
    weak_elsewhere = {"a": 0.0, "b": 0.5, "c": 0.25, "d": 0.4, "e": 0.1}
    other = correlate(a, planted(2, weak_elsewhere, items=300))
    assert other.r < 0.3
    assert other.p > 0.2


@pytest.mark.slow
def test_the_noise_ceiling_falls_with_the_items() -> None:
    """Few items, and items that answer by chance: two runs of one model agree no better than the ceiling says."""
    ceilings, agreed = [], []
    for items in (60, 120, 400):
        same = [planted(seed, WEAK, (4, 8), items, draws=0, shared=0.5) for seed in range(12)]
        found = [correlate(a, b, n=10) for a, b in zip(same[::2], same[1::2], strict=True)]
        ceilings.append(np.mean([each.noise_ceiling for each in found]))
        agreed.append(np.mean([each.r for each in found]))
    assert ceilings[0] < ceilings[1] < ceilings[2]
    assert agreed == pytest.approx(ceilings, abs=0.1)


@pytest.mark.slow
def test_reliability_is_a_plain_split_half() -> None:
    m = planted(4, WEAK, ks=(4, 16), items=60, draws=0, shared=0.3)
    per_trial = m.per_trial
    assert per_trial is not None
    rng, found = np.random.default_rng(0), []
    for _ in range(30):
        sides: list[list[pd.DataFrame]] = [[], []]
        for _, rows in per_trial.groupby("task"):
            order = rng.permutation(rows["trial"].unique())
            for side, items in zip(sides, (order[:30], order[30:]), strict=True):
                side.append(rows[rows["trial"].isin(items)])
        tables = [TransferMatrix(per_trial=pd.concat(side)).fragility() for side in sides]
        x, y = (t.sub(t.mean(axis=1), axis=0)[list(WEAK)].to_numpy().ravel() for t in tables)
        r = np.corrcoef(x, y)[0, 1]
        found.append(2 * r / (1 + r) if r > 0 else r)
    reliability = correlate(m, m, n=10).reliability
    assert reliability is not None
    assert reliability[0] == pytest.approx(np.mean(found), abs=0.06)


def test_intervals_resample_both_models_or_both_together() -> None:
    """Resampled together, a model agrees with itself in every resample; apart, as two runs of it would."""
    m = planted(4, WEAK, items=20, shared=0.5)
    together, apart = correlate(m, m, paired_items=True), correlate(m, m)
    assert together.interval == pytest.approx((1, 1, 1))
    assert apart.interval is not None
    assert apart.interval.low < 0.9
    for name in "ab":
        points = apart.points
        assert (points[f"{name}_low"] <= points[f"{name}_controlled"] + 0.02).all()
        assert (points[f"{name}_high"] >= points[f"{name}_controlled"] - 0.02).all()
    _, low, high = m.interval("fragility")
    assert (apart.points["a_high"] - apart.points["a_low"]).mean() < 1.1 * np.mean(high - low)


def test_statistics_and_their_options_are_the_matrices() -> None:
    a, b = planted(1, WEAK), planted(2, WEAK)
    for statistic, options in (
        ("fragility", {"relative": True}),
        ("fragility", {"diagonal": False}),
        ("disruptivity", {}),
        ("specificity", {"relative": True}),
        ("beyond_random", {}),
    ):
        found = correlate(a, b, statistic=statistic, n=20, **options)
        frames = correlate(a.statistic(statistic, **options), b.statistic(statistic, **options))
        assert (found.r, found.p) == pytest.approx((frames.r, frames.p))
        assert found.statistic == statistic


def test_counts_and_items_and_frames_mix() -> None:
    a, b = planted(1, WEAK), planted(2, WEAK)
    both = correlate(counted(a), b, n=200)
    assert both.r == pytest.approx(correlate(a, b, n=20).r)
    assert both.interval is not None
    assert correlate(a, b.fragility()).interval is None


# What is matched, and what is refused


def test_what_only_one_has_is_left_out_with_a_warning() -> None:
    a, b = table(0), table(1)
    expected = correlate(a.drop(index=8, columns="t0"), b.drop(index=8, columns="t0"))
    with pytest.warns(UserWarning, match="ignored k 8, found in only one of the models"):
        found = correlate(a.drop(columns="t0"), b.drop(index=8, columns="t0"))
    assert found.r2 == pytest.approx(expected.r2)
    with pytest.warns(UserWarning, match="ignored task t0, new, found in only one of the models"):
        found = correlate(a.drop(index=8), b.drop(index=8).rename(columns={"t0": "new"}))
    assert found.r2 == pytest.approx(expected.r2)
    assert found.p == expected.p


def test_no_ablation_is_left_out() -> None:
    a, b = table(0), table(1)
    zero = pd.DataFrame([[0.0] * 6], [0], a.columns)
    assert correlate(pd.concat([zero, a]), b).r2 == correlate(a, b).r2


def test_what_cannot_be_correlated_is_refused() -> None:
    a, b = table(0), table(1)
    with pytest.raises(ValueError, match=r"3 shared tasks \(t0, t1, t2\), but at least 4 are required"):
        correlate(a.iloc[:, :3], b.iloc[:, :3])
    with (
        pytest.raises(ValueError, match=r"no shared k: a has \[8, .* b has \[9, "),
        pytest.warns(UserWarning, match="ignored k 8, "),
    ):
        correlate(a, b.set_index(b.index + 1))
    with pytest.raises(ValueError, match="permutations=0: must be a positive integer"):
        correlate(a, b, permutations=0)
    with pytest.raises(ValueError, match="fragility of b is NaN for task 't2' at k=16"):
        correlate(a, b.mask((b.index == 16)[:, None] & (b.columns == "t2")))
    with pytest.raises(ValueError, match="fragility of a is the same for all tasks, so its correlation is undefined"):
        correlate(a * 0 + np.arange(7.0)[:, None], b)
    with pytest.raises(ValueError, match=r"b repeats a k \(row\) or a task"):
        correlate(a, pd.concat([b, b]))
    with pytest.raises(ValueError, match="a is a frame, but relative applies to transfer matrices only"):
        correlate(a, b, relative=True)
    with pytest.raises(TypeError, match="must be a TransferMatrix or a DataFrame"):
        correlate({}, b)  # type: ignore[arg-type]


def test_pairing_needs_the_same_items() -> None:
    a = planted(1, WEAK)
    with pytest.raises(ValueError, match=r"80 items of task 'a' \('i000', \.\.\.\) are in only one model"):
        correlate(a, planted(2, WEAK, ids="other-"), paired_items=True)
    with pytest.raises(ValueError, match="requires matrices with items, not counts"):
        correlate(a, counted(a), paired_items=True)
    with pytest.raises(ValueError, match="requires two transfer matrices, because a frame has no items"):
        correlate(a, a.fragility(), paired_items=True)
    assert correlate(a, planted(2, WEAK), paired_items=True, n=10).r == correlate(a, planted(2, WEAK), n=10).r


def test_it_says_what_it_is() -> None:
    found = correlate(table(0), table(1), names=("one", "two"))
    assert (
        repr(found)
        == f"Correlation(fragility of one and two: R^2 {found.r2:.3f}, r {found.r:+.2f}, permutation p = {found.p:.2g})"
    )
    assert isinstance(found, Correlation)
    sure = replace(found, plain=replace(found.plain, r=0.8), interval=Interval(0.6, 0.5, 0.75), reliability=(0.81, 1.0))
    assert "R^2 0.640 [0.500, 0.750]" in repr(sure)
    assert "noise ceiling 0.810" in repr(sure)
    assert np.isnan(replace(found, reliability=(-0.1, 0.5)).noise_ceiling)  # type: ignore[arg-type]
