"""Tables for the terminal: what stands in the cells, and what does not where it would mean nothing."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pandas as pd
import pytest
import torch
from rich.table import Table

from lens_heads.heads.conditions import Condition
from lens_heads.heads.scores import HeadScores
from lens_heads.ranking.one_pass.scorers import SCORERS
from lens_heads.report import tables
from tests import curves


def rows(table: Table) -> list[list[str]]:
    return [list(row) for row in zip(*(list(column.cells) for column in table.columns), strict=True)]  # type: ignore[arg-type]


def scored(method: str = "locos", trials: int = 12, **meta: Any) -> HeadScores:
    """Two layers of two heads, falling from L0H0 to L1H1."""
    noise = torch.rand(trials, 2, 2, generator=torch.Generator().manual_seed(0)) / 10
    per_trial = torch.tensor([[4.0, 3.0], [2.0, 1.0]]) + noise
    return HeadScores.from_trials(method, per_trial, [str(i) for i in range(trials)], **meta)


@pytest.mark.parametrize(("k", "shown"), [(-3, 1), (0, 1), (1, 1), (4, 4), (1000, 4)])
def test_the_number_of_heads_is_cut_to_those_there_are(k: int, shown: int) -> None:
    table = tables.top_heads({"locos": scored()}, k)
    assert str(table.columns[2].header).startswith(f"top {shown} heads")
    assert [f"L{i // 2}H{i % 2} " in rows(table)[0][2] for i in range(4)] == [i < shown for i in range(4)]


@pytest.mark.parametrize(
    ("top", "bottom", "ranks"),
    [(2, 0, "12"), (0, 0, "1"), (-1, -1, "1"), (0, 1, "4"), (99, 0, "1234"), (1, 99, "1234"), (3, 2, "1234")],
)
def test_a_ranking_shows_every_head_at_most_once(top: int, bottom: int, ranks: str) -> None:
    assert [row[0] for row in rows(tables.ranking(scored(), top, bottom))] == list(ranks)


def test_an_interval_is_shown_for_several_trials_only() -> None:
    many, one = (rows(tables.top_heads({"locos": scored(trials=n)}, 1))[0] for n in (12, 1))
    _, low, high = scored().interval()
    assert many[2] == f"L0H0 {scored()[0, 0]:.3g} [{low[0, 0]:.3g}, {high[0, 0]:.3g}]"
    assert one[2] == f"L0H0 {scored(trials=1)[0, 0]:.3g} –"
    assert one[4] == "–"  # Nor has one trial two halves.
    assert [row[3] for row in rows(tables.ranking(scored(trials=1), 2, 0))] == ["–", "–"]
    assert "–" not in rows(tables.ranking(scored(), 1, 0))[0][3]


@pytest.mark.parametrize("trials", [1, 4, 5])
def test_a_curve_of_few_trials_has_no_intervals(trials: int) -> None:
    seen = [
        curves.row(Condition(method, set_, k), "retrieval", str(i), {"logprob": -1.0 - k - i / 10})
        for method, set_, k in (("none", "none", 0), ("locos", "top", 1))
        for i in range(trials)
    ]
    table = tables.curve(curves.curve_of(seen))
    assert ("–" in rows(table)[0][1]) is (trials < 5)
    assert str(table.title).endswith("–, 1 trial" if trials == 1 else f", {trials} trials")


def test_a_curve_has_dashes_where_nothing_was_measured() -> None:
    measured = (("none", "none", 0), ("locos", "top", 1), ("locos", "top", 5), ("other", "top", 5))
    seen = [
        curves.row(Condition(*about), "retrieval", str(i), {"logprob": -1.0 - i})
        for about in measured
        for i in range(2)
    ]
    assert [row[1] == "–" for row in rows(tables.curve(curves.curve_of(seen)))] == [False, True]


@pytest.mark.parametrize(
    ("method", "meta", "tested"),
    [
        ("locos", {"signed": True}, True),
        ("copy", {"signed": False}, False),
        ("copy", {}, False),  # None of the scores is negative.
        ("copy", {"signed": True}, True),
        ("my own", {"signed": True}, True),
        ("my own", {"signed": False}, False),
    ],
)
def test_heads_above_zero_are_counted_for_signed_methods_only(
    method: str, meta: dict[str, Any], tested: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def significant(scores: HeadScores) -> torch.Tensor:
        assert tested, "no sign-flip test where scores cannot be negative"
        return torch.ones(2, 2, dtype=torch.bool)

    monkeypatch.setattr(HeadScores, "significant", significant)
    table = tables.top_heads({"shown as": scored(method, **meta)}, 1)
    assert rows(table)[0][3] == ("4 of 4" if tested else "–")


def test_the_methods_that_cannot_be_negative_are_known() -> None:
    assert "signed" in {field.name for field in dataclasses.fields(next(iter(SCORERS.values())))}
    unsigned = {"attention_mass", "attention_mass_no_sink", "copy", "contrastive", "headkv"}
    assert {name for name, scorer in SCORERS.items() if not scorer.signed} == unsigned


def test_localized_heads_have_intervals_over_masks() -> None:
    heads = [
        {"head": "L0H1", "coefficient": -2.0, "low": -3.0, "high": -1.0, "stability": 0.9},
        {"head": "L1H0", "coefficient": -1.0, "low": None, "high": None, "stability": 0.25},
    ]
    values = torch.tensor([[0.0, -2.0], [-1.0, 0.5]])
    about: dict[str, Any] = {"best": "lowest", "selected": True}
    scores = HeadScores.from_trials("css", values.expand(3, 2, 2), list("abc"), fit={"heads": heads}, **about)
    table = tables.ranking(scores, 3, 0)
    assert [column.header for column in table.columns][3:] == ["95 % over masks", "stability"]
    assert rows(table) == [
        ["1", "L0H1", "-2", "[-3, -1]", "0.90"],
        ["2", "L1H0", "-1", "–", "0.25"],
        ["3", "L0H0", "0", "–", "–"],
    ]
    assert rows(tables.top_heads({"css": scores}))[0][3:] == ["–", "–"], "no test of heads on what chose them"


def test_claims_show_number_interval_and_verdict() -> None:
    rows_of_claims = [
        {"claim": "A", "paper": "0.4", "found": "0.5 → 0", "value": 1.0, "low": 0.5, "high": 1.0, "verdict": "holds"},
        {
            "claim": "B",
            "paper": "0.6",
            "found": "none",
            "value": math.nan,
            "low": 0,
            "high": 0,
            "verdict": "cannot be told",
        },
        {
            "claim": "C",
            "paper": "yes",
            "found": "2",
            "value": 2.0,
            "low": math.nan,
            "high": math.nan,
            "verdict": "holds",
        },
    ]
    shown = rows(tables.claims(pd.DataFrame(rows_of_claims).assign(holds_if="so"), "Claims"))
    assert shown == [
        ["A", "0.4", "0.5 → 0", "1.00 [0.50, 1.00]: so", "holds"],
        ["B", "0.6", "none", "–: so", "cannot be told"],
        ["C", "yes", "2", "2.00: so", "holds"],
    ]
