"""transfer_matrix on a tiny model: every cell equals evaluate under ablate; what is run once; resume; what is refused."""

from __future__ import annotations

import itertools
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch

import lens_heads as lh
from lens_heads.answering.choices import CHOICE_METRICS
from lens_heads.answering.evaluation import METRICS, Evaluation
from lens_heads.evidence import grid as ablation
from lens_heads.evidence.transfer import transfer_matrix
from lens_heads.evidence.transfer_results import TransferMatrix
from lens_heads.heads.conditions import KEY
from lens_heads.heads.grouping import COLUMNS
from lens_heads.heads.head import Head
from lens_heads.heads.made_on import MadeOn
from lens_heads.model.hooks import has_hooks
from tests.conftest import tiny
from tests.evidence.test_curve import ALL, Counted, ranking, trials

TASKS = {"one": trials(2, 10), "two": trials(3, 10), "three": trials(1, 40)}  # Ids recur from task to task.
SOURCES: dict[str, Any] = {"one": ranking(["L2H1", "L0H3", "L2H0"]), "two": ["L0H3", "L2H1", "L1H0", "L1H1"]}


def matrix_of(model: Any, rankings: Any = None, trials: Any = None, **options: Any) -> TransferMatrix:
    arguments = {
        "ks": (1, 3),
        "controls": lh.Controls("random", 2),
        "generate": False,
        "metric": "logprob",
        "progress": False,
    } | options
    return transfer_matrix(
        model,
        TASKS if trials is None else trials,
        SOURCES if rankings is None else rankings,
        **{"kind": "zero", **arguments},
    )


def parsed(names: list[str]) -> list[Head]:
    return [Head.parse(name) for name in names]


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Counted:
    spy = Counted()
    monkeypatch.setattr(ablation, "answer_batch", spy)
    return spy


# The numbers


@cache
def evaluated(heads: tuple[Head, ...], target: str) -> Evaluation:
    """A task with the heads ablated, for every batch size the same."""
    with lh.ablate(tiny("llama-gqa"), heads, kind="zero"):
        return lh.evaluate(tiny("llama-gqa"), TASKS[target], max_new_tokens=3, progress=False)


@pytest.mark.slow
@pytest.mark.parametrize("batch_size", [1, 2])
def test_every_cell_is_evaluate_under_ablate(gqa: Any, batch_size: int) -> None:
    matrix = matrix_of(gqa, generate=True, metric="correct", max_new_tokens=3, batch_size=batch_size)
    table = matrix.per_trial
    assert table is not None
    assert list(table.columns) == [*KEY, *COLUMNS, *METRICS[: -len(CHOICE_METRICS)]]
    assert (matrix.sources, matrix.targets, matrix.ks, matrix.draws) == (("one", "two"), tuple(TASKS), (1, 3), 2)
    orders = {"one": SOURCES["one"].ranking(), "two": parsed(SOURCES["two"])}
    heads = {(source, k, 0): order[:k] for source, order in orders.items() for k in (1, 3)} | {("none", 0, 0): []}
    for k, draw in itertools.product((1, 3), range(2)):
        heads["random", k, draw] = parsed(matrix.meta["random_heads"][str(k)][draw])
    for (source, k, draw), target in itertools.product(heads, TASKS):
        expected = evaluated(tuple(heads[source, k, draw]), target)
        rows = table[(table["method"] == source) & (table["k"] == k) & (table["draw"] == draw)]
        rows = rows[rows["task"] == target].set_index("trial").loc[list(expected.trial_ids)]
        assert len(rows) == len(TASKS[target])
        for metric, values in expected.metrics.items():
            found = torch.tensor(rows[metric].to_numpy(), dtype=torch.float32)
            torch.testing.assert_close(found, values, atol=3e-5, rtol=3e-4)
    assert not has_hooks(gqa)


@pytest.mark.slow
def test_random_heads_are_drawn_from_all_heads(gqa: Any) -> None:
    """Without those of the sources they would be heads that nobody chose."""
    matrix = matrix_of(gqa, controls=lh.Controls("random", 12))
    drawn = {k: [frozenset(parsed(names)) for names in matrix.meta["random_heads"][str(k)]] for k in (1, 3)}
    for k, sets in drawn.items():
        assert [len(heads) for heads in sets] == [k] * 12
        assert len(set(sets)) > 6
    assert len(set().union(*drawn[3])) > 8
    assert set().union(*drawn[1]) & {Head(2, 1), Head(0, 3)}, "the sources' best heads are among them"
    assert len(matrix.random()) == 2 * 3
    assert matrix_of(gqa, controls=lh.Controls("random", 12)).meta["random_heads"] == matrix.meta["random_heads"]
    assert (
        matrix_of(
            gqa,
            controls=lh.Controls("random", 12, 50),
        ).meta["random_heads"]
        != matrix.meta["random_heads"]
    )


def test_items_keep_their_groups(gqa: Any) -> None:
    tasks = {
        name: [replace(trial, group=f"{name} {trial.id[-1]}") for trial in listed] for name, listed in TASKS.items()
    }
    table = matrix_of(gqa, trials=tasks, controls=lh.Controls("random", 1))._table
    assert (table["group"] == table["task"] + " " + table["trial"].str[-1]).all()
    assert set(table["group_2"]) == {""}


def test_the_matrix_is_laid_out_for_its_statistics(gqa: Any) -> None:
    matrix = matrix_of(gqa)
    table = matrix.per_trial
    assert table is not None

    def mean(source: str, target: str, k: int) -> float:
        rows = (table["method"] == source) & (table["task"] == target) & (table["k"] == k)
        return float(table.loc[rows, "logprob"].mean())

    for k, target in itertools.product((1, 3), TASKS):
        drops = [mean("none", target, 0) - mean(source, target, k) for source in SOURCES]
        assert matrix.fragility().loc[k, target] == pytest.approx(sum(drops) / 2)


def test_no_random_heads_when_none_are_asked_for(gqa: Any) -> None:
    matrix = matrix_of(gqa, controls=())
    assert matrix.draws == 0
    assert set(matrix._table["method"]) == {"none", "one", "two"}


# What is run, and how often


@pytest.mark.slow
@pytest.mark.usefixtures("alone")
def test_sets_that_sources_share_are_run_once(gqa: Any, counted: Counted) -> None:
    twins = {"one": ["L0H1", "L2H2"], "two": ["L2H2", "L0H1"], "three": ["L1H3", "L0H1"]}
    matrix = matrix_of(gqa, twins, ks=(1, 2), controls=())
    different = 1 + 3 + 2  # None; three best heads; two pairs, for the order is no matter.
    assert len(counted.batches) == different * 6
    cells = matrix.frame.pivot(index=["method", "k"], columns="task", values="value")
    assert cells.loc[("one", 2)].equals(cells.loc[("two", 2)])
    assert not cells.loc[("one", 2)].equals(cells.loc[("three", 2)])


@pytest.mark.usefixtures("alone")
def test_ks_end_at_the_number_of_heads(gqa: Any, counted: Counted) -> None:
    matrix = matrix_of(gqa, {"one": SOURCES["one"]}, ks=(50, 2, 128), controls=lh.Controls("random", 1))
    assert matrix.ks == (2, 12)
    assert len(counted.batches) == 6 * 4  # None, top two, two at random; all twelve are both.
    assert matrix.beyond_random().loc[12].to_list() == pytest.approx([0, 0, 0], abs=1e-6)


@pytest.mark.slow
@pytest.mark.usefixtures("alone")
def test_a_run_folder_runs_only_what_is_missing(gqa: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    clean, out = matrix_of(gqa), tmp_path / "run"
    monkeypatch.setattr(ablation, "answer_batch", Counted(stop_after=7))
    with pytest.raises(KeyboardInterrupt):
        matrix_of(gqa, out=out)
    monkeypatch.undo()
    total = 6 * (1 + 2 * (2 + 2))
    for missing in (total - 7, 0):
        spy = Counted()
        with monkeypatch.context() as patch:
            patch.setattr(ablation, "answer_batch", spy)
            found = matrix_of(gqa, out=out)
        assert len(spy.batches) == missing
        pd.testing.assert_frame_equal(found._table, clean._table)
    loaded = TransferMatrix.load(out)
    pd.testing.assert_frame_equal(loaded._table, clean._table)
    assert (loaded.metric, loaded.meta["ks"], loaded.meta["heads"]["two"]) == (
        "logprob",
        [1, 3],
        ["L0H3", "L2H1", "L1H0"],
    )
    with pytest.raises(ValueError, match="kind: zero in the folder, uniform now"):
        matrix_of(gqa, kind="uniform", out=out)


@pytest.mark.slow
def test_short_rankings_are_completed_at_random(gqa: Any) -> None:
    short = {"one": ["L2H1"], "two": ["L2H1"], "three": SOURCES["one"]}
    with pytest.warns(
        UserWarning, match=r"completed rankings shorter than k with random heads: one \(1 of 4\), two \(1 of 4\)"
    ):
        matrix = matrix_of(gqa, short, ks=(1, 4))
    assert matrix.meta["completed"] == {"one": 1, "two": 1}
    one, two = (parsed(matrix.meta["heads"][name]) for name in ("one", "two"))
    assert one[0] == two[0] == Head(2, 1)
    assert len(set(one)) == len(set(two)) == 4
    assert set(one) != set(two), "tasks do not share what chance adds"
    with pytest.warns(UserWarning, match="completed rankings shorter than k with random heads"):
        swapped = matrix_of(gqa, {"two": ["L2H1"], "one": ["L2H1"]}, ks=(1, 3))
    assert swapped.meta["heads"]["one"] == matrix.meta["heads"]["one"][:3], "nor depend on their order, or on k"
    with pytest.warns(UserWarning, match="completed rankings shorter than k with random heads"):
        other = matrix_of(gqa, short, ks=(4,), controls=lh.Controls("random", 2, 9))
    assert other.meta["heads"]["one"] != matrix.meta["heads"]["one"]


@pytest.mark.slow
@pytest.mark.usefixtures("alone")
def test_a_trial_that_fails_under_one_set_is_left_out_under_all(gqa: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    clean, spy = matrix_of(gqa)._table, Counted()
    spy.fail = lambda trial: len(spy.batches) == 2  # The first trial of the first task, under the second set of heads.
    monkeypatch.setattr(ablation, "answer_batch", spy)
    with (
        pytest.warns(UserWarning, match="excluded trials that failed under some set of heads: one: random-10"),
        pytest.warns(UserWarning, match=r"1 of \d+ failed"),
    ):
        found = matrix_of(gqa)
    assert found.meta["left_out"] == {"one": ["random-10"]}
    kept = clean[(clean["task"] != "one") | (clean["trial"] != "random-10")].reset_index(drop=True)
    pd.testing.assert_frame_equal(found._table, kept)


def test_a_task_that_always_fails_is_said(gqa: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ablation, "answer_batch", Counted(fail=lambda trial: trial.id == "random-40"))
    with (
        pytest.warns(UserWarning, match="failed"),
        pytest.raises(RuntimeError, match="task 'three': every trial failed"),
    ):
        matrix_of(gqa)


# What is refused


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "no tasks": ({"trials": {}}, "there are no tasks"),
    "empty task": ({"trials": {**TASKS, "four": []}}, "task 'four': there are no trials"),
    "reserved name": ({"trials": {**TASKS, "random": trials(1)}}, "task name 'random' is reserved"),
    "no rankings": ({"rankings": {}}, "there are no rankings"),
    "unknown source": ({"rankings": {"five": ["L0H0"]}}, "source 'five' has no trials; the tasks are one, two, three"),
    "empty ranking": ({"rankings": {"one": []}}, "ranking 'one' is empty"),
    "no such head": ({"rankings": {"one": ["L9H0"]}}, "head L9H0 does not exist"),
    "k below one": ({"ks": (0, 2)}, r"ks=\(0, 2\): must be positive integers"),
    "another control": ({"controls": "bottom"}, "unknown control 'bottom': here they are random"),
    "few trials": ({"controls": lh.Controls("random", trials=2)}, "controls.trials=2: random heads run on all trials"),
    "heads of no ranking": ({"controls": lh.Controls("random", of="nonsense")}, "controls.of='nonsense': there are no"),
    "unknown metric": ({"metric": "accuracy", "generate": True}, "metric 'accuracy' is not measured: there is rougeL"),
    "metric of text": (
        {"metric": "correct"},
        "'correct' is not measured: there is logprob, greedy_match, .*generate=True",
    ),
    "unknown kind": ({"kind": "erase"}, "unknown kind of ablation 'erase'"),
    "missing reference": ({"kind": "mean"}, "kind='mean' needs a reference"),
    "no room": ({"generate": True, "max_new_tokens": 500}, "task 'one': .*exceed the context window of 512"),
    "seen trials": (
        {"rankings": {"one": ranking(["L0H0"], trial_ids=("random-40", "s1"))}},
        "ranking 'one' was made on 1 of the trials, needles or groups .*'random-40'",
    ),
    "seen documents": (
        {"rankings": {"one": ranking(["L0H0"], made_on=(MadeOn("random-12"), MadeOn("s0")))}},
        "ranking 'one' was made on 1 of the trials, needles or groups .*'random-12'",
    ),
}


@pytest.mark.parametrize("call", WRONG.values(), ids=WRONG.keys())
def test_what_is_refused_is_refused_before_anything_is_run(
    gqa: Any, counted: Counted, call: Any, tmp_path: Path
) -> None:
    arguments, message = call
    with pytest.raises(ValueError, match=message):
        matrix_of(gqa, **{"out": tmp_path / "run", **arguments})
    assert counted.batches == []
    assert not (tmp_path / "run").exists()


def test_rankings_of_another_shape_are_refused(gqa: Any) -> None:
    wide = lh.HeadScores.from_trials("wide", torch.zeros(1, 3, 5), ["s"])
    with pytest.raises(ValueError, match="ranking 'two' is for a model of 3 layers x 5 heads"):
        matrix_of(gqa, {"one": SOURCES["one"], "two": wide})
    assert len(ALL) == 12
