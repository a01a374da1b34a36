"""The diagram of matched heads: every dot in its layer, every line from a head to its partner."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from lens_heads import plots
from lens_heads.heads.head import Head
from lens_heads.heads.matching import HeadMatch
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
    assert lines(trace(figure, "at least 90 % of resamples")) == [(0.25, 0, 2.75, 0), (0.25, 1, 2.25, 1)]
    assert lines(trace(figure, "at least half")) == [(0.75, 0, 2.25, 0)]
    assert lines(trace(figure, "less than half")) == [(0.75, 1, 2.75, 1)]


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
    figure = match.plot(["2-0", (1, 0)])
    assert [line for t in figure.data if t.mode == "lines" for line in lines(t)] == [(0.25, 1, 2.25, 1)]
    assert figure.layout.title.subtitle.text.startswith("1 pair; line colour")
    assert (
        figure == plots.match_diagram(match, heads=["L2H0", "L1H0"]) == plots.match_diagram(match, heads=[Head(2, 0)])
    )
    assert figure == plots.match_diagram(match, heads="L2H0")
    for none in (["L1H0"], []):
        with pytest.raises(ValueError, match=r"no head to draw has a partner. Pass matched heads of one <b>"):
            match.plot(none)


def test_a_name_in_another_spelling_and_a_match_without_pairs_are_refused(match: HeadMatch) -> None:
    with pytest.raises(ValueError, match=r"match_diagram: '2-0' is not the name of a head. Write .* 'L12H1'"):
        plots.match_diagram(match, heads=["L2H0", "2-0"])
    with pytest.raises(ValueError, match="match_diagram: no head to draw has a partner"):
        plots.match_diagram(replace(match, pairs=match.pairs.head(0)))
