"""Grids, and samples that stay balanced."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lens_heads.tasks import HALVES, TASKS, arguments_of, to_select
from lens_heads.tasks.sampling import depths_grid, half, in_split, lengths_grid, stratified

ITEMS = [(a, b, c) for a in "xyz" for b in range(4) for c in range(10)]


def stratum(item: tuple[str, int, int]) -> tuple[str, int]:
    return item[:2]


def test_grids_are_even_and_end_where_they_should() -> None:
    assert lengths_grid(5, 1_000, 16_000) == [1_000, 4_750, 8_500, 12_250, 16_000]
    assert lengths_grid(20)[:3] == [1_000, 3_579, 6_158]
    assert (len(lengths_grid(20)), lengths_grid(20)[-1], lengths_grid(1)) == (20, 50_000, [1_000])
    assert lengths_grid([700, 300, 700]) == [700, 300]
    assert depths_grid(10) == [0.0, 0.11, 0.22, 0.33, 0.44, 0.56, 0.67, 0.78, 0.89, 1.0]
    assert depths_grid((0.5, 0.125)) == [0.5, 0.125]


@pytest.mark.parametrize("bad", [[], [50.0], [-0.1], 0])
def test_depths_are_shares(bad: object) -> None:
    with pytest.raises(ValueError, match="depths"):
        depths_grid(bad)  # type: ignore[arg-type]


@pytest.mark.parametrize("bad", [[], [0], 0])
def test_lengths_are_above_zero(bad: object) -> None:
    with pytest.raises(ValueError, match="lengths"):
        lengths_grid(bad)  # type: ignore[arg-type]


@given(n=st.integers(1, 120), seed=st.integers(0, 5))
def test_strata_differ_by_at_most_one(n: int, seed: int) -> None:
    chosen = stratified(ITEMS, n, stratum, seed)
    counts = Counter(map(stratum, chosen))
    assert len(chosen) == len(set(chosen)) == n
    assert max(counts.values()) - min(counts[key] for key in map(stratum, ITEMS)) <= 1
    assert chosen == sorted(chosen, key=ITEMS.index)
    assert chosen == stratified(ITEMS, n, stratum, seed)


def test_a_small_stratum_is_used_up_and_the_rest_shared() -> None:
    items = ["a1", "b1", "b2", "b3", "c1", "c2", "c3"]
    counts = Counter(item[0] for item in stratified(items, 5, lambda item: item[0], 0))
    assert counts == {"a": 1, "b": 2, "c": 2}


def test_another_seed_draws_others_and_too_many_is_an_error() -> None:
    assert stratified(ITEMS, 12, stratum, 0) != stratified(ITEMS, 12, stratum, 1)
    for n in (0, 121):
        with pytest.raises(ValueError, match=f"n={n} is out of range: there are 120 trials to draw from; use 1 to 120"):
            stratified(ITEMS, n, stratum, 0)


@given(st.lists(st.integers(), max_size=9))
def test_halves_take_turns(items: list[int]) -> None:
    select, test = half(items, "select"), half(items, "test")
    assert half(items, None) == items
    assert len(select) - len(test) in (0, 1)
    assert [item for pair in zip(select, test, strict=False) for item in pair] == items[: 2 * len(test)]


def test_keys_fall_into_one_split_each() -> None:
    keys = [str(number) for number in range(2_000)]
    select = [key for key in keys if in_split(key, "select")]
    assert [key for key in keys if in_split(key, "test")] == [key for key in keys if key not in set(select)]
    assert all(in_split(key, None) for key in keys)
    assert 900 < len(select) < 1_100
    assert select[:3] == [key for key in keys if in_split(key, "select")][:3], "the same for ever"


@pytest.mark.parametrize("function", [half, in_split])
def test_an_unknown_split_is_named(function: Any) -> None:
    with pytest.raises(ValueError, match="unknown split 'train': use 'select' or 'test', or None for both"):
        function("abc", "train")


def test_no_other_task_has_them() -> None:
    """Splits of the hub are called otherwise."""
    others = [name for name in TASKS if name not in HALVES and "split" in arguments_of(name)]
    assert set(others) == {
        "gsm8k",
        "mbpp",
        "qrhead",
        "hellaswag",
        "boolq",
        "arc_challenge",
        "mmlu",
        "wmdp",
    }
    assert all(to_select(name) == {} for name in others)
