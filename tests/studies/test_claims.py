"""The claims of the LOCOS study are judged by the verdicts on its headline, each by its own rule and threshold."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from lens_heads.evidence.curve_results import AblationCurve
from lens_heads.evidence.verdicts import breaks, costs_more, harms, negligible, spared
from lens_heads.heads.conditions import Condition
from lens_heads.studies.claims import DOES_NOT, HOLDS, UNTOLD, published
from lens_heads.studies.locos_paper.claims import HEADLINE_METHODS, PARTS, RULES, TASK, LocosFinding, claims

K, TRIALS, DRAWS, FEW = 3, 60, 40, 20
OTHERS = ("musique", "babilong", "parametric", "popqa", "arithmetic")


def curve(task: str, cost: dict[str, float], random: float = 0.0, seed: int = 0, trials: int = TRIALS) -> AblationCurve:
    """A task on which each method's heads cost so many nats on average, and on which a missing needle costs 4."""
    rng, names = np.random.default_rng(seed), [f"{task}-{i}" for i in range(trials)]
    base, few = rng.normal(-1, 0.4, trials), min(FEW, trials)
    columns = {(Condition.none(), 0): base, (Condition.no_needle(), 0): base - 4 - rng.normal(0, 0.3, trials)}
    columns |= {
        (Condition.top(method, K), 0): base - nats - rng.normal(0, 0.3, trials) for method, nats in cost.items()
    }
    for control in (Condition.random(K), Condition.random_like("locos", K)):
        for draw in range(DRAWS):
            columns[control, draw] = base[:few] - random - rng.normal(0, 0.1) - rng.normal(0, 0.1, few)
    frames = [
        pd.DataFrame({"trial": names[: len(values)], "logprob": values}).assign(
            method=one.method, set=one.set, k=one.k, seed=draw, heads=f"{one.method} {one.set} {draw}", task=task
        )
        for (one, draw), values in columns.items()
    ]
    return AblationCurve(pd.concat(frames, ignore_index=True), {})


def finding(lead: float, exact: float, others: float, **tasks: float) -> LocosFinding:
    """LOCOS's heads cost so much, those of the exact read-out and of every baseline too; and LOCOS's on other tasks."""
    cost = {**dict.fromkeys((*HEADLINE_METHODS, "copy"), others), "locos": lead, "locos_exact": exact}
    headline = {TASK: curve(TASK, cost)}
    headline |= {task: curve(task, {"locos": tasks.get(task, 0.0)}, seed=i + 1) for i, task in enumerate(OTHERS)}
    nothing: dict[str, Any] = {"frames": {}, "scores": {}, "questions": {}, "texts": {}}
    return LocosFinding(model="a model", k=K, baseline="copy", headline=headline, curve=headline[TASK], **nothing)


def found(finding: LocosFinding) -> pd.DataFrame:
    return claims(finding, {}).set_index("id")


@pytest.mark.slow
def test_everything_holds_where_it_is_so() -> None:
    table = found(finding(3.0, 3.6, 1.0, musique=1.5, babilong=1.5))
    assert table["verdict"].to_dict() == dict.fromkeys(table.index, HOLDS)
    assert table.loc["retrieval", "share"] == pytest.approx(0.75, abs=0.05)
    assert table.loc["baseline", "value"] == pytest.approx(2.0, abs=0.2)
    assert table.loc["factorial", "found"].startswith("dla +")
    assert (table.loc[["retrieval", "baseline"], "trials"] == TRIALS).all()


@pytest.mark.slow
def test_nothing_holds_where_the_opposite_is_so() -> None:
    opposite = finding(0.5, 0.2, 3.0, musique=-1.0, babilong=-1.0, parametric=2.0, popqa=2.0, arithmetic=2.0)
    table = found(opposite).drop(index="random")  # Random heads cost nothing here either.
    assert table["verdict"].to_dict() == dict.fromkeys(table.index, DOES_NOT)


@pytest.mark.slow
def test_every_claim_is_its_verdict() -> None:
    """The table holds what the verdict on the curve says, with the threshold of claims.json."""
    one = finding(2.1, 2.1, 2.0, musique=0.1, parametric=0.2)
    table, lead, curves = found(one), "locos", one.headline
    expected = {
        "retrieval": breaks(curves[TASK], lead, K, share=0.5),
        "retrieval_exact": breaks(curves[TASK], "locos_exact", K, share=0.5),
        "exact": costs_more(curves[TASK], "locos_exact", lead, K),
        "baseline": costs_more(curves[TASK], lead, "copy", K),
        "random": negligible(curves[TASK], K, margin=0.25),
        "musique": harms(curves["musique"], lead, K),
        "parametric": spared(curves["parametric"], lead, K, margin=0.25),
    }
    for name, verdict in expected.items():
        assert (table.loc[name, "verdict"], table.loc[name, "found"]) == (verdict.word, verdict.because)
        assert (table.loc[name, "low"], table.loc[name, "high"]) == pytest.approx((verdict.cost.low, verdict.cost.high))
    assert UNTOLD in {verdict.word for verdict in expected.values()}


@pytest.mark.slow
def test_every_part_has_to_be_beaten() -> None:
    one = finding(3.0, 3.0, 1.0)
    cost = {**dict.fromkeys((*HEADLINE_METHODS, "copy"), 1.0), "locos": 3.0, "attention_mass": 3.0}
    tied = curve(TASK, cost)
    table = found(LocosFinding(**{**vars(one), "headline": {TASK: tied}}))
    worst = costs_more(tied, "locos", "attention_mass", K)
    assert (table.loc["factorial", "verdict"], table.loc["factorial", "low"]) == (worst.word, worst.cost.low)
    without = AblationCurve(tied.per_trial[~tied.per_trial["method"].isin(PARTS[:2])], {})
    table = found(LocosFinding(**{**vars(one), "headline": {TASK: without}}))
    assert (table.loc["factorial", "verdict"], table.loc["factorial", "found"]) == (
        UNTOLD,
        "not ablated: dla, attention_spatial",
    )


@pytest.mark.slow
def test_few_trials_decide_nothing_even_if_they_all_agree() -> None:
    one = finding(3.0, 3.6, 1.0)
    few = {
        task: curve(task, {"locos": 3.0, "locos_exact": 3.6, "copy": 1.0} | dict.fromkeys(PARTS, 1.0), trials=3)
        for task in one.headline
    }
    assert set(found(LocosFinding(**{**vars(one), "headline": few}))["verdict"]) == {UNTOLD}


def test_the_file_names_rules_that_exist() -> None:
    whole = published("lens_heads.studies.locos_paper.claims")
    for claim in whole["claims"]:
        assert claim["rule"] in RULES
        assert {"estimand", "threshold", "task", "ranking", "holds", "paper"} <= set(claim)
