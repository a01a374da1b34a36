"""Transfer figures draw the matrix and the correlation they are given."""

from __future__ import annotations

import numpy as np
import pytest

from lens_heads import plots
from lens_heads.evidence.correlation import correlate
from lens_heads.evidence.transfer_results import TransferMatrix
from tests.evidence.matrices import planted, worked
from tests.plots.drawn import trace

WEAK = {"a": 0.5, "b_b": 0.0, "c": 0.25, "d": 0.1}


def test_the_map_is_the_drops_at_one_k_with_random_heads_below() -> None:
    m = worked()
    figure = m.plot(8)
    drawn = figure.data[0]
    np.testing.assert_array_equal(drawn.z, [*m.drop().loc[8].to_numpy(), m.statistic("random").loc[8]])
    assert list(drawn.y) == ["a", "b", "random heads (2 draws)"]
    assert list(drawn.x) == ["a<br>(1.00)", "b<br>(0.50)", "c<br>(1.00)"]
    assert drawn.text[0] == ("1.00", "0.00", "0.50") or list(drawn.text[0]) == ["1.00", "0.00", "0.50"]
    assert (drawn.zmin, drawn.zmax) == (0, 1)
    assert drawn.colorbar.title.text == "drop: share of<br>correct answers"
    boxes = [(box.x0, box.x1, box.y0, box.y1) for box in figure.layout.shapes]
    assert boxes == [(-0.5, 0.5, -0.5, 0.5), (0.5, 1.5, 0.5, 1.5)], "a task's own heads"
    assert m.plot().data[0].z[0][0] == 1, "the largest k by default"


def test_relative_drops_and_gains() -> None:
    m = worked()
    np.testing.assert_array_equal(m.plot(8, relative=True).data[0].z[1], [0.5, 1, 0])
    table = m.per_trial
    assert table is not None
    better = table["correct"].where((table["method"] != "a") | (table["task"] != "b"), 1.0)
    drawn = TransferMatrix(per_trial=table.assign(correct=better)).plot(8).data[0]
    assert drawn.z[0][1] == -0.5
    assert (drawn.zmin, drawn.zmax, drawn.zmid) == (-1, 1, 0)


def test_a_k_that_was_not_run_is_refused() -> None:
    with pytest.raises(ValueError, match=r"k=16 was not run. This matrix has k = 8"):
        worked().plot(16)


def test_the_scatter_is_the_points_with_intervals_over_items() -> None:
    found = correlate(planted(1, WEAK), planted(2, WEAK), n=100)
    figure = found.plot()
    for task in WEAK:
        drawn, part = trace(figure, task.replace("_", " ")), found.points[found.points["task"] == task]
        np.testing.assert_array_equal(drawn.x, part["a_controlled"])
        np.testing.assert_array_equal(drawn.y, part["b_controlled"])
        for bars, name in ((drawn.error_x, "a"), (drawn.error_y, "b")):
            up = np.clip(part[f"{name}_high"] - part[f"{name}_controlled"], 0, None)
            down = np.clip(part[f"{name}_controlled"] - part[f"{name}_low"], 0, None)
            np.testing.assert_allclose(bars.array, up, atol=1e-12)
            np.testing.assert_allclose(bars.arrayminus, down, atol=1e-12)
        assert [row[0] for row in drawn.customdata] == [4, 8, 16]
        assert list(drawn.marker.size) == sorted(set(drawn.marker.size)), "larger with k"
    assert len({t.marker.color for t in figure.data[1:]}) == len({t.marker.symbol for t in figure.data[1:]}) == 4
    line = figure.data[0]
    slope, start = np.polyfit(found.points["a_controlled"], found.points["b_controlled"], 1)
    np.testing.assert_allclose(line.y, start + slope * np.array(line.x))
    subtitle = figure.layout.title.subtitle.text
    assert f"R² = {found.r2:.3f}  [" in subtitle
    assert f"p = {found.p:.2g} over permutations of the tasks" in subtitle
    assert f"noise ceiling {found.noise_ceiling_r2:.3f}" in subtitle
    assert figure.layout.xaxis.title.text == "planted-1: fragility, minus the mean at each k"


def test_frames_are_drawn_without_whiskers() -> None:
    found = correlate(planted(1, WEAK).fragility(), planted(2, WEAK).fragility(), names=("<one>", "two"))
    figure = plots.transfer_scatter(found, title="mine")
    assert figure.layout.title.text == "mine"
    assert figure.layout.xaxis.title.text == "&lt;one&gt;: fragility, minus the mean at each k"
    assert "ceiling" not in figure.layout.title.subtitle.text
    assert trace(figure, "a").error_x.array is None
