"""The groups of trials, as labels for `stats` and as columns of tables."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Protocol, TypeAlias

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = ("group", "group_2")
"""The columns of a table that hold a trial's groups, the second of which is empty unless two kinds cross."""
Labels: TypeAlias = tuple[tuple[str, ...], ...]
"""One list of labels per kind of group; an empty label is no group, and no list is no groups at all."""


class Grouped(Protocol):
    """A trial of any kind."""

    @property
    def group(self) -> str | tuple[str, ...]: ...


def labels(trial: Grouped) -> dict[str, str]:
    """The trial's groups as columns of a table; empty without."""
    named = (trial.group,) if isinstance(trial.group, str) else trial.group
    return dict(zip(COLUMNS, (*named, "", ""), strict=False))


def named_groups(trial: Grouped) -> list[str]:
    """The trial's groups of every kind, by name; none for a trial without."""
    return [name for name in labels(trial).values() if name]


def groups_of(trials: Iterable[Grouped]) -> Labels:
    """The labels of all trials, without the kinds of group that name none."""
    rows = [labels(trial).values() for trial in trials]
    return tuple(kind for kind in zip(*rows, strict=True) if any(kind))


def groups_in(rows: pd.DataFrame, trials: Iterable[object], column: str) -> Labels:
    """The labels of trials whose ids are in a column of a table, as `groups_of`; () for a table without columns of groups."""
    known = rows.drop_duplicates(column).set_index(column).loc[list(trials)]
    kinds = [tuple(known[name].fillna("").astype(str)) for name in COLUMNS if name in known]
    return tuple(kind for kind in kinds if any(kind))
