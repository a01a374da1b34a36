"""Labels that numbers come with: arguments are read by place, so two Series in different orders would be paired wrongly."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from torch import Tensor

LABELLED = (pd.Series, pd.DataFrame)


def check_places(arguments: Mapping[str, Any]) -> None:
    """ValueError for tables in different orders, and for one whose labels name what nothing else names.

    Tables cut out of one have row numbers that differ, which name nothing.
    """
    found = {name: value for name, value in arguments.items() if isinstance(value, LABELLED)}
    names = list(found)
    for at, one in enumerate(names):
        for other in names[at + 1 :]:
            _check_same(one, found[one], other, found[other])
    ordered = list | tuple | np.ndarray | Tensor
    beside = [name for name, value in arguments.items() if name not in found and isinstance(value, ordered)]
    if len(found) == 1 and beside and _named(found[names[0]].index):
        label = found[names[0]].index[0]
        raise ValueError(
            f"{names[0]} is indexed by name ({label!r}, ...), which is not read: put it into the order of {beside[0]}, and pass "
            f"{names[0]}.to_numpy()"
        )


def _check_same(one: str, a: Any, other: str, b: Any) -> None:
    axes = [("index", "index")]
    if isinstance(a, pd.DataFrame) and isinstance(b, pd.DataFrame):
        axes.append(("columns", "columns"))
    elif isinstance(a, pd.DataFrame) or isinstance(b, pd.DataFrame):  # A value each for the columns of a table.
        axes = [("columns" if isinstance(each, pd.DataFrame) else "index" for each in (a, b))]  # type: ignore[list-item]
    for mine, theirs in axes:
        first, second = getattr(a, mine), getattr(b, theirs)
        if first.equals(second) or not (_named(first) or _named(second) or set(first) == set(second)):
            continue
        raise ValueError(
            f"{one} and {other} have different {'columns' if mine == theirs == 'columns' else 'indices'}, and are read by place: "
            f"put both into one order (.reindex)"
        )


def _named(labels: pd.Index) -> bool:
    """Whether labels are names: row numbers say nothing."""
    return bool(len(labels)) and not pd.api.types.is_integer_dtype(labels)
