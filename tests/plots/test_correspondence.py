"""The diagram of matched heads: every dot in its layer, every line from a head to its partner."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from lens_heads import plots
from lens_heads.compare import HeadMatch
from tests.plots.drawn import trace


@pytest.fixture
def match() -> HeadMatch:
    """Three layers of two heads against two layers of two: two heads of a have no partner."""
    rows = [
        ("L0H0", "L0H1", 0.1, 1.0),
        ("L0H1", "L0H0", 0.2, 0.6),
        ("L2H0", "L1H0", 0.3, 0.95),
        ("L2H1", "L1H1", 0.4, 0.1),
    ]
    pairs = pd.DataFrame(rows, columns=["head_a", "head_b", "distance", "stability"]).assign(margin=0.1, p=0.5)
    return HeadMatch(pairs, np.ones((6, 4)), 0.01, 1.0, (3, 2), (2, 2), {"model_a": "one <b>", "model_b": "two"})


def lines(drawn: object) -> list[tuple[float, ...]]:
    """(x, y, x, y) of every line of a trace."""
    x, y = list(drawn.x), list(drawn.y)  # type: ignore[attr-defined]
    assert all(value is None for value in x[2::3] + y[2::3])
    return [(x[i], y[i], x[i + 1], y[i + 1]) for i in range(0, len(x), 3)]


def test_lines_join_partners_at_their_relative_depths(match: HeadMatch) -> None:
    figure = match.plot()
    assert lines(trace(figure, "90 % of resamples or more")) == [(0.25, 0, 2.75, 0), (0.25, 1, 2.25, 1)]
    assert lines(trace(figure, "half or more")) == [(0.75, 0, 2.25, 0)]
    assert lines(trace(figure, "fewer")) == [(0.75, 1, 2.75, 1)]


def test_every_head_has_a_dot_that_tells_its_partner(match: HeadMatch) -> None:
    figure = plots.match_diagram(match)
    left, right = trace(figure, "one <b>"), trace(figure, "two")
    assert list(zip(left.text, left.x, left.y, strict=True))[2:4] == [("L1H0", 0.25, 0.5), ("L1H1", 0.75, 0.5)]
    assert list(left.customdata)[:3] == [
        "L0H1: distance 0.10, stability 1.00",
        "L0H0: distance 0.20, stability 0.60",
        "no partner",
    ]
    assert right.customdata[0] == "L0H1: distance 0.20, stability 0.60"
    assert (left.yaxis, right.yaxis) == ("y", "y2")
    assert list(figure.layout.yaxis.ticktext) == ["0", "1", "2"]
    assert list(figure.layout.yaxis2.tickvals) == [0, 1]
    assert "Heads of one &lt;b&gt; and their partners in two" in figure.layout.title.text


def test_only_the_lines_of_named_heads(match: HeadMatch) -> None:
    figure = match.plot(["L2H0", "L1H0"])
    assert sum(len(lines(t)) for t in figure.data if t.mode == "lines") == 1
    assert "1 pairs" in figure.layout.title.subtitle.text
    with pytest.raises(ValueError, match="none of the 1 heads has a partner: name heads of one <b>"):
        match.plot(["L1H0"])
