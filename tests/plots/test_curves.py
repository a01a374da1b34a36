"""Ablation curves: the frame, k by k, with its intervals."""

from __future__ import annotations

import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import plotly.graph_objects as go
import pytest

from lens_heads import plots
from lens_heads.evidence.curve_results import AblationCurve
from tests.plots.drawn import assert_whiskers, trace


@pytest.mark.parametrize("metric", ["contains", "logprob"])
def test_curves_are_the_frame_with_its_intervals(curve: AblationCurve, metric: str) -> None:
    figure = plots.ablation_curves(curve, metric)
    names = {
        ("locos", "top"): "top k by LOCOS",
        ("copy", "top"): "top k by copy",
        ("locos", "bottom"): "bottom k by LOCOS",
        ("copy", "bottom"): "bottom k by copy",
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
    np.testing.assert_allclose(band.y, [0.9, 0.8, 0.4, 0.7])  # Out along draw_max, back along draw_min.
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
    assert look["bottom k by LOCOS"][0] != "solid"
    assert look["random k (2 draws)"] == ("dash", True)
    assert look["bottom k by LOCOS"][1] is True
    assert look["bottom k by copy"][1] == "legendonly"


def test_a_metric_or_task_that_was_not_measured_is_refused_by_name(curve: AblationCurve) -> None:
    with pytest.raises(
        ValueError, match=r"'rougeL' was not measured on task 'retrieval'. This curve has contains, logprob on"
    ):
        plots.ablation_curves(curve, "rougeL")
    with pytest.raises(ValueError, match="on retrieval, parametric"):
        plots.ablation_curves(curve, "contains", task="arithmetic")


def test_the_main_task_of_a_curve_is_drawn_by_default_without_a_heading(curve: AblationCurve) -> None:
    members = {name: getattr(curve, name) for name in ("frame", "per_trial", "metrics", "rankings")}
    facts = SimpleNamespace(**members, main_task="parametric")
    drawn, other = plots.ablation_curves(facts, "contains"), plots.ablation_curves(facts, "contains", task="retrieval")
    same = plots.ablation_curves(curve, "contains", task="parametric")
    # As JSON, where bounds that are missing (two random draws have none) are equal.
    assert go.Figure(drawn.data).to_json() == go.Figure(same.data).to_json()
    assert (drawn.layout.title.text, other.layout.title.text) == ("", "Task: retrieval")


@pytest.mark.slow
def test_shares_keep_their_scale_and_log_probabilities_show_whatever_they_are(curve: AblationCurve) -> None:
    among = replace(curve, per_trial=curve.per_trial.rename(columns={"logprob": "choice_logprob"}))
    assert plots.ablation_curves(curve, "contains").layout.yaxis.range == (-0.03, 1.03)
    for found, metric in ((curve, "logprob"), (among, "choice_logprob")):
        assert plots.ablation_curves(found, metric).layout.yaxis.range is None


def test_every_task_has_a_curve_of_its_own_in_one_figure() -> None:
    """Its heads with their intervals, and random heads in the same colour."""
    rows = [
        {
            "capability": name,
            "set": set_,
            "k": k,
            "damage": k * size,
            "damage_low": k * size - 1,
            "damage_high": k * size + 2,
        }
        for name, size in (("sums", 1.0), ("rhyme", 2.0))
        for k in (1, 5)
        for set_ in ("top", "random")
    ]
    frame = pd.DataFrame(rows)
    figure = plots.task_curves(frame, title="A model", unit="nats")
    assert [line.name for line in figure.data] == ["sums", "sums, random heads", "rhyme", "rhyme, random heads"]
    for name in ("sums", "rhyme"):
        mine, random = trace(figure, name), trace(figure, f"{name}, random heads")
        np.testing.assert_allclose(mine.y, frame.query("capability == @name and set == 'top'")["damage"])
        np.testing.assert_allclose(mine.error_y.array, [2, 2])
        np.testing.assert_allclose(mine.error_y.arrayminus, [1, 1])
        assert mine.line.color == random.line.color
        assert [point[0] for point in mine.customdata] == [1, 5]
    assert trace(figure, "sums").line.color != trace(figure, "rhyme").line.color
    assert (trace(figure, "sums").x < trace(figure, "rhyme").x).all(), "side by side"
    with pytest.raises(ValueError, match="task_curves: the frame has no rows"):
        plots.task_curves(frame[:0])


def test_lines_of_a_smaller_cache_begin_with_none_of_it() -> None:
    names = ["whole", "none", "locos", "random", "locos", "random"]
    frame = pd.DataFrame({"method": names, "share": [1, 0, 0.5, 0.5, 0.25, 0.25], "kept": [1, 0.2, 0.6, 0.6, 0.4, 0.4]})
    values = np.array([-1.0, -8.0, -2.0, -6.0, -3.0, -7.0])
    frame = frame.assign(logprob=values, logprob_low=values - 0.5, logprob_high=values + 0.25)
    figure = plots.cache_curves(frame, "logprob")
    assert [each.name for each in figure.data] == ["whole cache", "LOCOS", "random"]
    assert list(figure.data[0].y) == [-1, -1]
    for place, expected in ((1, [-8, -3, -2]), (2, [-8, -7, -6])):
        line = figure.data[place]
        assert list(line.x) == [0.2, 0.4, 0.6]
        assert list(line.y) == expected
        np.testing.assert_allclose(line.error_y.array, 0.25)
        np.testing.assert_allclose(line.error_y.arrayminus, 0.5)
    assert figure.data[1].customdata[1][0] == "25% of kv heads, 40% of memory"
    assert figure.data[2].line.dash == "dash"
    assert figure.layout.xaxis.title.text == "share of the cache's memory"
    with pytest.raises(ValueError, match="cache_curves: the frame has no rows"):
        plots.cache_curves(frame[:0], "logprob")
