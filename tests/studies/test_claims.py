"""The verdict on a claim is decided by the whole interval, on curves whose numbers are known."""

from __future__ import annotations

import math

import pandas as pd
import pytest

from lens_heads.curves import AblationCurve, Condition, Observation
from lens_heads.studies.locos_paper.claims import DOES_NOT, HOLDS, UNTOLD, Evidence, claims

K = 3
TASKS = ("retrieval", "musique", "babilong", "parametric", "arithmetic")


def curve(
    values: dict[tuple[str, str], list[float]], rankings: list[str], task_values: dict | None = None
) -> AblationCurve:
    """Every metric of every trial has the value of its condition; `task_values` replaces a task's."""
    observations = []
    for task in TASKS:
        for (method, set_), per_trial in {**values, **(task_values or {}).get(task, {})}.items():
            condition = Condition(method, set_, 0 if set_ == "none" else K, 0)
            for i, value in enumerate(per_trial):
                metrics = dict.fromkeys(("rougeL", "correct", "logprob"), value)
                observations.append(Observation(condition, "", task, f"t{i}", "x", "", metrics))
    return AblationCurve.from_observations(observations, {"rankings": rankings, "ks": [K]})


def verdicts(lead: list[float], baseline: list[float], random: list[float], tasks: dict | None = None) -> pd.DataFrame:
    values = {("none", "none"): [1.0] * 8, ("locos", "top"): lead, ("copy", "top"): baseline, ("any", "random"): random}
    parts = {(name, "top"): baseline for name in ("dla", "attention_spatial", "attention_mass")}
    texts = curve(values, ["locos", "copy"], tasks)
    every = curve({**values, **parts}, ["locos", "copy", "dla", "attention_spatial", "attention_mass"])
    return claims(Evidence(every, texts, K, "copy")).set_index("id")


SPARED = {task: {("locos", "top"): [1.0] * 8} for task in ("parametric", "arithmetic")}


def test_everything_the_paper_claims_holds_where_it_is_so() -> None:
    found = verdicts([0.0] * 8, [0.9, 1, 0.9, 1, 0.8, 1, 1, 1], [1.0] * 8, SPARED)
    assert set(found["verdict"]) == {HOLDS}
    assert found.loc["retrieval", ["value", "low", "high"]].to_list() == [1, 1, 1]
    assert found.loc["retrieval", "found"] == "1.000 → 0.000"
    assert found.loc["baseline", "found"] == "copy keeps 0.950 of 1.000"
    assert found.loc["baseline", "value"] == pytest.approx(0.95)
    assert (found["trials"] == 8).all()


def test_nothing_holds_where_the_opposite_is_so() -> None:
    """The lead's heads cost little, the baseline's and random ones everything, and other tasks suffer."""
    hurt = {task: {("locos", "top"): [0.5] * 8} for task in ("parametric", "arithmetic")}
    found = verdicts([0.9] * 8, [0.0] * 8, [0.2] * 8, hurt)
    assert set(found["verdict"]) == {DOES_NOT}
    assert found.loc["baseline", "value"] == pytest.approx(-0.9)
    assert found.loc["parametric", "value"] == pytest.approx(0.5)


def test_what_the_interval_does_not_decide_cannot_be_told() -> None:
    half = [0.0, 1.0] * 4
    found = verdicts(
        half, [1.0, 0.0] * 4, [1, 1, 1, 1, 1, 1, 1, 0.3], {"parametric": {("locos", "top"): [1.0] * 7 + [0.5]}}
    )
    for name in ("retrieval", "baseline", "factorial", "random", "musique", "parametric"):
        assert found.loc[name, "verdict"] == UNTOLD, name


def test_a_tie_at_the_floor_tells_nothing() -> None:
    assert verdicts([0.0] * 8, [0.0] * 8, [1.0] * 8).loc["baseline", "verdict"] == UNTOLD


def test_a_task_the_model_cannot_do_tells_nothing() -> None:
    nothing = {task: {("none", "none"): [0.0] * 8, ("locos", "top"): [0.0] * 8} for task in ("musique", "arithmetic")}
    found = verdicts([0.0] * 8, [1.0] * 8, [1.0] * 8, nothing)
    for task in nothing:
        assert found.loc[task, "verdict"] == UNTOLD
        assert math.isnan(found.loc[task, "value"])
        assert found.loc[task, "found"] == "the unablated model answers none"


def test_random_heads_that_help_are_not_harmless_either() -> None:
    values = {("none", "none"): [0.2] * 8, ("locos", "top"): [0.0] * 8, ("copy", "top"): [0.2] * 8}
    texts = curve({**values, ("any", "random"): [0.9] * 8}, ["locos", "copy"])
    found = claims(
        Evidence(curve({**values, ("dla", "top"): [0.2] * 8}, ["locos", "dla"]), texts, K, "copy")
    ).set_index("id")
    assert found.loc["random", "verdict"] == DOES_NOT
