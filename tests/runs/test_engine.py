"""The loop over work: order, batches, resume, failures, interruption."""

from __future__ import annotations

import gc
import warnings
import weakref
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch

from lens_heads.runs import engine
from lens_heads.runs.shards import Result
from lens_heads.runs.store import RunFolder

ITEMS = [f"item {i}" for i in range(7)]


class Work:
    """Remembers its batches; raises on batches holding a bad item."""

    def __init__(
        self, bad: tuple[str, ...] = (), error: type[BaseException] = RuntimeError, only_batches: bool = False
    ) -> None:
        self.batches: list[list[str]] = []
        self.bad, self.error, self.only_batches = bad, error, only_batches

    def __call__(self, batch: list[str]) -> list[Result]:
        self.batches.append(list(batch))
        for item in batch:
            if item in self.bad and not (self.only_batches and len(batch) == 1):
                raise self.error(f"{item} is bad")
        return [
            Result({"x": torch.tensor([float(item.split()[1])])}, {"outcome": "passed", "item": item}) for item in batch
        ]

    @property
    def done(self) -> list[str]:
        return [item for batch in self.batches for item in batch]


def run(work: Any, items: list[str] = ITEMS, **options: Any) -> list[Result]:
    return engine.run(items, work, key=lambda item: item, progress=False, description="testing", **options)


def items_of(results: list[Result]) -> list[str | None]:
    return [result.record.get("item") for result in results]


@pytest.mark.parametrize("batch_size", [1, 2, 3, 7, 50])
def test_results_come_in_the_order_of_the_items(batch_size: int) -> None:
    work = Work()
    order = {item: -i for i, item in enumerate(ITEMS)}
    assert items_of(run(work, batch_size=batch_size, size=lambda item: order[item])) == ITEMS
    assert sorted(work.done) == ITEMS
    assert all(len(batch) <= batch_size for batch in work.batches)
    assert len(work.batches) == -(-7 // batch_size)


def test_batches_hold_items_of_like_size() -> None:
    sizes = dict(zip(ITEMS, [9, 1, 8, 2, 9, 1, 8], strict=True))
    work = Work()
    run(work, batch_size=2, size=sizes.__getitem__)
    assert [sorted(sizes[item] for item in batch) for batch in work.batches] == [[1, 1], [2, 8], [8, 9], [9]]


def test_no_items_are_no_results_and_no_work() -> None:
    work = Work()
    assert run(work, items=[]) == []
    assert work.batches == []


@pytest.mark.parametrize("batch_size", [1, 3])
def test_resume_reads_finished_work_and_runs_only_the_rest(tmp_path: Path, batch_size: int) -> None:
    folder = RunFolder(tmp_path / "run", {})
    run(Work(), items=ITEMS[2:5], folder=folder)
    work = Work()
    results = run(work, folder=folder, batch_size=batch_size)
    assert items_of(results) == ITEMS
    assert [float(result.arrays["x"]) for result in results] == list(range(7))
    assert work.done == [*ITEMS[:2], *ITEMS[5:]]
    third = Work()
    assert items_of(run(third, folder=folder)) == ITEMS
    assert third.batches == []


def test_each_batch_is_stored_before_the_next_begins(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run", {})
    stored: list[int] = []

    def work(batch: list[str]) -> list[Result]:
        stored.append(len(list(folder.shards.glob("*.safetensors"))))
        return Work()(batch)

    run(work, folder=folder, batch_size=2)
    assert stored == [0, 2, 4, 6]


def test_a_half_written_shard_is_done_again(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run", {})
    run(Work(), folder=folder)
    file = folder._file(ITEMS[3])
    file.write_bytes(file.read_bytes()[:-2])
    folder._file(ITEMS[5]).rename(folder._file(ITEMS[5]).with_suffix(".99.partial"))
    work = Work()
    assert items_of(run(work, folder=folder)) == ITEMS
    assert work.done == [ITEMS[3], ITEMS[5]]


def test_a_batch_that_raises_is_tried_again_in_halves() -> None:
    """Too large together, fine alone: every item succeeds, and the slowdown is warned about."""
    work = Work(bad=(ITEMS[1],), only_batches=True)
    match = r"testing: a batch of 4 failed \(RuntimeError: item 1 is bad\)\. .* in halves, .*smaller batch_size"
    with pytest.warns(UserWarning, match=match):
        assert items_of(run(work, batch_size=4)) == ITEMS
    assert work.batches == [ITEMS[:4], ITEMS[:2], [ITEMS[0]], [ITEMS[1]], ITEMS[2:4], ITEMS[4:]]


def test_split_batches_are_warned_about_once_and_before_the_slow_work() -> None:
    work = Work(bad=tuple(ITEMS), only_batches=True)
    seen_at: list[int] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")

        def counted(batch: list[str]) -> list[Result]:
            seen_at.append(len(caught))
            return work(batch)

        assert items_of(run(counted, batch_size=3)) == ITEMS
    assert [len(batch) for batch in work.batches] == [3, 2, 1, 1, 1, 3, 2, 1, 1, 1, 1]
    assert seen_at == [0, *[1] * 10]
    assert len(caught) == 1


@pytest.mark.parametrize("batch_size", [1, 4])
def test_an_item_that_raises_is_reported_not_stored_and_tried_again(tmp_path: Path, batch_size: int) -> None:
    folder = RunFolder(tmp_path / "run", {})
    bad = (ITEMS[1], ITEMS[6])
    with pytest.warns(UserWarning, match="testing: 2 of 7 failed; the first: RuntimeError: item 1 is bad"):
        results = run(Work(bad), folder=folder, batch_size=batch_size)
    assert items_of(results) == [None if item in bad else item for item in ITEMS]
    assert results[1].record == {"outcome": "error", "error": "RuntimeError: item 1 is bad"}
    assert results[1].arrays == {}
    assert not results[1].keep
    assert folder.read(ITEMS[1]) is None
    second = Work()
    assert items_of(run(second, folder=folder, batch_size=batch_size)) == ITEMS
    assert sorted(second.done) == sorted(bad)


def test_a_result_not_to_be_kept_is_returned_and_not_stored(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run", {})
    results = run(lambda batch: [Result({}, {"item": item}, keep=False) for item in batch], folder=folder)
    assert items_of(results) == ITEMS
    assert not list(folder.shards.iterdir())


@pytest.mark.parametrize("batch_size", [1, 3, 7])
def test_when_everything_fails_the_first_error_is_raised(batch_size: int) -> None:
    with pytest.raises(KeyError, match="item 0 is bad"):
        run(Work(tuple(ITEMS), KeyError), batch_size=batch_size)


def test_when_all_the_rest_fails_what_was_finished_is_still_returned(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run", {})
    run(Work(), items=ITEMS[:3], folder=folder)
    with pytest.warns(UserWarning, match="4 of 7 failed"):
        assert items_of(run(Work(tuple(ITEMS)), folder=folder)) == [*ITEMS[:3], None, None, None, None]


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_an_interruption_stops_at_once_and_keeps_what_is_finished(tmp_path: Path, error: type[BaseException]) -> None:
    folder = RunFolder(tmp_path / "run", {})
    first = Work((ITEMS[4],), error)
    with pytest.raises(error):
        run(first, folder=folder, batch_size=2)
    assert first.done == ITEMS[:6]
    second = Work()
    assert items_of(run(second, folder=folder, batch_size=2)) == ITEMS
    assert second.done == ITEMS[4:]


def test_an_interruption_among_single_retries_keeps_those_already_done(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run", {})

    def work(batch: list[str]) -> list[Result]:
        if len(batch) > 1:
            raise MemoryError("too large together")
        if batch == [ITEMS[2]]:
            raise KeyboardInterrupt
        return Work()(batch)

    with pytest.raises(KeyboardInterrupt):
        run(work, folder=folder, batch_size=4)
    second = Work()
    assert items_of(run(second, folder=folder)) == ITEMS
    assert second.done == ITEMS[2:]


def test_work_that_returns_too_few_results_is_noticed() -> None:
    with pytest.raises(ValueError, match="zip"):
        run(lambda batch: Work()(batch)[:-1], batch_size=3)


@pytest.mark.slow
@pytest.mark.parametrize("batch_size", [1, 4])
def test_errors_hold_no_tensors_of_the_runs_that_failed(batch_size: int) -> None:
    """Four failures kept 400 MB: a traceback holds the frames it went through, and these their variables."""
    alive: list[weakref.ref[torch.Tensor]] = []

    def work(batch: list[str]) -> list[Result]:
        large = torch.zeros(1000)
        alive.append(weakref.ref(large))
        if len(alive) > 2:
            assert alive[-2]() is None, "the variables of the last run are gone before the next begins"
        try:
            raise MemoryError("inside")
        except MemoryError as error:
            raise RuntimeError(f"{len(large)} too many for {batch}") from error

    warned = pytest.warns(UserWarning, match="failed") if batch_size > 1 else nullcontext()
    with warned, pytest.raises(RuntimeError, match="too many for") as raised:
        run(work, batch_size=batch_size)
    gc.collect()
    assert [tensor() for tensor in alive] == [None] * len(alive)
    assert raised.traceback, "where it happened is still said"


def test_where_memory_runs_out_later_batches_are_half_as_large() -> None:
    sizes: list[int] = []

    def work(batch: list[str]) -> list[Result]:
        sizes.append(len(batch))
        if len(batch) > 2:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return [Result({}, {"item": item}) for item in batch]

    with pytest.warns(UserWarning, match="a batch of 4 failed"):
        results = engine.run(ITEMS, work, str, batch_size=4, progress=False)
    assert [result.record["item"] for result in results] == ITEMS
    assert sizes[0] == 4
    assert max(sizes[1:]) == 2


def test_a_group_says_how_many_of_it_run_together() -> None:
    sizes: list[int] = []

    def work(batch: list[str]) -> list[Result]:
        sizes.append(len(batch))
        return [Result({}, {}) for _ in batch]

    def alone(item: str) -> bool:
        return item == ITEMS[0]

    engine.run(ITEMS, work, str, group=alone, batch_size=lambda item: 1 if alone(item) else 2, progress=False)
    assert sizes == [1, 2, 2, 2]
