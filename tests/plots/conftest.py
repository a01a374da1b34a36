"""One set of scores and one ablation study for all figures."""

from __future__ import annotations

import pandas as pd
import pytest

from lens_heads.evidence.curve_results import AblationCurve
from lens_heads.heads.scores import HeadScores
from tests.plots.drawn import make, observed

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
    rows = [
        observed(condition, task, i, {"contains": float(i < right), "logprob": -1.0 - i})
        for task in ("retrieval", "parametric")
        for condition, right in RIGHT.items()
        for i in range(10)
    ]
    return AblationCurve(pd.DataFrame(rows), {"rankings": ["locos", "copy"]})


@pytest.fixture
def scores() -> HeadScores:
    return make([[0.5, -1.0, 0.0, 0.25], [4.0, 0.125, 2.0, -0.5], [1.0, 3.0, -3.0, 0.75]])
