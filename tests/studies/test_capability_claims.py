"""The verdict on a claim about capabilities is decided by the whole interval, on ablations whose numbers are known."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from lens_heads.compare.universal import Universal
from lens_heads.evidence.curve_results import AblationCurve
from lens_heads.evidence.verdicts import DOES_NOT, HOLDS, UNTOLD
from lens_heads.heads.head import Head
from lens_heads.studies.capability_paper import damage, study
from lens_heads.studies.capability_paper.claims import CapabilityFinding, claims
from lens_heads.studies.capability_paper.damage import BEFORE, rank
from lens_heads.studies.capability_paper.presets import PRESETS, Capability, Preset, kin_of
from lens_heads.studies.claims import published

N, K, DRAWS, FEW = 40, 5, 8, 20
CAPABILITIES = ("arithmetic", "capitals")
TASKS = (*CAPABILITIES, "mmlu", kin_of("capitals"))
SOURCES = (*CAPABILITIES, kin_of("capitals"))
CALL: Any = ("capitals", {})
PLAN = Preset(
    {name: Capability(CALL if name != "mmlu" else None, CALL) for name in ("arithmetic", "capitals", "mmlu")},
    k=K,
    compared="capitals",
    at_least=2,
)


def rows(source: str, set_: str, task: str, values: Sequence[float], draws: int = 1) -> list[dict[str, Any]]:
    row = {"method": source, "set": set_, "k": 0 if set_ == "none" else K, "task": task, "heads": "L0H0"}
    return [
        {**row, "draw": draw, "trial": f"t{i}", "logprob": v, "greedy_match": v}
        for draw in range(draws)
        for i, v in enumerate(values)
    ]


def measured(
    own: Sequence[float],
    others: Sequence[float],
    kin: Sequence[float],
    random: Sequence[float],
    lacked: Sequence[str],
) -> AblationCurve:
    """Every task under every capability's heads (own, on other data, or another's), and under random heads."""
    found: list[dict[str, Any]] = []
    for task in TASKS:
        found += rows("none", "none", task, [float(task not in lacked)] * len(own))
        for source in SOURCES:
            mine = own if task in CAPABILITIES else kin
            values = mine if study.owner(source) == study.owner(task) else others
            found += rows(source, "top", task, values, DRAWS)
        if task != kin_of("capitals"):
            found += rows("any", "random", task, random[:FEW], 40)
        if task in CAPABILITIES:
            found += rows(task, "random_like", task, random[:FEW], 40)
    return AblationCurve(pd.DataFrame(found), {})


def judged(
    own: Sequence[float] = (0.0,) * N,
    others: Sequence[float] = (1.0,) * N,
    random: Sequence[float] = (1.0,) * N,
    lacked: Sequence[str] = (),
    methods: Mapping[str, tuple[int, Sequence[float]]] | None = None,
    single: tuple[float, float] = (0.5, 1.5),
    **more: Any,
) -> pd.DataFrame:
    """The claims where heads leave their capability `own` (before: all 1), others' heads `others`, and random ones `random`."""
    curve, metrics = measured(own, others, more.pop("kin", own), random, lacked), dict.fromkeys(TASKS, "logprob")
    compared = methods or {"css": (100, own), "greedy": (350, own)}
    by_method = rows("none", "none", "capitals", [1.0] * len(own))
    for method, (_, values) in compared.items():
        by_method += rows(method, "top", "capitals", values, DRAWS if method == "css" else 1)
    alone = [
        {"head": "L0H1", "task": task, "own": True, "damage": sum(single) / 2, "low": single[0], "high": single[1]}
        for task in PLAN.capabilities
    ]
    evaluations = [{"method": method, "evaluations": count} for method, (count, _) in compared.items()]
    rankings: dict[str, Any] = {"scores": {name: [] for name in SOURCES}, "methods": {}, "shared": {}, "reasons": {}}
    finding = CapabilityFinding(
        model="a model",
        frames={
            "spread": damage.spread(curve, PLAN, metrics, SOURCES),
            "alone": pd.DataFrame(alone),
            "methods": pd.DataFrame(evaluations),
        },
        plan=PLAN,
        parameters=0,
        curve=curve,
        metrics=metrics,
        compared=AblationCurve(pd.DataFrame(by_method), {}),
        chances=dict.fromkeys(TASKS, 0.2),
        **{**rankings, "universal": universal(1), "luck": 0.01, **more},
    )
    return claims(finding).set_index("id")


def universal(heads: int) -> Universal:
    found = [Head(0, i) for i in range(heads)]
    return Universal(found, dict.fromkeys(found, ("a", "b", "c")), K, 3, 6, 72, 0.4)


def test_everything_the_paper_claims_holds_where_it_is_so() -> None:
    found = judged()
    assert set(found["verdict"]) == {HOLDS}
    assert found.loc["carries", "claim"].to_list() == ["Few heads carry arithmetic", "Few heads carry capitals"]
    assert found.loc["carries", "found"].to_list() == [
        "1.000 → 0.000, 1.00 [1.00, 1.00] beyond random heads, rank 1 among 40 random sets (p 0.024)"
    ] * len(CAPABILITIES)
    assert found.loc["carries", "value"].to_list() == [1.25, 1.25]  # A fifth would be right by chance.
    assert found.loc["carries", "low"].max() < 1, "forty right answers do not show that all are lost"
    assert found.loc["spared", "found"].startswith("0.00 beyond random heads, one-sided bound 0.00, on 3 of 3 tasks")
    assert found.loc["specific", "found"].to_list() == ["damage 1.00, by others' heads 0.00"] * 2
    assert found.loc["general", "found"] == "damage 1.00, by others' heads 0.00"
    assert found.loc["returns", "capability"] == "capitals"
    assert found.loc["universal", "found"] == "L0H0; 0.4 expected by chance, p 0.01"
    assert found.loc["alone", "value"] == 3
    assert found.loc["cheaper", "found"] == "damage 1.00 with 100 evaluations, 1.00 with 350 (capitals)"
    assert set(found.index) == {claim["id"] for claim in published(study.__name__)["claims"]}


def test_nothing_holds_where_the_opposite_is_so() -> None:
    """A capability's own heads cost nothing, those of others everything, greedy's heads too."""
    methods = {"css": (100, [1.0] * N), "greedy": (350, [0.0] * N)}
    none = {"universal": universal(0), "luck": 1.0, "single": (-0.1, 0.05)}
    found = judged([1.0] * N, [0.0] * N, methods=methods, **none)
    assert set(found.drop("universal")["verdict"]) == {DOES_NOT}
    assert found.loc["universal", "verdict"] == UNTOLD  # Noisy rankings have none in common either.
    assert found.loc["spared", "value"] == pytest.approx(1)
    assert found.loc["cheaper", "value"] == pytest.approx(-0.75)


@pytest.mark.slow
def test_what_the_interval_does_not_decide_cannot_be_told() -> None:
    mixed, few = [1.0] * 30 + [0.0] * 10, [0.8] * 5 + [1.0] * 35
    methods = {"css": (100, mixed), "greedy": (350, mixed[::-1])}
    found = judged(mixed, mixed[::-1], few, methods=methods, luck=0.2, single=(0.05, 0.9))
    for name in ("carries", "specific", "general", "returns", "universal", "alone", "cheaper"):
        assert set(found.loc[[name], "verdict"]) == {UNTOLD}, name
    again = judged(mixed, [1.0] * 28 + [0.0] * 12).loc["carries"].iloc[0]
    assert again["would_tell"] > N
    assert f"about {again['would_tell']:.0f} to {4 * again['would_tell']:.0f} trials and " in again["found"]


def test_few_right_answers_decide_nothing_even_if_all_are_lost() -> None:
    found = judged([0.0] * 4, [1.0] * 4)
    assert set(found.loc["carries", "verdict"]) == {UNTOLD}
    assert found.loc["spared", "verdict"] == UNTOLD


@pytest.mark.slow
def test_what_random_heads_cost_too_is_not_carried_by_few() -> None:
    found = judged(random=[0.0] * N)
    assert set(found.loc["carries", "verdict"]) == {UNTOLD}
    assert found.loc["spared", "verdict"] == UNTOLD  # No heads that hurt anything were shown to spare the rest.
    worse = judged([0.5] * N, random=[0.0] * N)
    assert set(worse.loc["carries", "verdict"]) == {DOES_NOT}


def test_what_the_model_cannot_do_is_not_judged() -> None:
    found = judged(lacked=("mmlu",)).loc["spared"]
    assert found["verdict"] == HOLDS
    assert "on 2 of 3 tasks" in found["found"]
    found = judged(lacked=TASKS, reasons={"rhyme": "every mask gives the response 0"}, universal=None, luck=math.nan)
    assert set(found["verdict"]) == {UNTOLD}
    assert found.loc["carries", "found"].to_list()[1:] == [
        "0.000 → 0.000: the unablated model is not above chance (0.20)",
        "every mask gives the response 0",
    ]
    assert found.loc["alone", "found"] == "too few capabilities that the model has: 0"


@pytest.mark.slow
def test_compressed_sensing_has_to_be_cheaper_and_greedy_to_be_run() -> None:
    own = [0.0] * N
    assert judged(methods={"css": (400, own), "greedy": (350, own)}).loc["cheaper", "verdict"] == DOES_NOT
    row = judged(methods={"css": (100, own)}).loc["cheaper"]
    assert row["verdict"] == UNTOLD
    assert row["found"] == "100 evaluations; greedy search was not run because it needs too many here"
    idle = {"css": (100, [1.0] * N), "greedy": (350, [1.0] * N)}
    row = judged(methods=idle).loc["cheaper"]
    assert row["verdict"] == UNTOLD
    assert row["found"].endswith("greedy search itself does no clear damage")
    close = {"css": (100, [0.2] * N), "greedy": (350, own)}  # 0.8 of the damage, at least 0.75 of it.
    assert judged(methods=close).loc["cheaper", "verdict"] == HOLDS
    assert judged(methods={**close, "css": (100, [0.3] * N)}).loc["cheaper", "verdict"] == DOES_NOT


@pytest.mark.parametrize("name", [*PRESETS])
def test_every_claim_is_registered_before_a_run(name: str) -> None:
    plan = PRESETS[name]
    table = study.CapabilityStudy(plan, "own").registered().set_index("id")
    assert list(table.index) == [claim["id"] for claim in published(study.__name__)["claims"]]
    assert not table.isna().any(axis=None)
    assert not table.map(str).apply(lambda column: column.str.contains("[{}]")).any(axis=None)
    assert f"top {plan.k}, fixed beforehand, by each of {plan.mask_draws} draws" in table.loc["carries", "k"]
    assert f"{plan.random_draws} + {plan.random_draws} random sets" in table.loc["carries", "n"]
    assert table.loc["spared", "threshold"] == (0.1 if name == "paper" else 0.25)  # Right answers, or nats.
    assert (
        study.CapabilityStudy(replace(plan, n_test=77), "own").registered().set_index("id").loc["general", "n"]
        == "up to 77 trials of other data"
    )


@pytest.mark.parametrize("alike", [0.0, 0.5, 1.0])
def test_sets_drawn_at_random_are_carriers_no_more_often_than_by_chance(alike: float) -> None:
    """Draws of masks that find unrelated heads, the same heads, or something between: p by rank holds its level."""
    generator, studies, found = np.random.default_rng(0), 1000, 0
    for _ in range(studies):
        same, mine, random = (
            generator.exponential(),
            generator.exponential(size=(1, DRAWS)),
            generator.exponential(size=40),
        )
        mine = np.where(generator.random((1, DRAWS)) < alike, same, mine)
        tables = pd.DataFrame(-random[None]), pd.DataFrame(-mine)
        curve: Any = SimpleNamespace(pair=lambda *_, tables=tables, **__: tables)
        found += rank(curve, BEFORE, BEFORE, "logprob", "task").p <= 0.05
    assert found / studies <= 0.06
    assert found or alike < 1, "a set like any other is among the most harmful now and then"
