"""Depth profiles worked by hand, and their null against enumeration of every set."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lens_heads.compare import overlap_by_depth
from lens_heads.heads.depth import depth_bins, relative_depths
from lens_heads.heads.scores import HeadScores, Unit


def make(values: Any, method: str = "locos", unit: Unit = "query_head") -> HeadScores:
    scores = torch.tensor(values, dtype=torch.float32)
    return HeadScores(method, scores, scores[None], ("one",), {}, unit)


A = make([[9, 8], [7, 0], [0, 0], [0, 1]])  # L0H0 L0H1 L1H0 L3H1
B = make([[5, 0, 0], [0, 9, 0]], "copy")  # L1H1 L0H0


def test_depth_runs_from_the_first_layer_to_the_last() -> None:
    assert relative_depths(5).tolist() == [0, 0.25, 0.5, 0.75, 1]
    assert relative_depths(1).tolist() == [0]
    assert depth_bins(5, 2).tolist() == [0, 0, 1, 1, 1]
    assert depth_bins(4, 4).tolist() == [0, 1, 2, 3]
    assert depth_bins(1, 1).tolist() == [0]


@given(st.integers(1, 60), st.data())
def test_bins_are_the_spans_of_relative_depth_and_none_is_empty(layers: int, data: st.DataObject) -> None:
    bins = data.draw(st.integers(1, layers))
    at = depth_bins(layers, bins)
    assert sorted(set(at)) == list(range(bins))
    for depth, found in zip(relative_depths(layers), at, strict=True):
        assert found / bins <= depth + 1e-9
        assert depth <= (found + 1) / bins + 1e-9


def test_shares_by_bin_worked_by_hand() -> None:
    """a: 4 layers of 2, in bins {0, 1} and {2, 3}: top four are 3 and 1. b: 2 layers of 3: top two are 1 and 1."""
    found = overlap_by_depth(A, B, k=4, k_b=2, bins=2)
    assert found.bins[["start", "end"]].to_numpy().tolist() == [[0, 0.5], [0.5, 1]]
    assert found.bins[["heads_a", "heads_b"]].to_numpy().tolist() == [[4, 3], [4, 3]]
    assert found.bins[["top_a", "top_b"]].to_numpy().tolist() == [[0.75, 0.5], [0.25, 0.5]]
    assert found.bins["mean_a"].tolist() == pytest.approx([24 / 4, 1 / 4])
    assert found.bins["mean_b"].tolist() == pytest.approx([5 / 3, 3])
    assert (found.overlap, found.spearman) == (0.75, pytest.approx(-1))
    assert (found.method_a, found.k_a, found.method_b, found.k_b) == ("locos", 4, "copy", 2)
    # Two random heads of b: both in a bin with chance 1/5 each (overlap .75 or .25), one each with 3/5 (.75).
    assert found.expected == pytest.approx(0.75 / 5 + 0.25 / 5 + 0.75 * 3 / 5)
    assert found.p_value == pytest.approx(4 / 5, abs=0.02)
    assert "0.75, 0.65 by chance" in repr(found)


def test_the_null_is_what_enumerating_every_set_gives() -> None:
    a = make(torch.randn(5, 2, generator=torch.Generator().manual_seed(0)).tolist())
    b = make(torch.randn(4, 3, generator=torch.Generator().manual_seed(1)).tolist())
    found = overlap_by_depth(a, b, k=3, k_b=4, bins=3, permutations=20_000)
    share, at = found.bins["top_a"].to_numpy(), depth_bins(4, 3).repeat(3)
    overlaps = [
        np.minimum(share, np.bincount(at[list(heads)], minlength=3) / 4).sum()
        for heads in itertools.combinations(range(12), 4)
    ]
    assert found.expected == pytest.approx(np.mean(overlaps))
    assert found.p_value == pytest.approx(np.mean(np.array(overlaps) >= found.overlap - 1e-9), abs=0.015)
    assert 0.05 < found.p_value < 0.95, "a null that always or never exceeds tells nothing"


def test_equal_profiles_overlap_fully_and_disjoint_ones_not_at_all() -> None:
    early = make([[3, 2, 1], *[[0, 0, 0]] * 7])
    late = make([*[[0, 0, 0]] * 11, [1, 2, 3]])
    same = overlap_by_depth(early, early, k=3, bins=8)
    assert (same.overlap, same.spearman) == (1, pytest.approx(1))
    assert same.p_value < 0.01
    apart = overlap_by_depth(early, late, k=3, bins=8)
    assert (apart.overlap, apart.p_value) == (0, 1)
    with pytest.raises(ValueError, match="ranks nothing"):
        overlap_by_depth(early, make([[1, 1]] * 9), k=3, bins=8)


def test_bad_choices_are_refused_with_the_value() -> None:
    with pytest.raises(ValueError, match="bins=10: must be an integer from 1 to 4"):
        overlap_by_depth(A, B, k=2)
    with pytest.raises(ValueError, match="bins=0: must be an integer from 1 to 4"):
        overlap_by_depth(A, B, k=2, bins=0)
    with pytest.raises(ValueError, match="k=0: must be an integer from 1 to 8, the number of heads that locos scores"):
        overlap_by_depth(A, B, k=0, bins=2)
    with pytest.raises(ValueError, match="k=7: must be an integer from 1 to 6, the number of heads that copy scores"):
        overlap_by_depth(A, B, k=7, bins=2)
    with pytest.raises(ValueError, match="locos scores query_heads, copy scores kv_heads"):
        overlap_by_depth(A, make([[1, 2]], "copy", "kv_head"), k=1, bins=1)
    with pytest.raises(ValueError, match="permutations=0: must be a positive integer"):
        overlap_by_depth(A, B, k=2, bins=2, permutations=0)
