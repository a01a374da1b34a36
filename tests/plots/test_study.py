"""Grouped bars: each where its group and name say, as high as the table says."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from lens_heads import plots
from tests.plots.drawn import assert_whiskers, trace


@pytest.fixture
def frame() -> pd.DataFrame:
    """k from large to small, and no random control at 20."""
    rows = [
        (20, "dla", 1.0, 0.75, 1.5),
        (20, "locos", 2.0, 1.75, 2.25),
        (5, "locos", 0.5, 0.25, 1.0),
        (5, "dla", 0.25, 0.0, 0.5),
        (5, "random", -0.125, -0.5, 0.25),
    ]
    return pd.DataFrame(rows, columns=["group", "name", "value", "low", "high"])


def test_drop_bars_are_the_table_with_its_intervals(frame: pd.DataFrame) -> None:
    figure = plots.drop_bars(frame)
    assert figure.layout.barmode == "group"
    for name, label in (("locos", "LOCOS"), ("dla", "DLA"), ("random", "random")):
        bars, part = trace(figure, label), frame[frame["name"] == name]
        np.testing.assert_array_equal(bars.y, part["value"])
        assert list(bars.x) == [str(group) for group in part["group"]]
        assert_whiskers(bars.y, bars.error_y, part)


def test_groups_and_names_come_in_the_order_of_the_table(frame: pd.DataFrame) -> None:
    figure = plots.drop_bars(frame)
    assert [bars.name for bars in figure.data] == ["DLA", "LOCOS", "random"]
    assert list(figure.layout.xaxis.categoryarray) == ["20", "5"]
    assert figure.layout.xaxis.type == "category", "k = 5 and k = 20 stand side by side, not 15 apart"


def test_methods_keep_their_colours_and_controls_are_hatched(frame: pd.DataFrame) -> None:
    figure = plots.drop_bars(frame)
    for name in ("locos", "dla"):
        assert trace(figure, plots.STYLES[name].label).marker.color == plots.STYLES[name].color
        assert not trace(figure, plots.STYLES[name].label).marker.pattern.shape
    control = trace(figure, "random").marker
    assert control.pattern.shape
    assert control.color == plots.CONTROL_STYLES["random"][0]


def test_axes_say_what_is_drawn_in_which_unit(frame: pd.DataFrame) -> None:
    assert plots.drop_bars(frame).layout.yaxis.title.text == "drop (nats per token)"
    figure = plots.drop_bars(frame, unit="share of answers", axis="what is spared", groups="task")
    assert figure.layout.yaxis.title.text == "what is spared (share of answers)"
    assert figure.layout.xaxis.title.text == "task"
    assert figure.layout.title.text == "What is spared"


def test_long_names_of_groups_are_broken_into_lines_and_escaped(frame: pd.DataFrame) -> None:
    long = frame.assign(group=frame["group"].map({20: "paragraph_continuation <i>", 5: "retrieval"}))
    figure = plots.drop_bars(long)
    assert list(figure.layout.xaxis.categoryarray) == ["paragraph<br>continuation &lt;i&gt;", "retrieval"]
    assert trace(figure, "random").x == ("retrieval",)


def test_a_bar_given_twice_and_a_missing_column_are_refused_by_name(frame: pd.DataFrame) -> None:
    with pytest.raises(ValueError, match=r"group '5' has more than one row for 'random'. Average them"):
        plots.drop_bars(pd.concat([frame, frame.tail(1)]))
    with pytest.raises(ValueError, match="drop_bars: the frame has no rows"):
        plots.drop_bars(frame.head(0))
    with pytest.raises(ValueError, match=r"drop_bars: the frame has no column .high., only group, name"):
        plots.drop_bars(frame.drop(columns="high"))
