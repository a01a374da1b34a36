"""Transfer matrices with known contents."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from lens_heads.evidence.transfer_cells import NONE, RANDOM
from lens_heads.evidence.transfer_results import TransferMatrix


def row(source: str, target: str, k: int, item: str, value: float, draw: int = 0) -> dict[str, Any]:
    return {"method": source, "task": target, "k": k, "draw": draw, "trial": item, "correct": float(value)}


def worked() -> TransferMatrix:
    """Two tasks of two items, a third of one source less, one k, two random draws: every number is in the tests."""
    right = {  # target: cell: which of its items are right
        "a": {NONE: (1, 1), "a": (0, 0), "b": (1, 0), (RANDOM, 0): (1, 1), (RANDOM, 1): (1, 0)},
        "b": {NONE: (1, 0), "a": (1, 0), "b": (0, 0), (RANDOM, 0): (0, 0), (RANDOM, 1): (1, 0)},
        "c": {NONE: (1, 1), "a": (0, 1), "b": (1, 1), (RANDOM, 0): (1, 1), (RANDOM, 1): (1, 1)},
    }
    rows = []
    for target, cells in right.items():
        for cell, values in cells.items():
            source, draw = cell if isinstance(cell, tuple) else (cell, 0)
            rows += [row(source, target, 8 * (source != NONE), f"i{i}", v, draw) for i, v in enumerate(values)]
    return TransferMatrix(per_trial=pd.DataFrame(rows), meta={"model": "worked"})


def planted(
    seed: int,
    fragile: dict[str, float],
    ks: tuple[int, ...] = (4, 8, 16),
    items: int = 40,
    draws: int = 2,
    shared: float = 0.0,
    ids: str = "i",
) -> TransferMatrix:
    """Items that are right with probability 0.9, less (0.2 + fragile[target]) * log2(k) / 4 whoever's heads are ablated.

    An item is right where a threshold of its own lies below the probability, so that its cells are paired; `shared` blurs it.
    """
    rng, rows = np.random.default_rng(seed), []
    for target, weak in fragile.items():
        threshold = rng.random(items)
        cells = [(NONE, 0, 0)] + [(source, 0, k) for source in fragile for k in ks]
        for source, draw, k in cells + [(RANDOM, draw, k) for draw in range(draws) for k in ks]:
            harm = (0.2 + weak) * np.log2(k) / 4 if k else 0.0
            p = 0.9 - (0.1 * harm if source == RANDOM else harm) - 0.1 * (source == target)
            value = threshold + shared * rng.normal(size=items) < p
            rows += [row(source, target, k, f"{ids}{i:03}", v, draw) for i, v in enumerate(value)]
    return TransferMatrix(per_trial=pd.DataFrame(rows), meta={"model": f"planted-{seed}"})


def counted(matrix: TransferMatrix) -> TransferMatrix:
    """The same matrix, its items forgotten."""
    keys = ["method", "task", "k", "draw"]
    table = matrix._table.groupby(keys, sort=False)["correct"].agg(attempts="size", matches="sum").reset_index()
    return TransferMatrix(counts=table.astype({"matches": int}), meta=matrix.meta)
