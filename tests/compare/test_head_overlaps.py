"""Overlaps of several rankings: each pair as `overlap` has it, and lists of heads as rankings."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from lens_heads import compare
from tests.compare.test_overlap import HEADS, A, B, ranked

C = ranked([7, 6, 5, 4, 3, 2, 1, 0], 2, "dla")


@pytest.mark.parametrize("k", [1, 3, 8])
@pytest.mark.parametrize("lists", [False, True])
def test_every_pair_is_an_overlap(k: int, lists: bool) -> None:
    scores = {"one": A, "two": B, "three": C}
    given: Any = {name: [str(head) for head in s.ranking()] for name, s in scores.items()} if lists else scores
    table = compare.head_overlaps(given, k=k, shape=(2, 4) if lists else None)
    assert list(zip(table["a"], table["b"], strict=True)) == [("one", "two"), ("one", "three"), ("two", "three")]
    for r in table.to_dict("records"):
        found = compare.overlap(scores[r["a"]], scores[r["b"]], k=k)
        assert r.pop("overlap") == len(found.both)
        for name, value in list(r.items())[2:]:
            assert value == getattr(found, name), name


def test_whole_lists_have_one_sided_shares_of_their_own() -> None:
    table = compare.head_overlaps({"wide": HEADS[:6], "narrow": [HEADS[0], HEADS[7]]}, shape=(2, 4))
    row = table.iloc[0]
    assert (row["k_a"], row["k_b"], row["overlap"]) == (6, 2, 1)
    assert (row["share_of_a"], row["share_of_b"], row["jaccard"]) == (1 / 6, 1 / 2, 1 / 7)
    assert row["expected_overlap"] == pytest.approx(6 * 2 / 8)
    assert row["p_value"] == pytest.approx(27 / 28)  # All but the pair of the two heads that the wide one lacks.


@pytest.mark.parametrize(
    ("rankings", "k", "shape", "message"),
    [
        ({"one": HEADS}, 2, (2, 4), "head_overlaps got 1 rankings"),
        ({"one": HEADS, "two": HEADS}, 2, None, r"rankings are lists without a shape\. .* shape=\(layers, heads\)"),
        ({"one": A, "two": HEADS}, 2, (3, 4), r"rankings have different shapes: \[\(2, 4\), \(3, 4\)\]"),
        (
            {"one": HEADS, "two": HEADS[:3]},
            4,
            (2, 4),
            "k=4: must be between 1 and 3, the number of heads in ranking 'two'",
        ),
        ({"one": HEADS, "two": HEADS}, 0, (2, 4), "k=0: must be between 1 and 8, the number of heads in ranking 'one'"),
        ({"one": HEADS, "two": HEADS}, 5, (1, 4), "ranking 'one': head L1H0 does not exist in 1 layers x 4 heads"),
        ({"one": HEADS[:2] + HEADS[:1], "two": HEADS}, 3, (2, 4), "ranking 'one' lists L0H0 more than once"),
        ({"one": A, "two": replace(B, unit="kv_head")}, 2, None, "rankings score query heads and kv heads"),
        ({"one": A, "two": B}, None, None, "k=None takes whole lists, but 'one' scores all heads of the model. Pass k"),
    ],
)
def test_what_has_no_overlap_is_refused(rankings: Any, k: Any, shape: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        compare.head_overlaps(rankings, k=k, shape=shape)


def test_heads_in_a_text_are_a_list_of_them() -> None:
    listed = compare.head_overlaps({"one": HEADS[:2], "two": [HEADS[1]]}, shape=(2, 4))
    assert compare.head_overlaps({"one": ",".join(map(str, HEADS[:2])), "two": HEADS[1]}, shape=(2, 4)).equals(listed)
