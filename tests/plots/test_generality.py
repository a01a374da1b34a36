"""A generality map draws the matrix, in each task's own metric, with random heads below."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from lens_heads.evidence.curve_results import AblationCurve
from lens_heads.evidence.generality import Generality
from tests.plots.drawn import observed

BASE = {"sums": 0.9, "more_sums": 0.8, "facts": -0.5}
METRICS = {"sums": "correct", "more_sums": "correct", "facts": "logprob"}
COST = {
    "sums": {"sums": 0.5, "more_sums": 0.4, "facts": 0.1},
    "facts": {"sums": 0.0, "more_sums": -0.1, "facts": 2.0},
    "random": {"sums": 0.05, "more_sums": 0.0, "facts": 0.2},
}


def made(draws: int = 2, tasks: tuple[str, ...] = tuple(METRICS)) -> Generality:
    """Four trials around these means, three heads of each source."""
    conditions = [("none", ("none", "none", 0, 0))]
    conditions += [(name, (name, "top", 3, 0)) for name in ("sums", "facts")]
    conditions += [("random", ("any", "random", 3, seed)) for seed in range(draws)]
    rows = [
        observed(condition, task, i, {METRICS[task]: BASE[task] - COST.get(name, {}).get(task, 0.0) + 0.01 * (i - 1.5)})
        for task in tasks
        for name, condition in conditions
        for i in range(4)
    ]
    meta = {"rankings": ["sums", "facts"], "sizes": {"sums": 3, "facts": 3}}
    return Generality(AblationCurve(pd.DataFrame(rows), meta), {task: METRICS[task] for task in tasks})


def boxes(figure: Any) -> list[tuple[float, ...]]:
    return [(box.x0, box.x1, box.y0, box.y1) for box in figure.layout.shapes]


@pytest.fixture(scope="module")
def found() -> Generality:
    return made()


def test_the_map_is_the_damage_with_random_heads_below(found: Generality) -> None:
    figure = found.plot()
    drawn = figure.data[0]
    damage = np.array([[0.5, 0.4, 0.1], [0.0, -0.1, 2.0], [0.05, 0.0, 0.2]])
    np.testing.assert_allclose(drawn.z, damage / [0.5, 0.4, 2.0], atol=1e-9)
    assert [list(row) for row in drawn.text] == [
        ["0.50", "0.40", "0.10"],
        ["0.00", "−0.10", "2.00"],
        ["0.05", "0.00", "0.20"],
    ]
    assert list(drawn.y) == ["sums", "facts", "random heads"]
    assert list(drawn.x) == ["sums<br>(correct 0.90)", "more sums<br>(correct 0.80)", "facts<br>(logprob −0.50)"]
    assert boxes(figure) == [(-0.5, 0.5, -0.5, 0.5), (1.5, 2.5, 0.5, 1.5)], "a capability's own heads"
    assert (drawn.zmin, drawn.zmax, drawn.zmid) == (-1, 1, 0), "one cell is a gain"
    assert figure.layout.yaxis.autorange == "reversed"


def test_without_random_heads_there_is_no_row_for_them() -> None:
    drawn = made(draws=0, tasks=("sums",)).plot().data[0]
    assert list(drawn.y) == ["sums", "facts"]
    assert np.shape(drawn.z) == (2, 1)


def test_another_column_is_drawn_alone(found: Generality) -> None:
    figure = found.plot("beyond_random", title="mine")
    drawn = figure.data[0]
    beyond = np.array([[0.45, 0.4, -0.1], [-0.05, -0.1, 1.8]])
    np.testing.assert_allclose(drawn.z, beyond / [0.45, 0.4, 1.8], atol=1e-9)
    assert list(drawn.y) == ["sums", "facts"], "random heads are taken off already"
    assert "beyond_random" in drawn.hovertemplate
    assert figure.layout.title.text == "mine"
    with pytest.raises(ValueError, match="no column 'loss'"):
        found.plot("loss")
    with pytest.raises(ValueError, match=r"column 'metric' is not numeric. Choose .* 'damage'"):
        found.plot("metric")


def test_a_task_that_nothing_changes_is_white(monkeypatch: pytest.MonkeyPatch) -> None:
    for row in COST:
        monkeypatch.setitem(COST, row, {**COST[row], "facts": 0.0})
    drawn = made(tasks=("sums", "facts")).plot().data[0]
    np.testing.assert_allclose(drawn.z, [[1, 0], [0, 0], [0.1, 0]], atol=1e-9)
