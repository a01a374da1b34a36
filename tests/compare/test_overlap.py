"""Overlaps against enumeration of every possible set; rankings against the formula, scipy and numbers worked by hand."""

from __future__ import annotations

import itertools
import sys
from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats as scipy_stats

from lens_heads import compare
from lens_heads.heads.head import Head
from lens_heads.heads.scores import HeadScores, Unit
from lens_heads.runs.identity import ModelIdentity


def make(values: Any, method: str = "locos", model: str = "tiny", unit: Unit = "query_head") -> HeadScores:
    scores = torch.tensor(values, dtype=torch.float32)
    return HeadScores(method, scores, scores[None], ("one",), unit=unit, model=ModelIdentity(model))


def ranked(order: list[int], layers: int = 1, method: str = "locos") -> HeadScores:
    """Scores that rank the heads (counted through all layers) in this order."""
    values = torch.zeros(len(order))
    for place, head in enumerate(order):
        values[head] = len(order) - place
    return make(values.reshape(layers, -1).tolist(), method)


A = make([[9, 8, 1, 0], [7, 2, 3, -4]])  # L0H0 L0H1 L1H0 L1H2 L1H1 L0H2 L0H3 L1H3
B = make([[5, 0, 0, 0], [9, 3, 8, -1]], "copy")  # L1H0 L1H2 L0H0 L1H1 L0H1 L0H2 L0H3 L1H3
HEADS = [Head(layer, head) for layer in range(2) for head in range(4)]


def jaccard(a: Any, b: Any) -> float:
    return len(set(a) & set(b)) / len(set(a) | set(b))


def per_layer(heads: Any) -> Counter[int]:
    return Counter(head.layer for head in heads)


def enumerated(k_a: int, k_b: int, matched: bool) -> tuple[float, float, float]:
    """(mean overlap, mean Jaccard, P(overlap >= observed)) over every set that b could be."""
    a, b = A.top(k_a), B.top(k_b)
    sets = [s for s in itertools.combinations(HEADS, k_b) if not matched or per_layer(s) == per_layer(b)]
    overlaps = [len(set(a) & set(s)) for s in sets]
    observed = len(set(a) & set(b))
    return (
        sum(overlaps) / len(sets),
        sum(jaccard(a, s) for s in sets) / len(sets),
        sum(o >= observed for o in overlaps) / len(sets),
    )


def matches_enumeration(k_a: int, k_b: int) -> None:
    found = compare.overlap(A, B, k=k_a, k_b=k_b)
    chance = (found.expected_overlap, found.expected_jaccard, found.p_value)
    matched = (found.layer_matched_overlap, found.layer_matched_jaccard, found.layer_matched_p_value)
    assert chance == pytest.approx(enumerated(k_a, k_b, matched=False), abs=1e-12)
    assert matched == pytest.approx(enumerated(k_a, k_b, matched=True), abs=1e-12)


def test_the_sets_are_those_worked_by_hand() -> None:
    found = compare.overlap(A, B, k=4)
    assert found.both == [Head(0, 0), Head(1, 0), Head(1, 2)]  # In the order of a.
    assert (found.only_a, found.only_b) == ([Head(0, 1)], [Head(1, 1)])
    assert (found.jaccard, found.share_of_a, found.share_of_b) == (3 / 5, 3 / 4, 3 / 4)
    assert (found.method_a, found.method_b, found.k_a, found.k_b, found.n) == ("locos", "copy", 4, 4, 8)
    # C(4,3) C(4,1) + C(4,4) of the 70 sets share three heads or more with a; 4 * 4 / 8 are shared on average.
    assert (found.p_value, found.expected_overlap) == (pytest.approx(17 / 70), pytest.approx(2))
    # a has 2 and 2 heads per layer, b 1 and 3: 1 * 2/4 + 3 * 2/4 are shared on average.
    assert found.layer_matched_overlap == pytest.approx(2)
    assert "3 shared heads, 2 expected by chance (p = 0.24)" in repr(found)


def test_sets_of_different_sizes_have_different_shares() -> None:
    found = compare.overlap(A, B, k=2, k_b=4)
    assert (found.both, found.only_a) == ([Head(0, 0)], [Head(0, 1)])
    assert found.only_b == [Head(1, 0), Head(1, 2), Head(1, 1)]  # In the order of b.
    assert (found.share_of_a, found.share_of_b, found.jaccard) == (1 / 2, 1 / 4, 1 / 5)


@pytest.mark.parametrize(
    ("k_a", "k_b"), [(1, 1), (2, 2), (3, 3), (4, 4), (5, 5), (8, 8), (2, 5), (5, 2), (1, 8), (7, 6)]
)
def test_chance_is_what_enumerating_every_set_gives(k_a: int, k_b: int) -> None:
    matches_enumeration(k_a, k_b)


def test_a_null_that_forgets_the_layers_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The enumeration can fail: with the plain null in place of the layer-matched one it does."""
    module: Any = sys.modules["lens_heads.compare.overlap"]  # The package shows the function of that name.
    monkeypatch.setattr(module, "_layer_matched", lambda n_heads, a, b: module._chance(8, len(a), len(b)))
    with pytest.raises(AssertionError):
        matches_enumeration(2, 5)


def test_agreeing_on_the_layer_alone_is_no_agreement_with_layers_matched() -> None:
    """Both take all four heads of layer 1: chance rarely does, a null that keeps the layer always."""
    a, b = make([[0, 0, 0, 0], [4, 3, 2, 1]]), make([[0, 0, 0, 0], [1, 2, 3, 4]])
    found = compare.overlap(a, b, k=4)
    assert (found.jaccard, found.layer_matched_jaccard, found.layer_matched_p_value) == (1, 1, 1)
    assert found.p_value == pytest.approx(1 / 70)


def test_equal_scores_are_taken_in_the_order_of_the_ranking() -> None:
    zeros = make([[0, 0, 0, 0], [0, 0, 0, 1]])
    assert compare.overlap(zeros, A, k=3).both == [Head(0, 0), Head(0, 1)]  # L1H3 first, then from layer 0 on.


def test_the_curve_repeats_the_overlap_at_every_size() -> None:
    curve = compare.jaccard_curve(A, B)
    assert curve.columns.tolist() == [
        *("k", "jaccard", "chance", "chance_low", "chance_high", "layer_matched_chance", "overlap")
    ]
    assert curve["k"].tolist() == [1, 2, 5]
    assert compare.jaccard_curve(A, B, ks=[8, 3, 3, 1])["k"].tolist() == [1, 3, 8]
    for row in compare.jaccard_curve(A, B, ks=range(1, 9)).itertuples():
        k = int(row.k)  # type: ignore[arg-type]
        assert (row.jaccard, row.overlap) == (jaccard(A.top(k), B.top(k)), len({*A.top(k)} & {*B.top(k)}))
        assert row.chance == pytest.approx(enumerated(k, k, matched=False)[1])
        assert row.layer_matched_chance == pytest.approx(enumerated(k, k, matched=True)[1])
    last = compare.jaccard_curve(A, B, ks=[8]).iloc[0]
    assert all(last[name] == 1 for name in ("jaccard", "chance", "chance_low", "chance_high", "layer_matched_chance"))


def test_the_band_leaves_at_most_a_fortieth_on_either_side() -> None:
    a, b = ranked(list(range(12)), 3), ranked(list(range(12)), 3)
    for row in compare.jaccard_curve(a, b, ks=[1, 2, 3, 4]).itertuples():
        k: Any = row.k
        sets = [jaccard(range(k), s) for s in itertools.combinations(range(12), k)]
        low: Any = row.chance_low
        high: Any = row.chance_high
        assert sum(j < low for j in sets) / len(sets) <= 0.025 + 1e-12
        assert sum(j > high for j in sets) / len(sets) <= 0.025 + 1e-12
        # And is no wider than that: without its ends it leaves out more.
        assert sum(j <= low for j in sets) / len(sets) >= 0.025
        assert sum(j >= high for j in sets) / len(sets) >= 0.025


def test_default_sizes_run_up_to_the_number_of_heads() -> None:
    big = make(torch.arange(1024.0).reshape(32, 32).tolist())
    assert compare.jaccard_curve(big, big)["k"].tolist() == [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000]


# Rank-biased overlap


@pytest.mark.parametrize(
    ("order", "p", "expected"),
    [
        ([0, 1, 2], 0.5, 1),  # A = 1, 1, 1
        ([2, 1, 0], 0.5, 0.5 * (0 + 0.5 / 2 + 0.25) + 0.125),  # A = 0, 1/2, 1: 3/8
        ([1, 0, 2], 0.5, 0.5 * (0 + 0.5 + 0.25) + 0.125),  # A = 0, 1, 1: 1/2
        ([0, 2, 1], 0.5, 0.5 * (1 + 0.5 / 2 + 0.25) + 0.125),  # A = 1, 1/2, 1: 7/8
        ([2, 1, 0], 0.9, 0.1 * (0.9 / 2 + 0.81) + 0.729),  # The whole depth counts.
        ([2, 1, 0], 0.01, 0.99 * (0.01 / 2 + 0.0001) + 0.000001),  # The first place alone.
    ],
)
def test_rank_biased_overlap_worked_by_hand(order: list[int], p: float, expected: float) -> None:
    assert compare.rank_biased_overlap(ranked([0, 1, 2]), ranked(order), p=p) == pytest.approx(expected, abs=1e-12)


ORDERS = st.integers(1, 12).flatmap(lambda n: st.tuples(*[st.permutations(list(range(n)))] * 2))
PERSISTENCE = st.floats(0.05, 0.99)


@given(ORDERS, PERSISTENCE)
def test_rank_biased_overlap_is_the_weighted_mean_agreement(orders: Any, p: float) -> None:
    first, second = orders
    n = len(first)
    agreement = [len(set(first[:d]) & set(second[:d])) / d for d in range(1, n + 1)]
    expected = (1 - p) / p * sum(p**d * agreement[d - 1] for d in range(1, n + 1)) + agreement[-1] * p**n
    found = compare.rank_biased_overlap(ranked(first), ranked(second), p=p)
    assert found == pytest.approx(expected, abs=1e-9)
    assert 0 <= found <= 1
    assert found == pytest.approx(compare.rank_biased_overlap(ranked(second), ranked(first), p=p), abs=1e-12)
    if first == second or p > 0.3:  # Below, a swap far down is lost to rounding.
        assert (found == pytest.approx(1, abs=1e-9)) == (first == second)


@given(st.integers(1, 6), st.integers(0, 5), PERSISTENCE)
def test_disjoint_prefixes_leave_little(m: int, rest: int, p: float) -> None:
    n = 2 * m + rest
    other = [*range(m, 2 * m), *range(m), *range(2 * m, n)]
    assert compare.rank_biased_overlap(ranked(list(range(n))), ranked(other), p=p) <= p**m + 1e-12


def test_rank_biased_overlap_counts_the_top_more_than_the_tail() -> None:
    order = list(range(20))
    top, tail = [1, 0, *order[2:]], [*order[:18], 19, 18]
    assert compare.rank_biased_overlap(ranked(order), ranked(tail)) > compare.rank_biased_overlap(
        ranked(order), ranked(top)
    )


# Rank correlation


def test_rank_correlations_worked_by_hand() -> None:
    a, b = make([[4, 3, 2, 1]]), make([[3, 4, 1, 2]])  # Squared rank differences sum to 4; 4 of 6 pairs agree.
    assert compare.rank_correlation(a, b) == pytest.approx(1 - 6 * 4 / (4 * 15))
    assert compare.rank_correlation(a, b, kind="kendall") == pytest.approx((4 - 2) / 6)
    assert compare.rank_correlation(a, a) == compare.rank_correlation(a, a, kind="kendall") == pytest.approx(1)


def test_equal_scores_share_a_rank_in_a_correlation() -> None:
    a, b = make([[2, 1, 0, 0]]), make([[2, 1, -1, -2]])
    # Mean ranks 4 3 1.5 1.5 against 4 3 2 1: covariance 4.5, sums of squares 4.5 and 5.
    assert compare.rank_correlation(a, b) == pytest.approx(4.5 / (4.5 * 5) ** 0.5)
    # Kendall's tau-b: 5 pairs agree, one is tied in a.
    assert compare.rank_correlation(a, b, kind="kendall") == pytest.approx(5 / (5 * 6) ** 0.5)


@pytest.mark.filterwarnings("error")
def test_a_method_without_differences_correlates_with_nothing() -> None:
    for kind in ("spearman", "kendall"):
        assert np.isnan(compare.rank_correlation(A, make([[1] * 4] * 2), kind=kind))


def test_correlation_by_depth_sees_where_two_methods_part() -> None:
    """Seven layers: the early third has three. Alike early, reversed late, and one method is silent in the middle."""
    values = torch.randn(7, 6, generator=torch.Generator().manual_seed(0))
    other = torch.cat([values[:3].exp(), torch.zeros(2, 6), -values[5:]])
    frame = compare.by_layer_third(make(values.tolist()), make(other.tolist(), "copy"))
    assert frame["third"].tolist() == ["early", "middle", "late"]
    assert frame[["first_layer", "last_layer", "heads"]].to_numpy().tolist() == [[0, 2, 18], [3, 4, 12], [5, 6, 12]]
    assert frame[["spearman", "low", "high"]].iloc[0].tolist() == pytest.approx([1, 1, 1])
    assert frame[["spearman", "low", "high"]].iloc[1].isna().all()
    assert frame[["spearman", "low", "high"]].iloc[2].tolist() == pytest.approx([-1, -1, -1])


def test_correlation_by_depth_agrees_with_scipy_head_by_head() -> None:
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(3, 9, generator=generator)
    y = (x + torch.randn(3, 9, generator=generator)).mul(2).round()  # With ties.
    frame = compare.by_layer_third(make(x.tolist()), make(y.tolist()), level=0.8, n=200, seed=5)
    for layer, row in enumerate(frame.itertuples()):
        assert row.spearman == pytest.approx(scipy_stats.spearmanr(x[layer], y[layer]).statistic)
        picked = np.random.default_rng(5).integers(9, size=(200, 9))
        resampled = [scipy_stats.spearmanr(x[layer][p], y[layer][p]).statistic for p in picked]
        assert [row.low, row.high] == pytest.approx(np.quantile(resampled, [0.1, 0.9]).tolist())
        assert row.low < row.spearman < row.high  # type: ignore[operator]


# What is refused


PAIRS = [compare.overlap, compare.jaccard_curve, compare.rank_biased_overlap, compare.rank_correlation]


@pytest.mark.parametrize("function", [*PAIRS, compare.by_layer_third])
def test_scores_of_other_models_are_refused_by_name(function: Any) -> None:
    extra = {"k": 1} if function is compare.overlap else {}
    other = make([[1, 2, 3]], "copy", "gpt2")
    message = r"locos of tiny and copy of gpt2 cannot .*2 layers x 4 query heads against 1 layers x 3 query heads"
    with pytest.raises(ValueError, match=message):
        function(A, other, **extra)
    with pytest.raises(ValueError, match=r"2 layers x 4 query heads against 2 layers x 4 kv heads"):
        function(A, make([[1, 2, 3, 4]] * 2, unit="kv_head"), **extra)


def test_bad_choices_are_refused_with_the_value() -> None:
    with pytest.raises(ValueError, match="k=0: must be an integer from 1 to 8, the number of heads that locos scores"):
        compare.overlap(A, B, k=0)
    with pytest.raises(ValueError, match="k=9: must be an integer from 1 to 8, the number of heads that copy scores"):
        compare.overlap(A, B, k=1, k_b=9)
    with pytest.raises(ValueError, match=r"ks=\[\]: must be positive integers"):
        compare.jaccard_curve(A, B, ks=[])
    with pytest.raises(ValueError, match="kind='pearson'"):
        compare.rank_correlation(A, B, kind="pearson")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="locos has 2 layers, and thirds need at least 3"):
        compare.by_layer_third(A, B)
    three = make([[1, 2]] * 3)
    with pytest.raises(ValueError, match="level=95"):
        compare.by_layer_third(three, three, level=95)


@pytest.mark.parametrize("p", [0, 1, -0.5, 1.5, float("nan")])
def test_a_persistence_outside_0_to_1_is_refused(p: float) -> None:
    with pytest.raises(ValueError, match=f"p={p}"):
        compare.rank_biased_overlap(A, B, p=p)
