"""The verdict on a claim about capabilities is decided by the whole interval, on ablations whose numbers are known."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
import pytest

from lens_heads.ablation.curves import AblationCurve
from lens_heads.heads.head import Head
from lens_heads.localize import Generality, Universal
from lens_heads.studies.capability_paper import stages
from lens_heads.studies.capability_paper.capabilities import Capability
from lens_heads.studies.capability_paper.claims import claims
from lens_heads.studies.capability_paper.finding import CapabilityFinding
from lens_heads.studies.capability_paper.presets import Preset
from lens_heads.studies.capability_paper.stages import kin_of
from lens_heads.studies.claims import DOES_NOT, HOLDS, UNTOLD, published, widened

N, K = 60, 5
CAPABILITIES = ("arithmetic", "capitals")
TASKS = (*CAPABILITIES, "mmlu", kin_of("capitals"))
Values = Mapping[tuple[str, str], list[float]]
"""By source of heads ("none", "any", a capability, a method) and task, each trial's value in every metric."""


def table(values: Values, metrics: Mapping[str, str]) -> Generality:
    rows: list[dict[str, Any]] = []
    for (source, task), per_trial in values.items():
        set_ = {"none": "none", "any": "random"}.get(source, "top")
        row = {"method": source, "set": set_, "k": 0 if source == "none" else K, "seed": 0, "task": task}
        rows += [{**row, "trial": f"t{i}", "logprob": v, "greedy_match": v} for i, v in enumerate(per_trial)]
    return Generality(AblationCurve(pd.DataFrame(rows), {}), dict(metrics))


def judged(
    own: list[float] | None = None,
    others: list[float] | None = None,
    kin: list[float] | None = None,
    beyond_random: float = 0.5,
    lacked: tuple[str, ...] = (),
    methods: Mapping[str, tuple[int, list[float]]] | None = None,
    **more: Any,
) -> pd.DataFrame:
    """The claims where a capability's heads leave it `own` (before: all 1), its other data `kin`, and others' heads `others`."""
    own, others = own or [0.0] * N, others or [1.0] * N
    kin = kin or own
    values = {("none", task): [1.0] * len(own) for task in TASKS} | {
        ("none", task): [0.0] * len(own) for task in lacked
    }
    for source in CAPABILITIES:
        for task in TASKS:
            values[source, task] = own if source == task else kin if task == kin_of(source) else others
    lost = 1 - float(np.mean(own))
    low, high = widened(lost, lost, lost, len(own))
    before, after = (
        {"k": 0, "value": 1.0},
        {"k": K, "value": 1 - lost, "lost": lost, "lost_low": low, "lost_high": high},
    )
    right = [{"capability": name, "chance": 0.0, **row} for name in CAPABILITIES for row in (before, after)]
    spread = [{"heads": name, "on": "own", "beyond_random_low": beyond_random} for name in CAPABILITIES]
    compared = methods or {"css": (100, own), "greedy": (350, own)}
    by_method = {("none", "capitals"): [1.0] * len(own), **{(m, "capitals"): v for m, (_, v) in compared.items()}}
    evaluations = [{"method": method, "evaluations": count} for method, (count, _) in compared.items()]
    tables = {"spread": spread, "right_answers": more.pop("right_answers", right), "methods": evaluations}
    rankings: dict[str, Any] = {"scores": dict.fromkeys(CAPABILITIES), "curves": {}, "methods": {}}
    finding = CapabilityFinding(
        model="a model",
        frames={name: pd.DataFrame(rows) for name, rows in tables.items()},
        plan=Preset(dict.fromkeys(TASKS, Capability(("capitals", {}), ("capitals", {}))), k=K, compared="capitals"),
        parameters=0,
        generality=table(values, dict.fromkeys(TASKS, "logprob")),
        compared=table(by_method, {"capitals": "logprob"}),
        chances=dict.fromkeys(TASKS, 0.2),
        **{**rankings, "universal": universal(1), "luck": 0.01, "reasons": {}, **more},
    )
    return claims(finding).set_index("id")


def universal(heads: int) -> Universal:
    found = [Head(0, i) for i in range(heads)]
    return Universal(found, dict.fromkeys(found, ("a", "b", "c")), K, 3, 6, 72, 0.4)


def test_everything_the_paper_claims_holds_where_it_is_so() -> None:
    found = judged()
    assert set(found["verdict"]) == {HOLDS}
    assert found.loc["carries", "claim"].to_list() == ["Few heads carry arithmetic", "Few heads carry capitals"]
    assert found.loc["carries", "found"].to_list() == ["1.000 → 0.000"] * 2
    assert found.loc["spared", "found"] == "1.000 → 1.000 of answers right on 3 of 3 tasks; arithmetic loses most: 0.00"
    assert found.loc["specific", "found"].to_list() == ["damage 1.00, by others' heads 0.00"] * 2
    assert (
        found.loc["specific", "claim"].to_list()[1]
        == "The heads of capitals cost it more than other capabilities' heads do"
    )
    assert found.loc[["general"], "found"].to_list() == ["damage 1.00, by others' heads 0.00"]
    assert found.loc["universal", "found"] == "L0H0 (3 of 6); 0.4 expected by chance, p 0.01"
    assert found.loc["cheaper", "found"] == "damage 1.00 with 100 evaluations, 1.00 with 350 (capitals)"
    assert set(found.index) == {claim["id"] for claim in published(stages.__name__)["claims"]}


def test_nothing_holds_where_the_opposite_is_so() -> None:
    """A capability's own heads cost nothing, those of others everything, greedy's heads too."""
    methods = {"css": (100, [1.0] * N), "greedy": (350, [0.0] * N)}
    found = judged([1.0] * N, [0.0] * N, methods=methods, universal=universal(0), luck=1.0)
    assert set(found.drop("universal")["verdict"]) == {DOES_NOT}
    assert found.loc["universal", "verdict"] == UNTOLD  # Noisy rankings have none in common either.
    assert found.loc["spared", "value"] == 1
    assert found.loc["cheaper", "value"] == pytest.approx(-0.75)


def test_what_the_interval_does_not_decide_cannot_be_told() -> None:
    mixed = [1.0] * 45 + [0.0] * 15
    found = judged(mixed, mixed[::-1], methods={"css": (100, mixed), "greedy": (350, mixed[::-1])}, luck=0.2)
    for name in ("carries", "specific", "general", "universal"):
        assert set(found.loc[[name], "verdict"]) == {UNTOLD}, name


@pytest.mark.parametrize("trials", [1, 2])
def test_few_right_answers_decide_nothing_even_if_all_are_lost(trials: int) -> None:
    found = judged([0.0] * trials, [1.0] * trials)
    assert set(found.loc["carries", "verdict"]) == {UNTOLD}
    assert found.loc["spared", "verdict"] == UNTOLD


def test_what_random_heads_cost_too_is_not_carried_by_few() -> None:
    found = judged(beyond_random=-0.1)
    assert set(found.loc["carries", "verdict"]) == {UNTOLD}
    assert found.loc["spared", "verdict"] == UNTOLD  # No heads that hurt anything were shown to spare the rest.


def test_a_capability_that_the_model_lacks_tells_nothing() -> None:
    nothing = {"chance": 0.25, "lost": math.nan, "lost_low": math.nan, "lost_high": math.nan, "value": 0.25}
    rows = [{"capability": name, "k": k, **nothing} for name in CAPABILITIES for k in (0, K)]
    found = judged(right_answers=rows, reasons={"rhyme": "every mask gives the response 0"})
    assert set(found.loc["carries", "verdict"]) == {UNTOLD}
    assert found.loc["carries", "found"].to_list() == [
        *["0.250 → 0.250: the unablated model is not above chance (0.25)"] * 2,
        "every mask gives the response 0",
    ]


def test_what_the_model_cannot_do_it_is_not_spared() -> None:
    found = judged(lacked=("mmlu",)).loc["spared"]
    assert (found["verdict"], found["found"]) == (
        HOLDS,
        "1.000 → 1.000 of answers right on 2 of 3 tasks; arithmetic loses most: 0.00",
    )
    found = judged(lacked=("arithmetic", "capitals", "mmlu")).loc["spared"]
    assert (found["verdict"], found["found"]) == (UNTOLD, "the unablated model is not above chance on any task")


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
