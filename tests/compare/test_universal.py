"""Heads that many tasks share: counted by hand, and against chance by simulation."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from lens_heads.compare.universal import universal_heads
from lens_heads.heads.head import Head
from lens_heads.heads.scores import HeadScores


def task(heads: list[str], shape: tuple[int, int] = (3, 4), **meta: Any) -> HeadScores:
    """Scores of which these heads are the lowest, in this order, the first -1; all others are 0."""
    values = torch.zeros(shape)
    for place, name in enumerate(heads):
        head = Head.parse(name)
        values[head.layer, head.head] = -1 + place / len(heads)
    return HeadScores.from_trials("css", values[None], ["t"], **{"best": "lowest", **meta})


TASKS = {
    "sums": task(["L0H0", "L0H1", "L2H3"]),
    "code": task(["L0H1", "L0H0", "L1H1"]),
    "facts": task(["L2H0", "L1H1", "L0H1"]),
    "plots": task(["L2H2", "L0H0", "L0H1"]),
}


def test_heads_are_counted_by_task() -> None:
    found = universal_heads(TASKS, k=3, at_least=3)
    assert found.heads == [Head(0, 1), Head(0, 0)], "in four tasks, in three"
    assert found.tasks[Head(0, 0)] == ("sums", "code", "plots")
    assert found.tasks[Head(0, 1)] == ("sums", "code", "facts", "plots")
    assert found.tasks[Head(1, 1)] == ("code", "facts")
    assert set(map(str, found.tasks)) == {"L0H0", "L0H1", "L1H1", "L2H0", "L2H2", "L2H3"}
    assert universal_heads(TASKS, k=3, at_least=2).heads == [Head(0, 1), Head(0, 0), Head(1, 1)]
    assert universal_heads(TASKS, k=2, at_least=3).heads == [Head(0, 0)], "among two heads of each"
    assert (found.k, found.at_least, found.n_tasks) == (3, 3, 4)
    assert repr(found).startswith("Universal(L0H1 (4), L0H0 (3): in the top 3 of at least 3 of 4 tasks; ")


def test_the_frame_has_every_head_of_any_task_the_most_shared_first() -> None:
    frame = universal_heads(TASKS, k=3, at_least=3).frame
    assert frame["head"].tolist() == ["L0H1", "L0H0", "L1H1", "L2H0", "L2H2", "L2H3"]
    assert frame["n_tasks"].tolist() == [4, 3, 2, 1, 1, 1]
    assert frame["universal"].tolist() == [True, True, False, False, False, False]
    assert frame["tasks"].tolist()[2:4] == ["code, facts", "facts"]


def test_specific_heads_are_the_best_of_the_others() -> None:
    found = universal_heads(TASKS, k=3, at_least=3)
    assert found.specific(TASKS["facts"], k=2) == [Head(2, 0), Head(1, 1)]
    assert found.specific(TASKS["sums"], k=1) == [Head(2, 3)]
    assert len(found.specific(TASKS["sums"])) == 3, "as many as were looked among"
    assert not set(found.specific(TASKS["sums"], k=10)) & set(found.heads)
    for k in (0, 11):
        with pytest.raises(
            ValueError, match=f"k={k}: must be an integer from 1 to 10, the heads of css that are not universal"
        ):
            found.specific(TASKS["sums"], k=k)


def test_zeros_are_no_tasks_heads() -> None:
    few = {name: task(["L2H3"]) for name in ("one", "two", "three")}
    found = universal_heads(few, k=5)
    assert found.heads == [Head(2, 3)]
    assert list(found.tasks) == [Head(2, 3)], "L0H0 to L1H0 come next in every ranking, for no reason"


def test_the_best_are_the_lowest_where_scores_say_so() -> None:
    highest = {name: task(["L0H0", "L0H1"], best="highest") for name in ("one", "two", "three")}
    assert universal_heads(highest, k=2).heads == [], "the highest of these are zeros"


@pytest.mark.slow
@pytest.mark.parametrize(("tasks", "k", "at_least"), [(4, 3, 2), (6, 5, 3), (3, 8, 3)])
def test_the_expected_number_is_that_of_random_heads(tasks: int, k: int, at_least: int) -> None:
    """Rankings at random, again and again, through the same function."""
    generator, counts = np.random.default_rng(0), []
    for _ in range(400):
        drawn = {
            str(i): HeadScores.from_trials("m", torch.from_numpy(generator.random((1, 3, 4)) + 0.1), ["t"])
            for i in range(tasks)
        }
        found = universal_heads(drawn, k=k, at_least=at_least)
        counts.append(len(found.heads))
    error = np.std(counts) / np.sqrt(len(counts))
    assert found.expected == pytest.approx(np.mean(counts), abs=4 * error)
    assert found.expected > 0.3


def test_bad_choices_are_refused() -> None:
    for at_least in (1, 5):
        with pytest.raises(
            ValueError, match=f"at_least={at_least}: must be an integer from 2 to 4, the number of tasks"
        ):
            universal_heads(TASKS, at_least=at_least)
    with pytest.raises(ValueError, match="there are no rankings"):
        universal_heads({})
    with pytest.raises(ValueError, match="k=0: must be a positive integer"):
        universal_heads(TASKS, k=0)
    with pytest.raises(ValueError, match="k=13: must be an integer from 0 to 12, the number of heads that css scores"):
        universal_heads(TASKS, k=13)
    with pytest.raises(ValueError, match=r"3 layers x 4 .* 2 layers x 4"):
        universal_heads({**TASKS, "other": task(["L0H0"], (2, 4))})
