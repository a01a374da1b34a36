"""The claims of the study of fragile tasks, on numbers planted in matrices and tables."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest

import lens_heads as lh
from lens_heads.evidence.curve_results import AblationCurve
from lens_heads.evidence.transfer_cells import NONE, RANDOM
from lens_heads.stats import Interval, wilson
from lens_heads.studies.claims import DOES_NOT, HOLDS, UNTOLD
from lens_heads.studies.fragile_paper.claims import (
    PRESETS,
    TASKS,
    claims_of_model,
    claims_of_pair,
)
from lens_heads.studies.fragile_paper.sources import (
    ALL,
    FORMATS,
    OTHERS,
    OWN,
    Gap,
    over_orders,
    related_gap,
    relation,
    sources,
    weights,
)
from lens_heads.studies.fragile_paper.stages import JUDGED, _disruptivity_beyond_random
from lens_heads.studies.fragile_paper.study import FragileStudy

PLAN = PRESETS["packaged"]


def matrix(drops: np.ndarray, noise: float = 0.0, items: int = 6, tasks: tuple[str, ...] = TASKS) -> Any:
    """A matrix with these drops [source, target] at k = 64, and random heads that cost 0.5 in the first draw, 1 in the second."""
    rng, rows = np.random.default_rng(0), []
    for place, target in enumerate(tasks):
        for item in range(items):
            base = rng.normal()
            costs = {(source, 0): drops[at, place] + noise * rng.normal() for at, source in enumerate(tasks)}
            costs |= {(RANDOM, draw): 0.5 * (draw + 1) for draw in range(2)}
            about = {"task": target, "trial": f"{target}-{item}"}
            rows.append({**about, "method": NONE, "draw": 0, "k": 0, "logprob": base})
            rows += [
                {**about, "method": source, "draw": draw, "k": 64, "logprob": base - cost}
                for (source, draw), cost in costs.items()
            ]
    return lh.evidence.TransferMatrix(per_trial=pd.DataFrame(rows), metric="logprob")


def effects(seed: int, tasks: int) -> np.ndarray:
    """Disruptive sources and fragile targets, and what is left by chance."""
    rng = np.random.default_rng(seed)
    return 2 * rng.normal(size=(tasks, 1)) + 3 * rng.normal(size=tasks) + rng.normal(size=(tasks, tasks))


def test_related_tasks_share_an_answer_format_or_a_subject() -> None:
    pairs = {frozenset((TASKS[a], TASKS[b])) for a, b in zip(*np.nonzero(relation(TASKS)), strict=True)}
    places = [task for task in TASKS if FORMATS[task] == "place"]
    assert len(pairs) == 3 + 3 + 1 + 1  # Three places, three numbers, two names, and one subject across formats.
    assert {frozenset(("incorporation_state", "incorporation_year"))} <= pairs
    assert {frozenset((a, b)) for a in places for b in places if a != b} <= pairs
    assert set(FORMATS) == set(TASKS)


def test_the_gap_is_that_of_a_regression_with_an_effect_of_every_task() -> None:
    drops = effects(1, 8) + 0.7 * relation(TASKS)
    found = related_gap(matrix(drops, noise=0.1), 64)
    means = matrix(drops, noise=0.1).drop().loc[64].to_numpy()
    rows, target = [], []
    for s in range(8):
        for t in range(8):
            if s != t:
                row = np.zeros(17)
                row[[s, 8 + t]], row[16] = 1, relation(TASKS)[s, t]
                rows.append(row)
                target.append(means[s, t])
    expected = np.linalg.lstsq(np.array(rows), np.array(target), rcond=None)[0][16]
    assert found.gap.value == pytest.approx(expected)
    assert found.gap.low < expected < found.gap.high
    assert found.items == 48


def test_effects_of_tasks_alone_leave_no_gap_and_own_heads_do_not_count() -> None:
    additive = np.arange(8.0)[:, None] + np.arange(8) ** 2 + 100.0 * np.eye(8)
    assert related_gap(matrix(additive), 64).gap.value == pytest.approx(0, abs=1e-9)
    assert related_gap(matrix(additive + 2 * relation(TASKS)), 64).gap.value == pytest.approx(2)


def test_p_over_orders_of_the_tasks_holds_its_level_and_sees_a_planted_relation() -> None:
    tasks = [task for task in TASKS if task not in ("registrant_name", "ceo_lastname")]
    found = weights(relation(tasks))
    assert found is not None
    null = [over_orders(effects(seed, 6), found) for seed in range(600)]
    assert np.mean(np.array(null) <= 0.05) <= 0.06
    planted = [over_orders(effects(seed, 6) + 4.0 * relation(tasks), found) for seed in range(100)]
    assert np.mean(np.array(planted) <= 0.05) > 0.7


def test_without_unrelated_tasks_there_is_no_gap() -> None:
    two = ("headquarters_city", "headquarters_state")
    found = related_gap(matrix(np.eye(2), tasks=two), 64)
    assert math.isnan(found.gap.value)
    assert math.isnan(found.p)


def able(right: float) -> pd.DataFrame:
    """The share of right answers without ablation, of 40 trials, as a model's table."""
    _, low, high = wilson(right, 40)
    return pd.DataFrame([{"task": ALL, "value": right, "low": low, "high": high, "trials": 40}])


def frames(
    beyond: float, specificity: float, recovered: float, own: float = 1.0, p: float = 1 / 41
) -> dict[str, pd.DataFrame]:
    """A model's tables, with these numbers and intervals of 0.1 to either side."""

    def around(value: float, name: str = "value") -> dict[str, float]:
        low, high = ("low", "high") if name in ("value", "difference") else (f"{name}_low", f"{name}_high")
        return {name: value, low: value - 0.1, high: value + 0.1}

    sources = [
        {"source": source, "task": ALL, "random_trials": 20, "p": p, **around(value, "beyond")}
        for source, value in ((OTHERS, beyond), (OWN, own))
    ]
    about = {"task": ALL, "statistic": "specificity", "metric": "logprob", "k": 64}
    restored = {"set": "random", "of": "recovery", "k": 64, "examples": 24, **around(recovered, "difference")}
    return {
        "sources": pd.DataFrame(sources),
        "answered": able(0.5),
        "statistics": pd.DataFrame([{**about, **around(specificity)}]),
        "recovery_differences": pd.DataFrame([restored]),
    }


def verdicts(found: dict[str, pd.DataFrame], gap: float = 0.0, p: float = 0.5) -> dict[str, str]:
    one = Gap(Interval(gap, gap - 0.1, gap + 0.1), p, 40)
    table = claims_of_model("tiny", PLAN, found, one, 64)
    return dict(zip(table["id"], table["verdict"], strict=True))


def test_claims_on_one_model_follow_their_thresholds() -> None:
    assert set(verdicts(frames(1.0, 0.0, 0.6), 0.5, 0.01).values()) == {HOLDS}
    assert set(verdicts(frames(-0.2, 0.5, 0.1), -0.5, 0.99).values()) == {DOES_NOT}
    assert set(verdicts(frames(0.05, 0.2, 0.3), 0.05, 0.01).values()) == {UNTOLD}
    assert verdicts(frames(1, 0, 1), gap=0.5, p=0.06)["related"] == UNTOLD
    common = verdicts(frames(1.0, 0.0, 0.6, p=3 / 41), 0.5, 0.01)
    assert common == {"transfer": UNTOLD, "interchangeable": UNTOLD, "related": HOLDS, "recovery": UNTOLD}


def test_nothing_holds_in_a_model_that_hardly_answers() -> None:
    """Heads that suggest the kind of answer cost log-probability also where no prompt holds the answer."""
    for right, words in ((0.5, {HOLDS}), (0.15, {UNTOLD}), (0.0, {UNTOLD})):
        found = frames(1.0, 0.0, 0.6) | {"answered": able(right)}
        assert set(verdicts(found, 0.5, 0.01).values()) == words
    table = claims_of_model("tiny", PLAN, found, Gap(Interval(0, -1, 1), 0.5, 40), 64)
    assert table["found"].str.contains("; tiny answers 0% of the trials without ablation").all()


def test_heads_that_cost_nothing_are_not_called_interchangeable_or_restored() -> None:
    idle = verdicts(frames(0.0, 0.0, 0.6, own=0.05))
    assert idle["interchangeable"] == idle["recovery"] == UNTOLD
    table = claims_of_model("tiny", PLAN, frames(0.0, 0.0, 0.6, own=0.05), Gap(Interval(0, -1, 1), 0.5, 40), 64)
    said = table.set_index("id").loc["recovery", "found"]
    assert said == "0.6; own heads 0.05 [-0.05, 0.15] nats beyond random ones, p 0.024"


def test_a_margin_is_no_more_than_a_quarter_of_the_effect() -> None:
    """Own heads that cost 1 nat may cost 0.2 more than they cost others, but not heads that cost 0.4."""
    words = {own: verdicts(frames(0.05, 0.1, 0.6, own=own))["interchangeable"] for own in (1.0, 0.4)}
    assert words == {1.0: HOLDS, 0.4: UNTOLD}


def test_a_claim_that_cannot_be_told_says_how_many_trials_would_have_told() -> None:
    table = claims_of_model("tiny", PLAN, frames(0.05, 0.0, 0.6), Gap(Interval(0, -1, 1), 0.5, 40), 64).set_index("id")
    assert table.loc["transfer", "would_tell"] == 80  # Twice the distance takes four times the trials.
    assert table.loc["transfer", "found"] == "0.05; about 80 to 320 trials and 160 to 640 random sets would tell"
    assert math.isnan(table.loc["interchangeable", "would_tell"])
    assert table.loc["transfer", "n"] == "20 trials"
    lacking = {**frames(1, 0, 1), "recovery_differences": pd.DataFrame({"k": [], "set": [], "of": []})}
    assert verdicts(lacking)["recovery"] == UNTOLD


def lead_at_random(seed: int, tasks: tuple[str, ...] = TASKS[:2]) -> tuple[Any, AblationCurve]:
    """A matrix and a curve in which the lead of every task is one set of random heads, a draw like the others.

    Sets differ in what they cost (1 nat); trials hardly matter (0.3 nats): the lead's luck is the same in all of them.
    """
    rng = np.random.default_rng(seed)
    costs = {"lead": rng.normal(), **{draw: rng.normal() for draw in range(40)}}
    rows, drawn = [], []
    for task in tasks:
        for item in (f"{task}-{item}" for item in range(10)):
            cost = {name: each + 0.3 * rng.normal() for name, each in costs.items()} | {"none": 0.0}
            about = {"task": task, "trial": item, "draw": 0}
            rows += [{**about, "method": source, "k": 64, "logprob": -cost["lead"]} for source in tasks]
            rows.append({**about, "method": NONE, "k": 0, "logprob": 0.0})
            for name, each in cost.items():
                condition = {"none": ("none", "none", 0), "lead": (ALL, "top", 4)}.get(name, ("any", "random", 4))
                about_draw = {"task": ALL, "trial": item, "draw": name if isinstance(name, int) else 0, "heads": ""}
                drawn.append(
                    {**about_draw, **dict(zip(("method", "set", "k"), condition, strict=True)), "logprob": -each}
                )
    found = lh.evidence.TransferMatrix(per_trial=pd.DataFrame(rows), metric="logprob")
    return found, AblationCurve(pd.DataFrame(drawn), {})


@pytest.mark.slow
def test_random_heads_as_a_lead_transfer_no_more_often_than_their_level() -> None:
    """The interval alone is of these heads, lucky or not; the rank among random sets asks whether they are lucky."""
    held, above = 0, 0
    for seed in range(60):
        table = sources(*lead_at_random(seed), 64)
        other = {**frames(0.0, 0.0, 0.6), "sources": table}
        found = claims_of_model("tiny", PLAN, other, Gap(Interval(0, -1, 1), 0.5, 20), 64).set_index("id")["verdict"]
        held += (found == HOLDS).any()
        above += (table[(table["source"] == OTHERS) & (table["task"] == ALL)]["beyond_low"] > 0).all()
    assert held <= 5
    assert above > 12


def correlated(x: np.ndarray, y: np.ndarray, right: float = 0.5) -> pd.DataFrame:
    """The claims on two models with these fragilities (and disruptivities) per task, at one k."""
    a, b = (pd.DataFrame([values], [64], pd.Index(TASKS)) for values in (x, y))
    found = {f"logprob: {name}": lh.evidence.correlate(a, b, statistic=name, strata=FORMATS) for name in JUDGED}
    return claims_of_pair(("a", "b"), PLAN, found, (able(0.5), able(right))).set_index("id")


def test_the_verdict_on_a_pair_is_that_inside_answer_formats() -> None:
    level = {"name": 0.0, "place": 5.0, "number": 10.0}
    formats = np.array([level[FORMATS[task]] for task in TASKS])
    noise = np.random.default_rng(3).normal(size=(2, 8)) / 10
    alike = correlated(*(formats + noise))
    assert alike.loc["fragility", "verdict"] == alike.loc["disruptivity", "verdict"] == UNTOLD
    same = correlated(formats + noise[0], formats + noise[0])
    assert same.loc["fragility", "verdict"] == HOLDS
    assert same.loc["disruptivity", "verdict"] == DOES_NOT
    idle = correlated(formats + noise[0], formats + noise[0], right=0.0)
    assert set(idle["verdict"]) == {UNTOLD}
    assert idle["found"].str.endswith("; b answers 0% of the trials without ablation").all()
    assert same.loc["fragility", "value"] == pytest.approx(1)
    assert same.loc["fragility", "p"] == pytest.approx(1 / 72)
    opposed = correlated(formats + noise[0], formats - noise[0])
    assert opposed.loc["fragility", "value"] == pytest.approx(-1)
    assert set(opposed["verdict"]) == {UNTOLD}
    assert set(claims_of_pair(("a", "b"), PLAN, {}, (able(0.5), able(0.5)))["verdict"]) == {UNTOLD}


def test_disruptivity_beyond_random_is_less_by_what_random_heads_cost_the_other_tasks() -> None:
    drops = effects(5, 8)
    found = matrix(drops, items=2)
    rows = found.per_trial
    assert rows is not None
    fragile = rows["task"].map(dict(zip(TASKS, range(8), strict=True))) * (rows["method"] == RANDOM)
    changed = replace(found, per_trial=rows.assign(logprob=rows["logprob"] - fragile))
    table = _disruptivity_beyond_random(changed)
    for s, task in enumerate(TASKS):
        others = [t for t in range(8) if t != s]
        expected = np.mean([drops[s, t] for t in others]) - np.mean([0.75 + t for t in others])
        assert table.loc[64, task] == pytest.approx(expected)


def test_claims_are_registered_with_the_numbers_of_the_preset() -> None:
    table = FragileStudy(PLAN, "own").registered().set_index("id")
    assert list(table.index) == ["transfer", "interchangeable", "related", "recovery", "fragility", "disruptivity"]
    assert not table.map(lambda value: isinstance(value, str) and ("{" in value or "}" in value)).any(axis=None)
    assert table.loc["transfer", "n"] == "20 trials of all tasks, 40 random sets"
    assert table.loc["transfer", "k"] == "headline_k: 64 of 1,024 heads"
    assert table.loc["fragility", "k"] == "ks: 32, 64 of 1,024 heads"
    assert (
        FragileStudy(replace(PLAN, relative_k=False), "own").registered().set_index("id").loc["fragility", "k"]
        == "ks: 32, 64 heads"
    )
    judged = claims_of_model("tiny", PLAN, frames(1, 0, 1), Gap(Interval(0, -1, 1), 0.5, 40), 64).set_index("id")
    assert (judged["holds_if"] == table["holds_if"].iloc[:4]).all()
    assert (judged["k"] == table["k"].iloc[:4]).all()
