"""The verdict on a claim is decided by the whole interval, on curves whose numbers are known."""

from __future__ import annotations

import math
from typing import Any

import pandas as pd
import pytest

from lens_heads.ablation.conditions import Condition
from lens_heads.ablation.curves import AblationCurve
from lens_heads.studies.claims import DOES_NOT, HOLDS, UNTOLD
from lens_heads.studies.locos_paper.claims import claims
from lens_heads.studies.locos_paper.finding import LocosFinding
from tests import curves

K = 3
TASKS = ("retrieval", "musique", "babilong", "parametric", "arithmetic")


def curve(values: dict[tuple[str, str], list[float]], task_values: dict | None = None) -> AblationCurve:
    """Every metric of every trial has the value of its condition; `task_values` replaces a task's."""
    observations = []
    for task in TASKS:
        for (method, set_), per_trial in {**values, **(task_values or {}).get(task, {})}.items():
            condition = Condition(method, set_, 0 if set_ == "none" else K)
            for i, value in enumerate(per_trial):
                metrics = dict.fromkeys(("rougeL", "correct", "logprob"), value)
                observations.append(curves.row(condition, task, f"t{i}", metrics))
    return curves.curve_of(observations)


def judged(ablated: AblationCurve, texts: AblationCurve) -> pd.DataFrame:
    """The claims by id, with copy as the best baseline."""
    nothing: dict[str, Any] = {"frames": {}, "scores": {}, "questions": {}}
    found = LocosFinding(model="a model", k=K, baseline="copy", curve=ablated, texts=texts, **nothing)
    return claims(found, {}).set_index("id")


def verdicts(
    lead: list[float], baseline: list[float], random: list[float], tasks: dict | None = None, parts: dict | None = None
) -> pd.DataFrame:
    start = [1.0] * len(lead)
    values = {("none", "none"): start, ("locos", "top"): lead, ("copy", "top"): baseline, ("any", "random"): random}
    every = {**values, **{(name, "top"): baseline for name in PARTS}, **(parts or {})}
    return judged(curve(every), curve(values, tasks))


PARTS = ("dla", "attention_spatial", "attention_mass")
N = 80
"""Trials: that nothing was lost in 71 says at most that less than 0.05 is."""
SPARED = {task: {("locos", "top"): [1.0] * N} for task in ("parametric", "arithmetic")}


def test_everything_the_paper_claims_holds_where_it_is_so() -> None:
    found = verdicts([0.0] * N, [0.9, 1, 0.9, 1, 0.8, 1, 1, 1] * 10, [1.0] * N, SPARED)
    assert set(found["verdict"]) == {HOLDS}
    assert found.loc["retrieval", "value"] == 1
    assert found.loc["retrieval", "low"] == pytest.approx(0.025 ** (1 / N))
    assert found.loc["retrieval", "found"] == "1.000 → 0.000"
    assert found.loc["baseline", "found"] == "copy keeps 0.950 of 1.000"
    assert found.loc["baseline", "value"] == pytest.approx(0.95)
    assert (found["trials"] == N).all()


def test_nothing_holds_where_the_opposite_is_so() -> None:
    """The lead's heads cost little, the baseline's and random ones everything, and other tasks suffer."""
    hurt = {task: {("locos", "top"): [0.5] * N} for task in ("parametric", "arithmetic")}
    found = verdicts([0.9] * N, [0.0] * N, [0.2] * N, hurt)
    assert set(found["verdict"]) == {DOES_NOT}
    assert found.loc["baseline", "value"] == pytest.approx(-0.9)
    assert found.loc["parametric", "value"] == pytest.approx(0.5)


def test_what_the_interval_does_not_decide_cannot_be_told() -> None:
    half = [0.0, 1.0] * 40
    found = verdicts(half, [1.0, 0.0] * 40, [1, 1, 1, 1, 1, 1, 1, 0.6] * 10)
    for name in ("retrieval", "baseline", "factorial", "random", "musique"):
        assert found.loc[name, "verdict"] == UNTOLD, name


@pytest.mark.parametrize("trials", [1, 3])
def test_few_trials_decide_nothing_even_if_they_all_agree(trials: int) -> None:
    spared = {task: {("locos", "top"): [1.0] * trials} for task in ("parametric", "arithmetic")}
    found = verdicts([0.0] * trials, [1.0] * trials, [1.0] * trials, spared)
    assert set(found["verdict"]) == {UNTOLD}


def test_a_loss_that_random_heads_cost_too_does_not_hold() -> None:
    lost = verdicts([0.0] * N, [1.0] * N, [0.0] * N)
    assert lost.loc["musique", "value"] == 1
    assert lost.loc["musique", "verdict"] == UNTOLD


def test_every_part_has_to_be_beaten() -> None:
    wide = {("attention_spatial", "top"): [0.0, 1.5] * 40, ("dla", "top"): [0.3] * N}
    found = verdicts([0.0] * N, [1.0] * N, [1.0] * N, parts=wide)
    assert found.loc["factorial", "verdict"] == HOLDS  # Some of the second never exceed the lead, but none is below it.
    wide[("attention_spatial", "top")] = [-0.5, 0.6] * 40
    assert verdicts([0.0] * N, [1.0] * N, [1.0] * N, parts=wide).loc["factorial", "verdict"] == UNTOLD
    values = {("none", "none"): [1.0] * N, ("locos", "top"): [0.0] * N, ("any", "random"): [1.0] * N}
    texts = curve({**values, ("copy", "top"): [1.0] * N})
    row = judged(curve({**values, ("dla", "top"): [1.0] * N}), texts).loc["factorial"]
    assert (row["verdict"], row["found"]) == (UNTOLD, "not ablated: attention_spatial, attention_mass")


def test_a_tie_at_the_floor_tells_nothing() -> None:
    assert verdicts([0.0] * N, [0.0] * N, [1.0] * N).loc["baseline", "verdict"] == UNTOLD


def test_a_task_the_model_hardly_does_cannot_be_spared() -> None:
    rare = [1.0, 1.0, 1.0] + [0.0] * (N - 3)
    tasks = {"parametric": {("none", "none"): rare, ("locos", "top"): rare, ("any", "random"): rare}}
    found = verdicts([0.0] * N, [1.0] * N, [1.0] * N, tasks)
    assert found.loc["parametric", "value"] == 0
    assert found.loc["parametric", "verdict"] == UNTOLD


def test_a_task_the_model_cannot_do_tells_nothing() -> None:
    nothing = {task: {("none", "none"): [0.0] * N, ("locos", "top"): [0.0] * N} for task in ("musique", "arithmetic")}
    found = verdicts([0.0] * N, [1.0] * N, [1.0] * N, nothing)
    for task in nothing:
        assert found.loc[task, "verdict"] == UNTOLD
        assert math.isnan(found.loc[task, "value"])
        assert found.loc[task, "found"] == "the unablated model answers nothing correctly"


def test_random_heads_that_help_are_not_harmless_either() -> None:
    low = {("none", "none"): [0.2] * N, ("locos", "top"): [0.0] * N, ("any", "random"): [0.9] * N}
    found = verdicts([0.0] * N, [0.2] * N, [0.9] * N, {"retrieval": low})
    assert found.loc["random", "verdict"] == DOES_NOT


def test_a_part_that_shares_no_trial_with_the_lead_tells_nothing() -> None:
    """However clear the others are."""
    for missing in ("dla", "attention_mass"):  # The first and the last of them.
        values = {("none", "none"): [1.0] * N, ("locos", "top"): [0.0] * N, ("any", "random"): [1.0] * N}
        values |= {(name, "top"): [1.0] * N for name in PARTS} | {("copy", "top"): [1.0] * N}
        full = curve(values)
        table = full.per_trial.copy()
        gone = (table["method"] == missing) & (table["task"] == "retrieval")
        table.loc[gone, "logprob"] = math.nan
        part = AblationCurve(table, full.meta)
        row = judged(part, full).loc["factorial"]
        assert row["verdict"] == UNTOLD, missing
        assert math.isnan(row["value"])
