"""Recovery: bars where the frame's ratios are, and a word wherever one cannot be drawn."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
import pytest

from lens_heads import plots
from lens_heads.evidence.recovery_results import SMALL, Recovery
from tests.plots.drawn import assert_whiskers, trace

THEMSELVES, PLACE, FAIR = (
    "the ablated heads, patched",
    "other heads, patched instead",
    "other heads, themselves ablated and patched",
)
COLUMNS = ["set", "fair", "recovery", "low", "high", "median", "undefined", "cost", "draws", "examples"]
NAN = math.nan


@pytest.fixture
def frame() -> pd.DataFrame:
    """Two fair controls have no cost to speak of: one leaves the axis on both sides, one is no number."""
    rows = [
        ("patched", False, 0.625, 0.5, 0.75, 0.6, 0.0, 3.0, 1, 14),
        ("random", False, 0.05, -0.05, 0.125, 0.0, 0.0, 3.0, 20, 14),
        ("same_layer", False, 0.0, -0.125, 0.25, 0.0, 0.0, 3.0, 1, 14),
        ("bottom", False, -0.05, -0.25, 0.0, 0.0, 0.0, 3.0, 1, 14),
        ("random", True, 0.5, 0.25, 1.75, 0.4, 0.25, 1.0, 20, 14),
        ("same_layer", True, 5.3, -3.2, 1240.0, 0.7, 0.75, 0.02, 1, 14),
        ("bottom", True, NAN, NAN, NAN, NAN, 1.0, 0.0, 1, 14),
    ]
    return pd.DataFrame(rows, columns=COLUMNS)


def notes(figure: Any) -> dict[str, Any]:
    return {note.text: note for note in figure.layout.annotations}


def place(figure: Any, name: str) -> float:
    axis = figure.layout.xaxis
    return float(axis.tickvals[[str(text).startswith(name) for text in axis.ticktext].index(True)])


def test_recovery_bars_are_the_frame_with_its_intervals(frame: pd.DataFrame) -> None:
    figure = plots.recovery_bars(frame)
    controls = frame["set"] != "patched"
    parts = {
        THEMSELVES: frame[~controls],
        PLACE: frame[controls & ~frame["fair"]],
        FAIR: frame[frame["fair"] & (frame["set"] != "bottom")],
    }
    for name, part in parts.items():
        bars, n = trace(figure, name), len(part)
        np.testing.assert_array_equal(bars.y[:n], part["recovery"])
        up, down = bars.error_y.array[:n], bars.error_y.arrayminus[:n]
        np.testing.assert_allclose(np.array(bars.y[:n]) + up, part["high"])
        np.testing.assert_allclose(np.array(bars.y[:n]) - down, part["low"])
    assert len(figure.data) == 3


def test_swapped_bounds_would_be_caught(frame: pd.DataFrame) -> None:
    swapped = plots.recovery_bars(frame.head(2).rename(columns={"low": "high", "high": "low"})[COLUMNS])
    with pytest.raises(AssertionError):
        assert_whiskers(trace(swapped, PLACE).y, trace(swapped, PLACE).error_y, frame.iloc[1:2])


def test_a_control_stands_beside_its_hatched_fair_variant_and_no_bars_overlap(frame: pd.DataFrame) -> None:
    figure = plots.recovery_bars(frame)
    assert [str(text).split("<br>(")[0] for text in figure.layout.xaxis.ticktext] == [
        "the ablated<br>heads",
        "random",
        "next head in<br>the layer",
        "lowest<br>scores",
    ]
    ours, other, fair = (trace(figure, name) for name in (THEMSELVES, PLACE, FAIR))
    assert ours.x[0] == place(figure, "the ablated")
    np.testing.assert_allclose(np.array(other.x) + fair.x, 2 * np.array(figure.layout.xaxis.tickvals[1:]))
    assert (np.array(fair.x) - other.x > ours.width).all()
    assert (fair.marker.pattern.shape, other.marker.pattern.shape) == ("/", "")
    assert "20 draws" in figure.layout.xaxis.ticktext[1]
    assert "draws" not in figure.layout.xaxis.ticktext[2]


def test_lines_mark_nothing_and_all_of_it(frame: pd.DataFrame) -> None:
    figure = plots.recovery_bars(frame)
    assert [(line.y0, line.y1) for line in figure.layout.shapes] == [(0, 0), (1, 1)]
    assert (notes(figure)["nothing<br>recovered"].y, notes(figure)["everything<br>recovered"].y) == (0, 1)


def test_a_ratio_far_outside_is_cut_and_its_numbers_are_written_there(frame: pd.DataFrame) -> None:
    figure = plots.recovery_bars(frame)
    assert tuple(figure.layout.yaxis.range) == (-1.0, 2.0)
    x = trace(figure, FAIR).x[1]
    above, below = notes(figure)["<b>▲ 5.3</b><br>to 1e3"], notes(figure)["▼ to −3.2"]
    assert (above.x, above.y) == (x, 2.0)
    assert (below.x, below.y) == (x, -1.0)
    hover = [text for _, text in trace(figure, FAIR).customdata]
    assert "which ends at −1 and 2" in hover[1]
    assert "[-3.2, 1.24e+03]" in hover[1]
    assert "ends at" not in hover[0], "an interval within the axis is not cut"


def test_a_bar_below_the_axis_is_cut_too(frame: pd.DataFrame) -> None:
    row = frame.iloc[[5]].assign(recovery=-40.0, low=-500.0, high=0.5)
    figure = plots.recovery_bars(pd.concat([frame.head(1), row]))
    assert "<b>▼ −40</b><br>to −5e+02" in notes(figure)
    assert not [text for text in notes(figure) if "▲" in text]


def test_without_extremes_the_axis_fits_the_intervals_and_nothing_is_cut(frame: pd.DataFrame) -> None:
    figure = plots.recovery_bars(frame[~frame["fair"]])
    low, high = figure.layout.yaxis.range
    assert -1 < low < -0.25
    assert 1 < high < 2
    assert set(notes(figure)) == {"nothing<br>recovered", "everything<br>recovered"}
    assert "Pale" not in figure.layout.title.subtitle.text


def test_a_ratio_that_is_no_number_has_a_word_in_place_of_a_bar(frame: pd.DataFrame) -> None:
    figure = plots.recovery_bars(frame)
    assert notes(figure)["not<br>defined"].x == trace(figure, FAIR).x[2]
    assert np.isnan(trace(figure, FAIR).error_y.array[2])


def test_bars_with_little_to_return_are_pale_and_hover_says_why(frame: pd.DataFrame) -> None:
    figure = plots.recovery_bars(frame)
    fair = trace(figure, FAIR)
    assert fair.marker.opacity[0] > 2 * fair.marker.opacity[1] == 2 * fair.marker.opacity[2]
    assert f"Pale: ablation cost under {SMALL} nats" in figure.layout.title.subtitle.text
    name, text = fair.customdata[1]
    assert name == "same_layer"
    for part in ("median over examples 0.700", "75% of denominators under 0.5", "cost 0.02 nats", "14 examples"):
        assert part in text
    assert "20 draws" in fair.customdata[0][1]
    assert "customdata[1]" in fair.hovertemplate


def test_a_recovery_draws_its_frame() -> None:
    rows = [
        {"trial": f"e{i}", "set": name, "draw": 0, "fair": False, "cost": 2.0 + i, "lp_clean": -1.0}
        | {"lp_ablated": -3.0 - i, "lp_patched": -1.0 - lost, "recovery": 1 - lost / (2 + i)}
        for i in range(4)
        for name, lost in (("patched", 0.5), ("same_layer", 1.75))
    ]
    found = Recovery(pd.DataFrame(rows), {"all": 4, "used": 4}, {})
    figure = found.plot(title="mine")
    assert figure.layout.title.text == "mine"
    np.testing.assert_allclose(
        trace(figure, THEMSELVES).y, [1 - 2.0 / 14]
    )  # Costs 2 + 3 + 4 + 5; 4 * 0.5 is not mended.
    np.testing.assert_allclose(trace(figure, PLACE).y, [1 - 7.0 / 14])


def test_another_table_is_refused_by_what_it_lacks(frame: pd.DataFrame) -> None:
    with pytest.raises(KeyError, match="cost"):
        plots.recovery_bars(frame.drop(columns="cost"))
    with pytest.raises(ValueError, match="recovery_bars: the frame has no rows"):
        plots.recovery_bars(frame.head(0))
