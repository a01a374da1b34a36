"""Every cell of a generality table is what ablating and evaluating by hand gives, on trials the heads were not found on."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

import lens_heads as lh
from lens_heads.evidence.curve_results import AblationCurve
from lens_heads.evidence.generality import Generality, generality
from lens_heads.heads.head import Head
from lens_heads.heads.scores import HeadScores
from lens_heads.heads.sets import every_head, random_heads
from lens_heads.model.hooks import has_hooks
from lens_heads.ranking.masks.localize import localize
from lens_heads.stats import crossed_interval
from tests import planted
from tests.planted import COPIER, DECOY, WRITER
from tests.ranking.masks.runs import FOUND, OTHERS, by_loop, measured, model, passes

NO_NEEDLE = [replace(trial, id=f"no {trial.id}", needle=None) for trial in planted.trials(8, corrupt=True)[4:]]
METRICS = {"retrieval": "logprob", "spelled": "contains", "nothing": "greedy_match"}
TASKS: dict[str, Any] = {"retrieval": OTHERS, "spelled": OTHERS[1:], "nothing": NO_NEEDLE}
OPTIONS: dict[str, Any] = {
    "metric": METRICS,
    "k": 2,
    "max_new_tokens": 3,
    "controls": lh.Controls("random", 3, seed=3),
    "progress": False,
}


def scores() -> HeadScores:
    return localize(measured(), method="one_shot")


def sources() -> dict[str, Any]:
    return {"found": scores(), "idle": [DECOY, "L0H2"]}


@pytest.fixture(scope="module")
def found() -> Generality:
    return generality(model(), TASKS, sources(), **OPTIONS, kind="zero")


@cache
def value(task: str, *heads: Head) -> np.ndarray:
    """Of every trial, by hand."""
    generated = 3 if METRICS[task] == "contains" else 0
    return by_loop(model(), TASKS[task], [heads], METRICS[task], generated)[0]


@pytest.mark.slow
def test_every_cell_is_the_metric_without_less_the_metric_with(found: Generality) -> None:
    table = found.frame.set_index(["source", "task"])
    assert list(table.index) == [(source, task) for task in TASKS for source in ("found", "idle")]
    for (source, task), row in table.iterrows():  # type: ignore[misc]
        heads = {"found": [COPIER, WRITER], "idle": [DECOY, Head(0, 2)]}[source]
        base, now = value(task), value(task, *heads)
        assert (row["k"], row["metric"]) == (2, METRICS[task])
        assert row["base"] == pytest.approx(base.mean(), abs=5e-5)
        assert row["value"] == pytest.approx(now.mean(), abs=5e-5)
        assert row["damage"] == pytest.approx((base - now).mean(), abs=5e-5)
        assert np.isnan([row["low"], row["high"]]).all(), "no interval below five trials"
    assert table.loc[("found", "retrieval"), "damage"] > 5
    assert table.loc[("found", "spelled"), "damage"] == 1
    assert table.loc[("idle", "spelled"), "damage"] == 0
    assert not has_hooks(model())


@pytest.mark.slow
def test_random_heads_are_any_and_beyond_random_is_against_them(found: Generality) -> None:
    drawn = found.curve.per_trial[found.curve.per_trial["set"] == "random"]
    sets = {tuple(Head.parse(name) for name in heads.split(",")) for heads in drawn["heads"].unique()}
    assert len(drawn["draw"].unique()) == 3
    assert all(len({*heads}) == 2 for heads in sets)
    by_seed = drawn.groupby("draw")["heads"].first()
    draws = [[Head.parse(name) for name in heads.split(",")] for heads in by_seed]
    for row in found.frame.to_dict("records"):
        task = str(row["task"])
        damage = np.mean([(value(task) - value(task, *heads)).mean() for heads in draws])
        assert row["random_damage"] == pytest.approx(damage, abs=5e-5)
        assert row["beyond_random"] == pytest.approx(row["damage"] - row["random_damage"], abs=1e-5)
        assert np.isnan([row["beyond_low"], row["beyond_high"]]).all()


@pytest.mark.slow
def test_damage_beyond_random_heads_has_the_interval_of_a_table_of_draws_by_trials() -> None:
    listed = {"mine": [COPIER, WRITER]}
    (row,) = generality(
        model(), {"t": [*FOUND, *OTHERS]}, listed, controls=lh.Controls("random", 5), progress=False, kind="zero"
    ).frame.to_dict("records")
    draws = [random_heads(every_head(2, 4), 2, seed) for seed in range(5)]
    base, mine, *random = by_loop(model(), [*FOUND, *OTHERS], [[], listed["mine"], *draws])
    beyond = crossed_interval(torch.from_numpy(np.stack(random) - mine))
    found = [row[name] for name in ("beyond_random", "beyond_low", "beyond_high")]
    assert found == pytest.approx(list(beyond), abs=1e-3)
    alone = crossed_interval(torch.from_numpy((base - mine)[None]))
    assert [row[name] for name in ("damage", "low", "high")] == pytest.approx(list(alone), abs=1e-3)


def test_random_heads_may_be_heads_of_a_set() -> None:
    """Random heads that are nobody's would be heads that nobody needs."""
    listed = {"all": [Head(layer, head) for layer in range(2) for head in range(4)], "one": [COPIER]}
    found = generality(
        model(), {"retrieval": OTHERS}, listed, controls=lh.Controls("random", 12), progress=False, kind="zero"
    )
    drawn = found.curve.per_trial
    assert set(drawn[(drawn["set"] == "random") & (drawn["k"] == 1)]["heads"]) >= {str(COPIER), str(WRITER)}


@pytest.mark.slow
def test_the_matrix_is_the_frame_source_by_task(found: Generality) -> None:
    table = found.frame.set_index(["source", "task"])
    for column in ("damage", "beyond_random", "base"):
        matrix = found.matrix(column)
        assert (list(matrix.index), list(matrix.columns)) == (["found", "idle"], list(TASKS))
        for source in matrix.index:
            for task in matrix.columns:
                assert matrix.loc[source, task] == table.loc[(source, task), column]
    with pytest.raises(
        ValueError, match="no column 'drop': the frame has source, task, k, metric, base, value, damage"
    ):
        found.matrix("drop")


@pytest.mark.slow
def test_lists_are_taken_whole_and_a_single_source_needs_no_name() -> None:
    lists = {"one": [COPIER], "three": ["L0H1", (1, 2), DECOY]}
    found = generality(model(), {"retrieval": OTHERS}, lists, k=2, controls=(), progress=False, kind="zero")
    assert found.frame["k"].tolist() == [1, 3]
    assert "beyond_random" not in found.frame
    wanted = value("retrieval").mean() - value("retrieval", COPIER).mean()
    assert found.matrix().loc["one", "retrieval"] == pytest.approx(wanted, abs=5e-5)
    assert list(generality(model(), {"t": OTHERS}, scores(), k=1, progress=False, kind="zero").matrix().index) == [
        "one_shot"
    ]
    assert list(generality(model(), {"t": OTHERS}, "L0H1,L1H2", k=1, progress=False, kind="zero").matrix().index) == [
        "heads"
    ]


@pytest.mark.slow
def test_a_run_is_kept_and_goes_on(tmp_path: Path, found: Generality) -> None:
    few = {name: TASKS[name] for name in ("retrieval", "nothing")}
    options = {**OPTIONS, "metric": {name: METRICS[name] for name in few}, "out": tmp_path}
    first = generality(model(), few, sources(), **{"kind": "zero", **options})
    with passes(model()) as seen:
        again = generality(model(), few, sources(), **{"kind": "zero", **options})
        cost = len(seen)
        generality(model(), few, {**sources(), "more": ["L1H0", "L1H1"]}, **{"kind": "zero", **options})
    assert len(seen) > cost
    pd.testing.assert_frame_equal(again.frame, first.frame)
    np.testing.assert_allclose(first.matrix().to_numpy(), found.matrix()[list(few)].to_numpy(), atol=5e-5)
    with pytest.raises(ValueError, match="holds a run with different settings"):
        generality(model(), {"retrieval": OTHERS[:2]}, sources(), **{**options, "metric": "logprob"}, kind="zero")


def test_what_is_saved_is_what_was_found(found: Generality, tmp_path: Path) -> None:
    rows = json.loads((found.save(tmp_path / "g") / "generality.json").read_text())
    assert [row["damage"] for row in rows] == pytest.approx(found.frame["damage"].tolist(), abs=1e-9)
    assert len(AblationCurve.load(tmp_path / "g").per_trial) == len(found.curve.per_trial)
    assert repr(found) == "Generality(found, idle on retrieval, spelled, nothing)"


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"trials": {"mine": FOUND}}, "ranking 'found' was made on 4 of the trials"),
    ({"trials": {"mine": OTHERS, "twin": [replace(FOUND[0], id="other")]}}, "was made on 1 of the trials, needles"),
    ({"trials": {}}, "there are no tasks"),
    ({"rankings": {}}, "there are no rankings"),
    ({"k": 0}, "k=0: must be a positive integer"),
    ({"k": -1, "rankings": {"mine": [COPIER, DECOY]}}, "k=-1: must be a positive integer"),
    ({"k": 9}, "k=9: must be an integer from 0 to 8, the number of heads that one_shot scores"),
    ({"rankings": {"empty": []}}, "'empty' lists no heads"),
    ({"rankings": {"any": [COPIER, DECOY]}}, "a set of heads is called 'any', the name of a control"),
    ({"rankings": {"far": ["L7H0", "L0H0"]}}, "head L7H0 does not exist"),
    ({"controls": "bottom"}, "unknown control 'bottom'"),
    (
        {"metric": {"retrieval": "logprob", "mispelled": "correct"}},
        "metric names retrieval, mispelled, but the tasks are",
    ),
    ({"metric": "loss"}, "metric 'loss' is not measured"),
    ({"metric": "choice"}, "metric 'choice' compares choices"),
    ({"kind": "remove"}, "unknown kind of ablation 'remove'"),
]


@pytest.mark.parametrize(("choice", "message"), REFUSED)
def test_bad_choices_are_refused_before_anything_is_run(choice: dict[str, Any], message: str) -> None:
    given = {"rankings": {"found": scores()}, "trials": {"retrieval": OTHERS}, "k": 2, "progress": False} | choice
    with passes(model()) as seen, pytest.raises(ValueError, match=message):
        generality(model(), **{"kind": "zero", **given})
    assert not seen


def test_scores_of_other_heads_are_refused(gqa: Any) -> None:
    with pytest.raises(ValueError, match=r"ranking 'one_shot' is for a model of 2 layers x 4 heads"):
        generality(gqa, {"t": OTHERS}, scores(), progress=False, kind="zero")
    grouped = replace(scores(), unit="kv_head")
    with pytest.raises(
        ValueError, match=r"one_shot scores kv heads: convert them with units.to_query_heads\(scores, 1\)"
    ):
        generality(model(), {"t": OTHERS}, grouped, progress=False, kind="zero")


def test_a_reference_from_the_trials_is_refused_and_one_from_others_used() -> None:
    options: dict[str, Any] = {"k": 2, "kind": "mean", "controls": (), "progress": False}
    mine, others = (lh.mean_activations(model(), trials, progress=False) for trials in (OTHERS[:1], FOUND))
    with pytest.raises(ValueError, match="the reference was computed on 1 of the evaluation trials"):
        generality(model(), {"t": OTHERS}, scores(), reference=mine, **{"kind": "zero", **options})
    found = generality(model(), {"t": OTHERS}, scores(), reference=others, **{"kind": "zero", **options})
    wanted = by_loop(model(), OTHERS, [[COPIER, WRITER]], kind="mean", reference=others)[0].mean()
    assert found.frame["value"].tolist() == pytest.approx([wanted], abs=5e-5)
