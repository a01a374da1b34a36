"""Maps and bars of one method: what is drawn is what the values say, head by head."""

from __future__ import annotations

from typing import get_args

import numpy as np
import pandas as pd
import pytest
import torch

from lens_heads import compare, plots
from lens_heads.heads.head import Head
from lens_heads.heads.scores import HeadScores
from lens_heads.inspection.anatomy import Source
from tests.plots.drawn import assert_whiskers, make


def test_head_map_holds_every_score_with_layer_0_at_the_bottom(scores: HeadScores) -> None:
    figure = plots.head_map(scores)
    np.testing.assert_array_equal(figure.data[0].z, scores.values.numpy())
    low, high = figure.layout.yaxis.range
    assert low < 0 < high, "layer 0 is the lowest row"


def test_head_map_is_centred_at_zero_only_when_there_are_negative_scores(scores: HeadScores) -> None:
    drawn = plots.head_map(scores).data[0]
    assert (drawn.zmin, drawn.zmid, drawn.zmax) == (-4.0, 0.0, 4.0)
    assert [list(stop) for stop in drawn.colorscale] == plots.DIVERGING
    positive = plots.head_map(make([[0.0, 0.5], [0.25, 2.0]])).data[0]
    assert (positive.zmin, positive.zmax) == (0.0, 2.0)
    assert [list(stop) for stop in positive.colorscale] == plots.SEQUENTIAL


def test_head_map_of_equal_zeros_keeps_a_scale() -> None:
    drawn = plots.head_map(make([[0.0, 0.0]]), mark=0).data[0]
    assert drawn.zmin < drawn.zmax


def test_head_map_outlines_the_best_heads_where_they_are(scores: HeadScores) -> None:
    figure = plots.head_map(scores, mark=3)
    assert [shape.name for shape in figure.layout.shapes] == ["L1H0", "L2H1", "L1H2"]
    for shape, head in zip(figure.layout.shapes, scores.top(3), strict=True):
        assert (shape.x0, shape.x1, shape.y0, shape.y1) == (
            head.head - 0.5,
            head.head + 0.5,
            head.layer - 0.5,
            head.layer + 0.5,
        )
    assert [(note.text, note.x, note.y) for note in figure.layout.annotations] == [
        ("<b>L1H0</b>", 0, 1),
        ("<b>L2H1</b>", 1, 2),
        ("<b>L1H2</b>", 2, 1),
    ]


def test_head_map_of_many_heads_numbers_the_marks_and_names_them_in_the_subtitle() -> None:
    values = torch.zeros(2, 64)
    values[1, 40], values[0, 3] = 2.0, 1.0
    figure = plots.head_map(make(values.tolist()), mark=2)
    assert [note.text for note in figure.layout.annotations] == ["<b>1</b>", "<b>2</b>"]
    assert figure.layout.title.subtitle.text == "Outlined, by rank: 1 L1H40, 2 L0H3"


def test_head_map_hover_gives_name_rank_and_interval(scores: HeadScores) -> None:
    drawn = plots.head_map(scores).data[0]
    _, low, high = scores.interval()
    ranked = scores.ranking()
    for layer in range(3):
        for head in range(4):
            name, rank, interval = drawn.customdata[layer][head]
            assert name == f"L{layer}H{head}"
            assert ranked[int(rank) - 1] == Head(layer, head)
            assert interval.strip() == f"[{low[layer, head]:.3g}, {high[layer, head]:.3g}]"
    for part in ("customdata[0]", "customdata[1]", "customdata[2]", "%{z"):
        assert part in drawn.hovertemplate


def test_one_trial_has_no_interval_to_show() -> None:
    scores = make([[1.0, 2.0]], trials=1)
    assert plots.head_map(scores).data[0].customdata[0][0][2] == ""
    figure = plots.ranking_bars(scores)
    assert np.isnan(figure.data[0].error_x.array).all(), "a whisker of no length would look certain"
    assert "interval" not in (figure.layout.title.subtitle.text or "")


def test_ranking_bars_are_the_best_heads_with_their_intervals(scores: HeadScores) -> None:
    figure = plots.ranking_bars(scores, k=4)
    bars = figure.data[0]
    assert list(bars.y) == ["L1H0", "L2H1", "L1H2", "L2H0"]
    assert figure.layout.yaxis.autorange == "reversed", "the best is on top"
    np.testing.assert_array_equal(bars.x, [4.0, 3.0, 2.0, 1.0])
    table = scores.frame.head(4)
    assert_whiskers(bars.x, bars.error_x, table)
    assert (table["high"] > table["low"]).all(), "the trials of this test differ"
    assert bars.marker.color == plots.STYLES["locos"].color


def test_whiskers_drawn_the_wrong_way_round_would_be_caught() -> None:
    skewed = torch.tensor([0.1, 0.2, 0.1, 0.3, 0.2, 3.0])[:, None, None]
    scores = HeadScores.from_trials("locos", skewed, [f"t{i}" for i in range(6)])
    bars = plots.ranking_bars(scores).data[0]
    assert_whiskers(bars.x, bars.error_x, scores.frame)
    bars.error_x.update(array=bars.error_x.arrayminus, arrayminus=bars.error_x.array)
    with pytest.raises(AssertionError):
        assert_whiskers(bars.x, bars.error_x, scores.frame)


def test_four_trials_have_no_whiskers() -> None:
    scores = make([[1.0, 2.0], [3.0, 4.0]], trials=4)
    bars = plots.ranking_bars(scores)
    assert np.isnan(bars.data[0].error_x.array).all(), "a whisker of no length would look certain"
    assert np.isnan(bars.data[0].error_x.arrayminus).all()
    assert "Whiskers" not in str(bars.layout.title.subtitle.text)
    assert "nan" not in str(bars.data[0].customdata).lower()


@pytest.fixture
def looked() -> pd.DataFrame:
    """As `provenance` returns it: columns in the order in which it decides."""
    first = {"head": "L5H1", "needle": 0.5, "sink": 0.1, "answer mention": 0.0, "question": 0.25}
    second = {"head": "L2H0", "needle": 0.0, "sink": 0.75, "answer mention": 0.125, "question": 0.0}
    rest = [{"neighbourhood": 0.05, "bulk": 0.1, "trials": 8}, {"neighbourhood": 0.125, "bulk": 0.0, "trials": 8}]
    return pd.DataFrame([first | rest[0], second | rest[1]])


def test_provenance_bars_stack_every_share_of_the_table_to_one(looked: pd.DataFrame) -> None:
    figure = plots.provenance_bars(looked)
    order = ["needle", "question", "answer mention", "sink", "neighbourhood", "bulk"]
    assert [bar.name for bar in figure.data] == order
    assert figure.layout.barmode == "stack"
    for bar in figure.data:
        np.testing.assert_array_equal(bar.x, looked[bar.name])
        assert list(bar.y) == ["L5H1", "L2H0"]
    np.testing.assert_allclose(np.sum([bar.x for bar in figure.data], axis=0), 1)
    assert figure.layout.yaxis.autorange == "reversed", "the first head is on top"
    assert len({bar.marker.color for bar in figure.data}) == 6


def test_provenance_bars_write_only_the_shares_that_have_room(looked: pd.DataFrame) -> None:
    texts = {bar.name: list(bar.text) for bar in plots.provenance_bars(looked).data}
    assert texts["needle"] == ["50%", ""]
    assert texts["sink"] == ["10%", "75%"]
    assert texts["neighbourhood"] == ["", "12%"]


def test_provenance_bars_know_every_kind_that_provenance_decides() -> None:
    assert set(plots.SOURCES) == set(get_args(Source))


def test_a_table_without_a_kind_is_refused_by_its_name(looked: pd.DataFrame) -> None:
    with pytest.raises(ValueError, match=r"provenance_bars: the frame has no column .sink., only head"):
        plots.provenance_bars(looked.drop(columns="sink"))
    with pytest.raises(ValueError, match=r"provenance_bars: the frame has no rows"):
        plots.provenance_bars(looked.head(0))


def test_a_map_of_path_patching_shows_both_signs_and_its_written_name() -> None:
    scores = make([[0.5, -2.0], [1.0, 0.0]], "path_patch")
    figure = plots.head_map(scores)
    assert figure.layout.title.text == "path patching per head, mean over 6 trials"
    assert (figure.data[0].zmin, figure.data[0].zmid, figure.data[0].zmax) == (-2.0, 0.0, 2.0)


def test_scores_that_state_their_unit_are_labelled_with_it() -> None:
    per_trial = torch.randn(1, 3, 4, generator=torch.Generator().manual_seed(0))
    scores = HeadScores.from_trials("patching_answer", per_trial, ["a"], score_unit="nats")
    figure = plots.head_map(scores)
    assert figure.data[0].colorbar.title.text == "nats"
    assert "mean over 1 trial" in figure.layout.title.text
    assert "1 trials" not in figure.layout.title.text
    assert (
        plots.score_scatter(scores, scores, compare.by_layer_third(scores, scores)).layout.xaxis.title.text
        == "patching, answer rows score (nats)"
    )
