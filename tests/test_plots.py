"""Figures: what is drawn is what the values say, head by head and k by k."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from lens_heads import plots
from lens_heads.curves import AblationCurve, Condition, Observation
from lens_heads.heads import Head, HeadScores

RIGHT = {  # (method, set, k, seed): how many of the ten trials are right
    ("none", "none", 0, 0): 9,
    ("locos", "top", 1, 0): 6,
    ("locos", "top", 10, 0): 1,
    ("copy", "top", 1, 0): 8,
    ("copy", "top", 10, 0): 5,
    ("locos", "bottom", 1, 0): 9,
    ("locos", "bottom", 10, 0): 8,
    ("copy", "bottom", 1, 0): 9,
    ("copy", "bottom", 10, 0): 9,
    ("any", "random", 1, 0): 9,
    ("any", "random", 1, 1): 7,
    ("any", "random", 10, 0): 8,
    ("any", "random", 10, 1): 4,
}


@pytest.fixture(scope="module")
def curve() -> AblationCurve:
    observations = [
        Observation(
            Condition(*condition), "", task, f"t{i}", "x", "x", {"contains": float(i < right), "logprob": -1.0 - i}
        )
        for task in ("retrieval", "parametric")
        for condition, right in RIGHT.items()
        for i in range(10)
    ]
    return AblationCurve.from_observations(observations, {"rankings": ["locos", "copy"]})


def make(values: list[list[float]], method: str = "locos", trials: int = 6) -> HeadScores:
    """Trials that scatter evenly around the given means."""
    mean = torch.tensor(values)
    offsets = torch.linspace(-1, 1, trials) if trials > 1 else torch.zeros(1)
    per_trial = mean + offsets[:, None, None] * mean.abs() / 2
    return HeadScores(method, mean, per_trial, tuple(f"t{i}" for i in range(trials)))


@pytest.fixture
def scores() -> HeadScores:
    return make([[0.5, -1.0, 0.0, 0.25], [4.0, 0.125, 2.0, -0.5], [1.0, 3.0, -3.0, 0.75]])


def trace(figure: Any, name: str) -> Any:
    found = [t for t in figure.data if t.name == name]
    assert len(found) == 1, [t.name for t in figure.data]
    return found[0]


def assert_whiskers(values: Any, drawn: Any, table: Any) -> None:
    """The error bars end where the table's intervals do."""
    np.testing.assert_allclose(np.array(values) + np.array(drawn.array), table["high"], atol=1e-6)
    np.testing.assert_allclose(np.array(values) - np.array(drawn.arrayminus), table["low"], atol=1e-6)


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
    low, high = scores.interval()
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
    assert list(figure.data[0].error_x.array) == [0.0, 0.0]
    assert "interval" not in (figure.layout.title.subtitle.text or "")


def test_ranking_bars_are_the_best_heads_with_their_intervals(scores: HeadScores) -> None:
    figure = plots.ranking_bars(scores, k=4)
    bars = figure.data[0]
    assert list(bars.y) == ["L1H0", "L2H1", "L1H2", "L2H0"]
    assert figure.layout.yaxis.autorange == "reversed", "the best is on top"
    np.testing.assert_array_equal(bars.x, [4.0, 3.0, 2.0, 1.0])
    table = scores.to_frame().head(4)
    assert_whiskers(bars.x, bars.error_x, table)
    assert (table["high"] > table["low"]).all(), "the trials of this test differ"
    assert bars.marker.color == plots.LOOKS["locos"].color


def test_whiskers_drawn_the_wrong_way_round_would_be_caught() -> None:
    skewed = torch.tensor([0.0, 0.0, 0.0, 0.0, 0.0, 1.0])[:, None, None]
    scores = HeadScores.from_trials("locos", skewed, [f"t{i}" for i in range(6)])
    bars = plots.ranking_bars(scores).data[0]
    assert_whiskers(bars.x, bars.error_x, scores.to_frame())
    bars.error_x.update(array=bars.error_x.arrayminus, arrayminus=bars.error_x.array)
    with pytest.raises(AssertionError):
        assert_whiskers(bars.x, bars.error_x, scores.to_frame())


@pytest.mark.parametrize("metric", ["contains", "logprob"])
def test_curves_are_the_frame_with_its_intervals(curve: AblationCurve, metric: str) -> None:
    figure = plots.ablation_curves(curve, metric)
    names = {
        ("locos", "top"): "top k by LOCOS",
        ("copy", "top"): "top k by copy",
        ("locos", "bottom"): "lowest k by LOCOS",
        ("copy", "bottom"): "lowest k by copy",
        ("any", "random"): "random k (2 draws)",
    }
    for (method, set_), name in names.items():
        f = curve.frame
        rows = f[
            (f["method"] == method) & (f["set"] == set_) & (f["metric"] == metric) & (f["task"] == "retrieval")
        ].sort_values("k")
        line = trace(figure, name)
        np.testing.assert_array_equal(line.y, rows["value"])
        assert_whiskers(line.y, line.error_y, rows)
        assert [point[0] for point in line.customdata] == [1, 10]


def test_the_curve_of_a_hand_made_study_has_the_expected_numbers(curve: AblationCurve) -> None:
    figure = plots.ablation_curves(curve, "contains")
    np.testing.assert_allclose(trace(figure, "top k by LOCOS").y, [0.6, 0.1])
    np.testing.assert_allclose(trace(figure, "random k (2 draws)").y, [0.8, 0.6])
    np.testing.assert_allclose(trace(figure, "no ablation").y, [0.9, 0.9])


def test_the_baseline_is_level_and_has_one_interval_at_k_0(curve: AblationCurve) -> None:
    figure = plots.ablation_curves(curve, "contains")
    base = trace(figure, "no ablation")
    row = curve.frame.query("k == 0 and metric == 'contains' and task == 'retrieval'").iloc[0]
    np.testing.assert_allclose(base.error_y.array, [row["high"] - row["value"], 0], atol=1e-7)
    np.testing.assert_allclose(base.error_y.arrayminus, [row["value"] - row["low"], 0], atol=1e-7)
    axis = figure.layout.xaxis
    assert list(map(str, axis.ticktext)) == ["0", "1", "10"]
    assert axis.tickvals[0] == base.x[0]
    assert list(axis.tickvals[1:]) == [1, 10]
    assert axis.type == "log"


def test_the_band_of_a_random_control_is_the_range_of_its_draws(curve: AblationCurve) -> None:
    figure = plots.ablation_curves(curve, "contains")
    band = trace(figure, "range of draws, random k (2 draws)")
    np.testing.assert_allclose(band.y, [0.9, 0.8, 0.4, 0.7])  # Out along seed_max, back along seed_min.
    np.testing.assert_array_equal(band.x[:2], trace(figure, "random k (2 draws)").x)
    assert band.legendgroup == trace(figure, "random k (2 draws)").legendgroup
    assert [t.name for t in figure.data if str(t.name).startswith("range")] == [band.name], "one draw has no range"


def test_points_of_one_k_stand_side_by_side_but_never_nearer_to_another_k(curve: AblationCurve) -> None:
    figure = plots.ablation_curves(curve, "contains")
    lines = [t for t in figure.data if t.mode == "lines+markers" and t.visible is True]
    assert len({t.x[0] for t in lines}) == len(lines)
    for line in lines:
        for x, k in zip(line.x, (1, 10), strict=True):
            assert abs(math.log(x / k)) < math.log(10) / 4


def test_controls_are_broken_lines_and_those_of_other_rankings_wait_in_the_legend(curve: AblationCurve) -> None:
    figure = plots.ablation_curves(curve, "contains")
    look = {t.name: (t.line.dash, t.visible) for t in figure.data if t.mode == "lines+markers"}
    assert look["top k by LOCOS"] == look["top k by copy"] == ("solid", True)
    assert look["lowest k by LOCOS"][0] != "solid"
    assert look["random k (2 draws)"] == ("dash", True)
    assert look["lowest k by LOCOS"][1] is True
    assert look["lowest k by copy"][1] == "legendonly"


def test_a_metric_or_task_that_was_not_measured_is_refused_by_name(curve: AblationCurve) -> None:
    with pytest.raises(ValueError, match=r"no 'rougeL' on 'retrieval': this curve has contains, logprob"):
        plots.ablation_curves(curve, "rougeL")
    with pytest.raises(ValueError, match="on retrieval, parametric"):
        plots.ablation_curves(curve, "contains", "arithmetic")


def test_a_method_has_one_colour_in_every_figure(curve: AblationCurve, scores: HeadScores) -> None:
    copy = make((-scores.values).tolist(), "copy")
    line = trace(plots.ablation_curves(curve, "contains"), "top k by copy")
    points = trace(plots.scatter(scores, copy, mark=2), "top 2 by copy only")
    colors = {line.line.color, plots.ranking_bars(copy).data[0].marker.color, points.marker.color}
    assert colors == {plots.LOOKS["copy"].color}
    assert line.marker.symbol == points.marker.symbol == plots.LOOKS["copy"].symbol


def test_looks_are_distinct_and_a_new_method_gets_a_lasting_one() -> None:
    used = list(plots.LOOKS.values())
    assert len({look.color for look in used}) == len({look.symbol for look in used}) == len(used)
    assert plots.look("my_method") == plots.look("my_method")
    assert plots.look("my_method").label == "my method"
    assert plots.look("my_method").color not in {look.color for look in used}
    assert plots.look("<b>x</b>").label == "&lt;b&gt;x&lt;/b&gt;"


def test_agreement_is_spearman_and_hover_counts_shared_heads() -> None:
    a = make([[1.0, 2.0, 3.0, 4.0]], "locos")
    b = make([[10.0, 20.0, 30.0, 40.0]], "copy")
    c = make([[4.0, 3.0, 2.0, 1.0]], "dla")
    d = make([[2.0, 1.0, 4.0, 3.0]], "headkv")  # Two swaps: 1 - 6 * 4 / (4 * 15) = 0.6.
    flat = make([[1.0, 1.0, 1.0, 1.0]], "contrastive")
    drawn = plots.method_agreement({s.method: s for s in (a, b, c, d, flat)}).data[0]
    expected = [[1, 1, -1, 0.6], [1, 1, -1, 0.6], [-1, -1, 1, -0.6], [0.6, 0.6, -0.6, 1]]
    np.testing.assert_allclose(np.array(drawn.z)[:4, :4], expected, atol=1e-12)
    assert drawn.text[0][2] == "−1.00"
    assert drawn.text[3][0] == "0.60"
    assert drawn.text[4][0] == "–", "a constant ranking agrees with nothing"
    assert list(drawn.x) == list(drawn.y) == ["LOCOS", "copy", "DLA", "HeadKV", "contrastive"]
    assert (drawn.zmin, drawn.zmax) == (-1, 1)


def test_agreement_counts_the_shared_top_ten() -> None:
    up = make([[float(i) for i in range(16)]], "locos")
    down = make([[float(-i) for i in range(16)]], "copy")
    drawn = plots.method_agreement({"locos": up, "copy": down}).data[0]
    assert np.array(drawn.customdata).tolist() == [[10, 4], [4, 10]]


def test_scatter_places_and_names_heads_by_both_scores() -> None:
    a = make([[5.0, 4.0, 0.0], [0.1, 0.2, 0.3]], "locos")
    b = make([[3.0, 0.0, 2.0], [0.3, 0.1, 0.2]], "copy")
    figure = plots.scatter(a, b, mark=2)
    points = {t.name: sorted(zip(t.text, t.x, t.y, strict=True)) for t in figure.data}
    assert [(name, x, y) for name, x, y in points["top 2 of both"]] == [("L0H0", 5.0, 3.0)]
    assert points["top 2 by LOCOS only"] == [("L0H1", 4.0, 0.0)]
    assert points["top 2 by copy only"] == [("L0H2", 0.0, 2.0)]
    assert [name for name, _, _ in points["other heads"]] == ["L1H0", "L1H1", "L1H2"]
    assert "1 of the top 2 shared" in figure.layout.title.subtitle.text


def test_rankings_of_different_models_are_refused() -> None:
    a, b = make([[1.0, 2.0]]), make([[1.0], [2.0]], "copy")
    with pytest.raises(ValueError, match=r"locos \(1, 2\), copy \(2, 1\)"):
        plots.scatter(a, b)
    with pytest.raises(ValueError, match="rankings of one model"):
        plots.method_agreement({"locos": a, "copy": b})


def test_scores_and_curves_draw_themselves(scores: HeadScores, curve: AblationCurve) -> None:
    assert scores.plot(title="mine") == plots.head_map(scores, title="mine")
    assert curve.plot() == plots.ablation_curves(curve, "contains")
    assert curve.plot(task="parametric").layout.title.text == "Task: parametric"
