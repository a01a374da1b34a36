"""Parts of a run: disjoint, complete, in one folder, side by side or one after the other."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import lens_heads as lh
from lens_heads.runs import engine, parts
from lens_heads.runs.parts import Part, named, sharding
from lens_heads.runs.shards import Result
from lens_heads.runs.stopping import PartDone
from lens_heads.runs.store import RunFolder
from tests.conftest import random_trial, tiny

ARRAY = ("ID", "COUNT", "MIN", "STEP")
VARIABLES = ("RANK", "WORLD_SIZE", "SLURM_PROCID", "SLURM_NTASKS", *(f"SLURM_ARRAY_TASK_{name}" for name in ARRAY))


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "PATIENCE", 0.0)


def loop(folder: Path, done: list[int], n: int = 9, bad: int | None = None, **options: Any) -> list[Result]:
    """A run over numbers; `done` collects what this process computes."""

    def work(batch: list[int]) -> list[Result]:
        if bad in batch:
            raise RuntimeError("bad")
        done.extend(batch)
        return [Result({"x": torch.tensor([i])}, {"i": i}) for i in batch]

    where = RunFolder(folder, {"n": n})
    return engine.run(list(range(n)), work, str, folder=where, progress=False, **options)


def files(folder: Path) -> dict[Path, bytes]:
    return {file.relative_to(folder): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def values(results: list[Result]) -> list[int]:
    return [int(result.arrays["x"]) for result in results]


@given(n=st.integers(0, 40), of=st.integers(1, 9), batch=st.integers(1, 5))
def test_parts_are_disjoint_and_complete(n: int, of: int, batch: int) -> None:
    batches = list(engine._batches(list(range(n)), list(range(n)), batch, None, None))
    mine = [Part(index, of).mine(batches) for index in range(of)]
    assert sorted(i for one in mine for batch_ in one for i in batch_) == list(range(n))
    assert max(map(len, mine)) - min(map(len, mine)) <= 1


@pytest.mark.parametrize("batch_size", [1, 2])
def test_one_after_the_other(tmp_path: Path, batch_size: int) -> None:
    first: list[int] = []
    second: list[int] = []
    third: list[int] = []
    options: dict[str, Any] = {"batch_size": batch_size, "size": lambda i: i % 4}
    with sharding("0/2"), pytest.raises(PartDone, match=r"part 0/2 is done; \d units of other parts are missing"):
        loop(tmp_path, first, **options)
    with sharding("0/2"), pytest.raises(PartDone):
        loop(tmp_path, second, **options)
    assert second == []  # Its part is done.
    with sharding("1/2"):
        assert values(loop(tmp_path, second, **options)) == list(range(9))  # The last part has everything.
    assert values(loop(tmp_path, third, **options)) == list(range(9))
    assert sorted(first + second) == list(range(9))
    assert third == []
    assert abs(len(first) - len(second)) <= batch_size


@pytest.mark.slow
def test_side_by_side(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each waits for the other, through two loops of which the second needs the first."""
    monkeypatch.setattr(parts, "PATIENCE", 20.0)
    done: dict[int, list[int]] = {0: [], 1: []}
    found: dict[int, tuple[list[int], list[int]]] = {}

    def run(index: int) -> None:
        with sharding(Part(index, 2)):
            one = values(loop(tmp_path / "one", done[index]))
            found[index] = one, values(loop(tmp_path / "two", done[index], n=len(one) + 1))

    threads = [threading.Thread(target=run, args=(index,)) for index in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert found[0] == found[1] == (list(range(9)), list(range(10)))
    assert sorted(done[0] + done[1]) == sorted([*range(9), *range(10)])


def test_what_fails_in_a_part_is_missing_in_the_others(tmp_path: Path) -> None:
    with sharding("0/2"), pytest.warns(UserWarning, match="1 of 5 failed"):  # noqa: SIM117
        with pytest.raises(PartDone, match="4 units"):
            loop(tmp_path, [], bad=2)
    with sharding("1/2"), pytest.raises(PartDone, match="1 units"):
        loop(tmp_path, [])
    done: list[int] = []
    assert values(loop(tmp_path, done)) == list(range(9))
    assert done == [2]


def test_without_a_folder_a_call_runs_whole() -> None:
    with sharding("1/2"):
        scores = lh.score_heads(
            tiny("llama-gqa"), [random_trial(i) for i in range(3)], "locos", teacher_forced=True, progress=False
        )
    assert len(scores["locos"].trial_ids) == 3
    assert parts.current() is None


@pytest.mark.slow
def test_parts_of_scores_leave_the_folder_of_one_process(tmp_path: Path) -> None:
    model, trials = tiny("llama-gqa"), [random_trial(seed, n=20 + seed) for seed in range(5)]

    def score(name: str) -> Any:
        return lh.score_heads(model, trials, teacher_forced=True, out=tmp_path / name, progress=False)

    score("whole")
    with sharding("0/2"), pytest.raises(PartDone):
        score("parts")
    with sharding("1/2"):
        score("parts")
    score("parts")
    assert files(tmp_path / "parts") == files(tmp_path / "whole")


@pytest.mark.parametrize(
    ("variables", "part"),
    [
        ({"RANK": "3", "WORLD_SIZE": "8", "SLURM_PROCID": "0"}, "3/8"),
        ({"SLURM_ARRAY_TASK_ID": "2", "SLURM_ARRAY_TASK_COUNT": "4"}, "2/4"),
        ({"SLURM_ARRAY_TASK_ID": "4", "SLURM_ARRAY_TASK_COUNT": "4", "SLURM_ARRAY_TASK_MIN": "1"}, "3/4"),
        ({"SLURM_ARRAY_TASK_ID": "6", "SLURM_ARRAY_TASK_COUNT": "4", "SLURM_ARRAY_TASK_STEP": "2"}, "3/4"),
        ({"SLURM_PROCID": "1", "SLURM_NTASKS": "2"}, "1/2"),
    ],
)
def test_the_scheduler_says_which(variables: dict[str, str], part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert str(named("auto")) == part


@pytest.mark.parametrize("text", ["2/2", "1", "-1/2", "0/0", "a/b", "0/2/3", ""])
def test_parts_that_cannot_be(text: str) -> None:
    with pytest.raises(ValueError, match="use i/n"):
        named(text)


def test_variables_that_are_no_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(ValueError, match="neither RANK"):
        named("auto")
    monkeypatch.setenv("SLURM_ARRAY_TASK_ID", "1")
    with pytest.raises(ValueError, match="SLURM_ARRAY_TASK_COUNT=''"):
        named("auto")
