"""Groups of trials as columns of a table and as labels for intervals."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from lens_heads.heads.grouping import groups_in, groups_of, labels


@dataclass(frozen=True)
class Grouped:
    group: str | tuple[str, ...] = ""


def test_a_trial_fills_two_columns() -> None:
    assert labels(Grouped()) == {"group": "", "group_2": ""}
    assert labels(Grouped("needle")) == {"group": "needle", "group_2": ""}
    assert labels(Grouped(("needle", "name"))) == {"group": "needle", "group_2": "name"}


def test_kinds_of_group_without_any_name_are_left_out() -> None:
    assert groups_of([]) == groups_of([Grouped(), Grouped()]) == ()
    assert groups_of([Grouped("a"), Grouped()]) == (("a", ""),)
    assert groups_of([Grouped(("a", "x")), Grouped("b")]) == (("a", "b"), ("x", ""))


def test_labels_of_a_table_are_in_the_order_of_the_trials() -> None:
    rows = pd.DataFrame([{"item": id, **labels(Grouped((id.upper(), "x")))} for id in "abcab"])
    assert groups_in(rows, ["c", "a"], "item") == (("C", "A"), ("x", "x"))
    assert groups_in(rows.assign(group_2=None), ["b"], "item") == (("B",),)
    assert groups_in(rows[["item"]], ["c", "a"], "item") == ()
