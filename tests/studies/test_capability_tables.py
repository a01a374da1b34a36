"""Costs and rankings of the capability study as tables: parity with formulas, on numbers that are known."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from lens_heads.compare.universal import Universal
from lens_heads.evidence.curve_results import AblationCurve
from lens_heads.heads.conditions import Condition
from lens_heads.heads.head import Head
from lens_heads.heads.scores import HeadScores
from lens_heads.stats import crossed_interval, sum_interval
from lens_heads.studies.capability_paper import damage, study
from lens_heads.studies.capability_paper.study import Asked, CapabilitySetup
from tests import zoo
from tests.studies.test_capability import TINY

Values = Mapping[tuple[str, str], np.ndarray]
"""By method and task: [draw, trial]; the method "none" is no ablation, a head that head alone, any other a top two."""
HERE, THERE = Condition.top("a", 2), Condition.top("b", 2)


def curve_of(values: Values, metric: str = "logprob") -> AblationCurve:
    rows: list[dict[str, Any]] = []
    for (method, task), table in values.items():
        alone = Condition.given(method, 1) if method.startswith("L") else Condition.top(method, 2)
        row = {**asdict(Condition.none() if method == "none" else alone), "task": task}
        for draw, trials in enumerate(table):
            rows += [{**row, "draw": draw, "trial": f"t{i:02}", metric: float(v)} for i, v in enumerate(trials)]
    return AblationCurve(pd.DataFrame(rows), {})


@pytest.fixture(scope="module")
def values() -> Values:
    """Two sets of heads on two tasks with other numbers of trials; set b has a draw more than a."""
    generator = np.random.default_rng(0)
    found = {}
    for task, trials in (("x", 7), ("y", 12)):
        found["none", task] = generator.normal(0, 1, (1, trials))
        found["a", task] = found["none", task] - generator.normal(1, 1, (5, trials))
        found["b", task] = found["none", task] - generator.normal(0.5, 1, (6, trials))
    return found


def test_a_mean_over_tasks_is_a_sum_of_crossed_tables(values: Values) -> None:
    curve, metrics = curve_of(values), {"x": "logprob", "y": "logprob"}
    costs = {key: torch.tensor(values["none", key[1]] - table) for key, table in values.items()}
    for task in "xy":
        alone = crossed_interval(costs["a", task])
        assert damage.mean_cost(curve, {task: [HERE]}, metrics) == pytest.approx(alone)
        assert curve.difference(damage.BEFORE, HERE, "logprob", task=task) == pytest.approx(alone)
    both = sum_interval([costs["a", "x"] / 2, costs["a", "y"] / 2], [None, None])
    assert damage.mean_cost(curve, {"x": [HERE], "y": [HERE]}, metrics) == pytest.approx(both)
    assert both.value == pytest.approx(float(costs["a", "x"].mean() + costs["a", "y"].mean()) / 2)
    pair = crossed_interval((costs["a", "x"] + costs["b", "x"][:5]) / 2)  # The sixth draw of b has no partner.
    assert damage.mean_cost(curve, {"x": [HERE, THERE]}, metrics) == pytest.approx(pair)
    gap = crossed_interval(costs["a", "y"] - costs["b", "y"][:5])
    assert damage.gap(curve, HERE, [THERE], "logprob", "y") == pytest.approx(gap)
    given = crossed_interval(costs["a", "y"].mean(0)[None])
    assert damage.within_heads(curve, HERE, "logprob", "y") == pytest.approx(given)
    assert np.isnan(damage.mean_cost(curve, {}, metrics).value)


def test_right_answers_that_never_change_still_have_an_interval() -> None:
    right = {("none", task): np.ones((1, 10)) for task in "xy"} | {("a", task): np.ones((5, 10)) for task in "xy"}
    found = damage.mean_cost(curve_of(right, "correct"), {"x": [HERE], "y": [HERE]}, {"x": "correct", "y": "correct"})
    assert found.value == 0
    assert found.low < -0.1 < 0.1 < found.high


@pytest.mark.parametrize(("chance", "share"), [(0.0, 1 / 3), (0.25, 0.5), (0.65, None)])
def test_the_share_lost_is_counted_from_chance_on(chance: float, share: float | None) -> None:
    """.75 of right answers fall to .50; of .75 not all is surely above a chance of .65."""
    before, after = np.arange(40) < 30, np.arange(40) < 20
    curve = curve_of({("none", "x"): before[None], ("a", "x"): np.stack([after] * 5)}, "choice")
    found = damage.lost(curve, HERE, "choice", "x", chance)
    if share is None:
        assert np.isnan(found.value)
    else:
        assert found.value == pytest.approx(share)
        assert found.low < share - 0.1 < share + 0.1 < found.high
    wiped = curve_of({("none", "x"): before[None], ("a", "x"): np.zeros((5, 40))}, "choice")
    assert 0.8 < damage.lost(wiped, HERE, "choice", "x", 0.0).low < 1, "thirty do not show that all are lost"


def scores(*heads: str, worst: float = -1.0) -> HeadScores:
    """Scores whose best heads are these, in this order."""
    values = torch.zeros(1, 3, 4)
    for place, head in enumerate(map(Head.parse, heads)):
        values[0, head.layer, head.head] = worst / (place + 1)
    return HeadScores.from_trials("css", values, ["t"], best="lowest")


def test_costs_together_and_apart_have_intervals_over_draws_of_masks() -> None:
    """Five draws find five pairs of four heads; the excess is paired by draw and trial."""
    from benchmarks.sections.writing import of

    pairs = [("L0H0", "L0H1"), ("L0H0", "L1H1"), ("L0H1", "L1H1"), ("L2H1", "L0H0"), ("L1H1", "L2H1")]
    generator = np.random.default_rng(1)
    whole = generator.normal(2, 1, (5, 8))
    alone = {head: generator.normal(0.5, 1, (1, 8)) for head in ("L0H0", "L0H1", "L1H1", "L2H1")}
    costs = {"x": whole, **alone}
    curve = curve_of({("none", "x"): np.zeros((1, 8))} | {(name, "x"): -table for name, table in costs.items()})
    found = {"x": [scores(*pair) for pair in pairs]}
    added = damage.additivity(curve, replace(TINY, k=2), {"x": "logprob"}, found)
    row = {str(column): value for column, value in added.iloc[0].items()}
    assert len(added) == 1
    apart = np.stack([alone[one][0] + alone[other][0] for one, other in pairs])
    for name, lost in (("together", whole), ("each_alone", apart), ("excess", whole - apart)):
        value, low, high = crossed_interval(torch.tensor(lost))
        assert [row[name], row[f"{name}_low"], row[f"{name}_high"]] == pytest.approx([value, low, high])
        assert of(row, name, name) == f"{value:.2f} [{low:.2f}, {high:.2f}]"


def test_draws_of_masks_agree_as_far_as_their_heads_do() -> None:
    """One of three heads shared makes a Jaccard of a third; two heads of twelve share any by chance."""
    found = {"x": [scores("L0H0", "L0H1"), scores("L0H0", "L1H1")], "y": [scores("L2H0", "L2H1")]}
    table = damage.agreement(found, 2).set_index(["a", "b"])
    assert list(table.index) == [("x", "x"), ("x", "y")], "one draw agrees with nothing"
    assert table.loc[("x", "x"), "jaccard"] == pytest.approx(1 / 3)
    assert table.loc[("x", "y"), "jaccard"] == 0
    chance = (2 * 10 * 2 / (12 * 11)) / 3 + 2 / (12 * 11)
    assert table["expected_jaccard"].to_list() == pytest.approx([chance] * 2)
    best = damage.best_heads(found, 2).query("capability == 'x'").set_index("head")
    assert best["draws"].to_dict() == {"L0H0": 2, "L0H1": 1, "L1H1": 1}
    assert best.loc["L0H0", ["coefficient", "mean_rank"]].to_list() == [-1, 1]
    assert damage.shared({**found, "z": [scores("L2H1", "L1H0")]}, 2, most=2) == {
        Head(2, 1): [("y", 0), ("z", 0)],
        Head(0, 0): [("x", 0), ("x", 1)],
    }
    plan = replace(TINY, at_least=2)
    assert damage.universal(found, ["x"], plan) is None
    assert damage.pooled(found["x"]).ranking()[0] == Head(0, 0), "in both draws"
    with_x = {**found, "z": [scores("L2H1", "L1H0"), scores("L0H0", "L1H0")]}
    shared = damage.universal(with_x, ["x", "y", "z"], replace(plan, at_least=2))
    assert shared is not None
    assert shared.heads[0] == Head(0, 0), "z has it in one of two draws"


def test_by_luck_is_a_share_of_random_sets() -> None:
    """Two tasks of one head among four: they have it in common in a quarter of all draws."""
    head = Head(0, 0)
    found = Universal([head], {head: ("a", "b")}, k=1, at_least=2, n_tasks=2, n_heads=4, expected=0.25)
    assert damage.by_luck(found) == pytest.approx(0.25, abs=0.03)
    assert damage.by_luck(replace(found, heads=[])) == 1
    assert damage.by_luck(replace(found, heads=[head, Head(0, 1)])) == pytest.approx(1 / 2001)


@pytest.mark.slow
def test_a_capability_stops_at_the_wanted_precision(tmp_path: Any) -> None:
    """The first block of twenty trials is enough for a wide interval; a narrow one takes them all."""
    model, found = zoo.bridge("qwen3", n_ctx=2048), {"induction": [scores("L0H0", "L0H1"), scores("L0H0", "L1H1")]}
    small = replace(TINY, capabilities={"induction": TINY.capabilities["induction"]}, compared="induction", n_test=30)
    for precision, trials in ((1e6, 20), (0.0, 30)):
        plan = replace(small, precision=precision)
        bench = CapabilitySetup(model, plan, Asked.of(plan), tmp_path)
        curve = study.harmed(bench, found)
        assert len(curve.values(damage.BEFORE, "logprob", task="induction")) == trials
        assert len(curve.values(Condition.random(2), "logprob", task="induction")) == 5
        assert len(curve.values(Condition.top("induction", 2), "logprob", task="induction, other data")) == 30
