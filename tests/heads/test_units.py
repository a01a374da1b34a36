"""Scores of query heads as scores of kv heads and back, by the definition and for any numbers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from lens_heads.heads import sets
from lens_heads.heads.head import Head
from lens_heads.heads.scores import HeadScores, Unit
from lens_heads.heads.units import highest_first, to_kv_heads, to_query_heads

finite = st.floats(-100, 100, width=32)


def make(per_trial: Any, unit: Unit = "query_head", **meta: Any) -> HeadScores:
    data = torch.as_tensor(per_trial, dtype=torch.float32)
    return HeadScores.from_trials("m", data, [f"t{i}" for i in range(len(data))], unit=unit, **meta)


@st.composite
def scores(draw: st.DrawFn, unit: Unit, group: int = 1) -> HeadScores:
    """Any scores, the highest or lowest best, perhaps with some heads in an order of their own."""
    trials, layers, heads = (draw(st.integers(1, 3)) for _ in range(3))
    data = draw(arrays(np.float32, (trials, layers, heads * group), elements=finite))
    every = [str(Head(layer, head)) for layer in range(layers) for head in range(heads * group)]
    meta: dict[str, Any] = {"best": draw(st.sampled_from(["highest", "lowest"]))}
    if draw(st.booleans()):
        meta["order"] = draw(st.permutations(every))[: draw(st.integers(0, len(every)))]
    return make(data, unit, **meta)


@settings(deadline=None, max_examples=40)
@given(given=scores("kv_head"), group=st.integers(1, 4))
def test_from_kv_heads_to_query_heads_and_back_nothing_changes(given: HeadScores, group: int) -> None:
    spread = to_query_heads(given, group)
    assert (spread.unit, spread.n_heads) == ("query_head", given.n_heads * group)
    back = to_kv_heads(spread, group)
    assert torch.equal(back.per_trial, given.per_trial)
    torch.testing.assert_close(back.values, given.values)
    assert (back.unit, back.meta, back.trial_ids) == ("kv_head", given.meta, given.trial_ids)
    assert (back.best, back.order, back.signed) == (given.best, given.order, given.signed)
    assert back.ranking() == given.ranking()


@settings(deadline=None, max_examples=40)
@given(given=scores("kv_head"), group=st.integers(1, 4))
def test_the_best_query_heads_are_those_of_the_best_kv_heads(given: HeadScores, group: int) -> None:
    ranked = to_query_heads(given, group).ranking()
    if given.values.unique().numel() < given.values.numel() and len(given.order) < given.values.numel():
        return  # Kv heads that tie are as good as each other: their groups mix.
    assert [Head(head.layer, head.head // group, "kv_head") for head in ranked[::group]] == given.ranking()
    for at, kv in enumerate(given.ranking()):
        assert {head.head // group for head in ranked[at * group : (at + 1) * group]} == {kv.head}


@settings(deadline=None, max_examples=40)
@given(given=scores("query_head", group=3))
def test_a_kv_head_scores_as_its_best_query_head(given: HeadScores) -> None:
    found = to_kv_heads(given, 3)
    for layer in range(given.n_layers):
        for kv in range(found.n_heads):
            readers = [Head(layer, 3 * kv + i) for i in range(3)]
            best = max(given.sign * given[head] for head in readers)
            assert given.sign * found[Head(layer, kv)] == pytest.approx(best, abs=1e-4)
            of_best = [head.head for head in readers if given.sign * given[head] == best]
            assert any(torch.equal(found.per_trial[:, layer, kv], given.per_trial[:, layer, head]) for head in of_best)


def test_by_hand() -> None:
    lowest = make([[[1.0, -2, 0, 3]], [[1, 0, 0, -5]]], best="lowest", order=["L0H3", "L0H1"])
    kv = to_kv_heads(lowest, 2)
    assert kv.per_trial.tolist() == [[[-2, 3]], [[0, -5]]]
    assert kv.values.tolist() == [[-1, -1]]
    assert kv.ranking() == [Head(0, 1, "kv_head"), Head(0, 0, "kv_head")], "in the order of the heads that read them"
    fitted = replace(lowest, fit={"r2": 0.5, "heads": [{"head": "L0H3"}]})
    assert to_kv_heads(fitted, 2).fit == {"r2": 0.5}, "rows of query heads say nothing of kv heads"
    highest = make(lowest.per_trial)
    assert to_kv_heads(highest, 2).values.tolist() == [[1, 0]]
    queries = to_query_heads(make([[[1.0, 2]]], "kv_head", order=["L0H0"]), 2)
    assert queries.values.tolist() == [[1, 1, 2, 2]]
    assert queries.ranking() == [Head(0, 0), Head(0, 1), Head(0, 2), Head(0, 3)]


@settings(deadline=None, max_examples=40)
@given(given=scores("query_head"))
def test_highest_first_ranks_as_before(given: HeadScores) -> None:
    found = highest_first(given)
    assert found.sign == 1
    assert found.ranking() == given.ranking()
    assert torch.equal(found.values, given.sign * given.values)
    assert torch.equal(found.per_trial, given.sign * given.per_trial)
    assert highest_first(found) is found


@pytest.mark.parametrize("best", ["highest", "lowest"])
def test_the_null_goes_along(best: Any) -> None:
    """A draw's kv head has the score of the draw's own best query head, so p is the same for the best of each group."""
    generator = torch.Generator().manual_seed(0)
    found = make(torch.randn(1, 2, 6, generator=generator), best=best)
    found = replace(found, null=torch.randn(39, 2, 6, generator=generator))
    grouped = to_kv_heads(found, 3)
    assert grouped.null is not None
    assert found.null is not None
    for draw in range(39):
        for layer in range(2):
            for kv in range(2):
                own = [found.sign * float(x) for x in found.null[draw, layer, 3 * kv : 3 * kv + 3]]
                assert float(grouped.null[draw, layer, kv]) == found.sign * max(own)
    torch.testing.assert_close(grouped.p_values(), found.p_values().view(2, 2, 3).amin(-1))
    spread = to_query_heads(grouped, 3)
    assert spread.null is not None
    assert torch.equal(spread.null[..., ::3], grouped.null)
    torch.testing.assert_close(highest_first(found).p_values(), found.p_values())


def test_bad_choices_are_refused() -> None:
    queries, kv = make([[[1.0, 2, 3, 4, 5, 6]]]), make([[[1.0, 2]]], "kv_head")
    with pytest.raises(ValueError, match="m scores kv_heads, but this needs scores of query_heads"):
        to_kv_heads(kv, 2)
    with pytest.raises(ValueError, match="m scores query_heads, but this needs scores of kv_heads"):
        to_query_heads(queries, 2)
    for group in (0, -2, 4, 7):
        with pytest.raises(ValueError, match=f"group={group} does not fit 6 query_heads per layer"):
            to_kv_heads(queries, group)
    for group in (0, -1):
        with pytest.raises(ValueError, match=rf"group={group} does not fit 2 kv_heads .*geometry\(model\).group"):
            to_query_heads(kv, group)


def gates() -> HeadScores:
    """Two layers of two kv heads, the second of each layer more open."""
    return make([[[0.1, 0.9], [0.2, 0.8]]], "kv_head")


def test_a_kv_head_is_no_query_head_of_the_same_number() -> None:
    best = gates().top(2)
    assert list(map(str, best)) == ["L0K1", "L1K1"]
    assert list(map(repr, best)) == ["Head(0, 1, 'kv_head')", "Head(1, 1, 'kv_head')"]
    assert [head.key for head in best] == ["0-1", "1-1"], "keys of files are as before"
    assert best[0] != Head(0, 1)
    assert len({best[0], Head(0, 1)}) == 2
    assert Head.parse("L0K1", unit="kv_head") == Head.parse("0-1", unit="kv_head") == Head.parse(best[0]) == best[0]
    mixed = [*best, Head(1, 0), Head(0, 3)]
    assert list(map(str, sorted(mixed))) == ["L0K1", "L0H3", "L1H0", "L1K1"]
    with pytest.raises(ValueError, match="unit='head': must be 'query_head' or 'kv_head'"):
        Head(0, 1, "head")  # type: ignore[arg-type]


def test_heads_drawn_beside_kv_heads_are_kv_heads() -> None:
    scores = gates()
    for drawn in (scores.bottom(2), scores.random(2), scores.random(2, like="layer"), scores.top(1)):
        assert {head.unit for head in drawn} == {"kv_head"}
    top = scores.top(1)
    drawn = [*sets.random_like(top, scores.ranking()), *sets.shifted(top, 2), *sets.random_heads(scores.ranking(), 2)]
    assert {head.unit for head in drawn} == {"kv_head"}
    assert sets.shifted(top, 2) == [Head(0, 0, "kv_head")]
    assert {head.unit for head in sets.every_head(2, 2, unit="kv_head")} == {"kv_head"}


def test_scores_are_read_by_heads_of_their_own_unit() -> None:
    kv, query = gates(), make([[[0.1, 0.9], [0.2, 0.8]]])
    assert kv["L0K1"] == kv["L0H1"] == kv[kv.top(1)[0]] == pytest.approx(0.9)
    with pytest.raises(
        ValueError, match=r"m scores query heads, but L0K1 is a kv head: units\.query_heads are its own"
    ):
        query[kv.top(1)[0]]
    with pytest.raises(ValueError, match="but L0K1 is a kv head"):
        make([[[0.1, 0.9]]], order=kv.top(1))


def test_an_order_of_kv_heads_is_saved_and_read(tmp_path: Path) -> None:
    ordered = replace(gates(), order=("L1K0",))
    again = HeadScores.load(ordered.save(tmp_path / "scores.json"))
    assert again.ranking() == ordered.ranking() == [Head(1, 0, "kv_head"), *gates().top(2), Head(0, 0, "kv_head")]
    older = (tmp_path / "scores.json").read_text().replace("L1K0", "L1H0")  # As older versions wrote it.
    (tmp_path / "older.json").write_text(older)
    assert HeadScores.load(tmp_path / "older.json").ranking() == ordered.ranking()
