"""Scores whose lowest are best: everything that ranks heads gives what it gives of the same scores turned round."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from lens_heads import compare, plots
from lens_heads.evidence.head_sets import plan_sets
from lens_heads.heads.controls import Controls
from lens_heads.heads.head import Head
from lens_heads.heads.scores import HeadScores
from lens_heads.inspection import anatomy
from lens_heads.runs.identity import ModelIdentity


def turned(scores: HeadScores, **about: Any) -> HeadScores:
    """The same scores below zero instead of above, and said to be so."""
    return replace(scores, values=-scores.values, per_trial=-scores.per_trial, **{"best": "lowest", **about})


def noisy(seed: int, name: str = "m", trials: int = 16) -> HeadScores:
    """Scores of 4 layers and 6 heads, half of them above zero, with noise from trial to trial."""
    generator = torch.Generator().manual_seed(seed)
    data = torch.randn(4, 6, generator=generator) + 0.5 * torch.randn(trials, 4, 6, generator=generator)
    return HeadScores.from_trials(name, data, [f"t{i}" for i in range(trials)], model=ModelIdentity("tiny"))


A, B = noisy(0, "a"), noisy(1, "b")


def same(one: Any, other: Any) -> None:
    if isinstance(one, pd.DataFrame):
        pd.testing.assert_frame_equal(one, other)
    elif hasattr(one, "__dataclass_fields__"):
        for name in one.__dataclass_fields__:
            same(getattr(one, name), getattr(other, name))
    elif isinstance(one, torch.Tensor):
        torch.testing.assert_close(one, other, equal_nan=True)
    elif isinstance(one, float | np.ndarray | tuple) and not isinstance(one, str):
        np.testing.assert_allclose(one, other, equal_nan=True)
    else:
        assert one == other


ALIKE: dict[str, Callable[[HeadScores, HeadScores], Any]] = {
    "sets": lambda a, _: (
        a.top(5),
        a.bottom(5),
        a.random(4, seed=1),
        a.random(4, seed=1, like="layer"),
        a.ranking(),
    ).__repr__(),
    "p values": lambda a, _: a.p_values(),
    "significance": lambda a, _: a.significant(alpha=0.2),
    "reliability": lambda a, _: a.reliability(n=10),
    "overlap": lambda a, b: compare.overlap(a, b, k=6),
    "jaccard curve": lambda a, b: compare.jaccard_curve(a, b),
    "pairs": lambda a, b: compare.head_overlaps({"a": a, "b": b}, k=5),
    "rank-biased overlap": compare.rank_biased_overlap,
    "spearman": compare.rank_correlation,
    "kendall": lambda a, b: compare.rank_correlation(a, b, kind="kendall"),
    "interval": lambda a, b: compare.rank_correlation_interval(a, b, n=50),
    "thirds": lambda a, b: compare.by_layer_third(a, b, n=50),
    "depth": lambda a, b: compare.overlap_by_depth(a, b, k=6, bins=4, permutations=50),
    "checkpoints": lambda a, b: compare.compare_checkpoints(a, replace(b, method="a"), k=5, n=200),
    "concentration": lambda a, _: anatomy.concentration(a),
    "plan": lambda a, b: plan_sets({"a": a, "b": b}, [2, 5], Controls(draws=2, of="all")),
}


@pytest.mark.parametrize("name", ALIKE)
def test_turned_scores_give_the_same(name: str) -> None:
    same(ALIKE[name](turned(A), turned(B)), ALIKE[name](A, B))


@pytest.mark.parametrize("name", ["overlap", "rank-biased overlap", "spearman", "interval", "thirds", "depth", "pairs"])
def test_one_kind_of_scores_compares_with_the_other(name: str) -> None:
    same(ALIKE[name](turned(A), B), ALIKE[name](A, B))


@pytest.mark.parametrize("name", [name for name in ALIKE if name != "reliability"])
def test_scores_that_do_not_say_so_are_read_the_other_way_round(name: str) -> None:
    """So that the tests above can fail."""
    silent = replace(turned(A), best="highest")
    with pytest.raises(AssertionError):
        same(ALIKE[name](silent, B), ALIKE[name](A, B))


def test_by_hand() -> None:
    values = torch.tensor([[-3.0, 0.5, 0], [0, -4, 2]])
    scores = HeadScores.from_trials("css", values[None], ["t"], best="lowest")
    assert scores.top(2) == [Head(1, 1), Head(0, 0)]
    assert scores.bottom(2) == [Head(1, 2), Head(0, 1)]
    assert scores.ranking()[2:4] == [Head(0, 2), Head(1, 0)], "equal scores in order of layer and head"
    assert scores.ties(3) == [Head(0, 2)]
    assert list(scores.frame["score"]) == [-4, -3, 0, 0, 0.5, 2]
    assert scores["L1H1"] == -4
    assert repr(scores).endswith("best: L1H1 -4, L0H0 -3, L0H2 0)")


def test_heads_in_an_order_of_their_own_come_first() -> None:
    values = torch.tensor([[-3.0, 0, 0], [0, -4, 0]])
    order = {"order": ["L0H0", "L1H1", "L1H2"]}
    scores = HeadScores.from_trials("greedy", values[None], ["t"], best="lowest", **order)
    assert scores.top(3) == [Head(0, 0), Head(1, 1), Head(1, 2)]
    assert scores.ranking()[3:] == [Head(0, 1), Head(0, 2), Head(1, 0)]
    assert scores.bottom(1) == [Head(1, 0)]
    assert scores.ties(3) == [], "L1H2 was chosen, though it scores what the next one does"
    assert scores.ties(4) == [Head(0, 1)]
    assert len(scores.ranking()) == len(set(scores.ranking())) == 6


def test_a_head_map_outlines_the_lowest() -> None:
    figure = plots.head_map(turned(A), mark=3)
    assert [shape.name for shape in figure.layout.shapes] == [str(head) for head in A.top(3)]
    assert [shape.name for shape in plots.head_map(A, mark=3).layout.shapes] == [str(head) for head in A.top(3)]
    bars = plots.ranking_bars(turned(A), k=4).data[0]
    assert list(bars.y) == [str(head) for head in A.top(4)]
    np.testing.assert_allclose(bars.x, [-A[head] for head in A.top(4)])


@pytest.mark.parametrize("about", [{}, {"order": ["L3H5", "L0H0"]}])
def test_files_keep_which_end_is_best_and_the_order(tmp_path: Path, about: dict[str, Any]) -> None:
    scores = turned(A, **about)
    loaded = HeadScores.load(scores.save(tmp_path / "s.json"))
    assert loaded.ranking() == scores.ranking()
    assert loaded.sign == -1
    assert scores.ranking() != replace(scores, best="highest", order=()).ranking()


def test_the_form_without_meta_is_refused() -> None:
    for scores, name in ((turned(A), "best"), (replace(A, order=("L3H5",)), "order")):
        with pytest.raises(ValueError, match=rf"form 'lists' cannot store '{name}'.*use form='envelope'"):
            scores.save("never.json", form="lists")
    assert not Path("never.json").exists()


def test_another_end_is_refused_by_value(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"a: best='smallest': must be 'highest' or 'lowest'"):
        turned(A, best="smallest")
    path = A.save(tmp_path / "s.json")
    written = json.loads(path.read_text())
    path.write_text(json.dumps({**written, "meta": {**written["meta"], "best": "low"}}))
    with pytest.raises(ValueError, match=r"s.json: meta.best is 'low': expected highest or lowest"):
        HeadScores.load(path)
