"""The loop over units of work: batches, progress and resuming. Work runs in this process, or in those of a crew."""

from __future__ import annotations

import sys
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import TypeVar

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from lens_heads.runs import parts
from lens_heads.runs.crew import Done, Driver, Member, current_crew, portable
from lens_heads.runs.memory import out_of_memory
from lens_heads.runs.shards import Key, Result
from lens_heads.runs.stopping import stoppable
from lens_heads.runs.store import RunFolder
from lens_heads.runs.warned import users_line

Item = TypeVar("Item")


def run(
    items: Sequence[Item],
    work: Callable[[list[Item]], list[Result]],
    key: Callable[[Item], Key] = attrgetter("id"),
    *,
    folder: RunFolder | None = None,
    batch_size: int | Callable[[Item], int] = 1,
    size: Callable[[Item], int] | None = None,
    group: Callable[[Item], Hashable] | None = None,
    progress: bool = True,
    description: str = "working",
) -> list[Result]:
    """Results of `work` for every item, in order. Finished ones are read from the folder, new ones stored under their `key`.

    A batch never mixes items of different `group`, whose first item may say its `batch_size`; within a group, `size` batches
    items of similar size. A batch that raises is retried in halves, with one warning because that is slower; where memory ran
    out, later batches are no larger than its halves. An item that raises becomes a result with `keep=False` and its error in the
    record; it is reported in a warning, not stored, and retried on the next run. If every item raises, the first error is
    raised. Errors are kept without their frames' variables. With a folder, two items of one key are a ValueError, SIGTERM ends
    the run as Ctrl-C does, and `parts.sharding` leaves some of the batches to other processes.
    """
    crew = current_crew()
    if isinstance(crew, Member):
        return crew.serve(lambda batch: _done(work, [(i, items[i]) for i in batch], _Failures(description)))
    results = {} if folder is None else _stored(folder, [key(item) for item in items])
    part, failures, started = None if folder is None else parts.current(), _Failures(description), time.monotonic()
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with stoppable(folder.path if folder else None), Progress(*columns, transient=True, disable=not progress) as bar:
        task = bar.add_task(description, total=len(items), completed=len(results))
        # All parts follow one plan, that of everything.
        todo = [i for i in range(len(items)) if part is not None or i not in results]
        batches = list(_batches(items, todo, batch_size, size, group))
        if crew is not None or part is not None:
            # The longest first, so that none is left for the end.
            batches = batches if size is None else sorted(batches, key=lambda one: -sum(size(items[i]) for i in one))
        if part is not None:
            batches = [left for batch in part.mine(batches) if (left := [i for i in batch if i not in results])]
        if crew is None:
            finished = (done for batch in batches for done in _attempt(work, [(i, items[i]) for i in batch], failures))
        else:
            finished = _shared(crew, batches, failures)
        for i, result in finished:
            results[i] = result
            if folder is not None and result.keep:
                folder.write(key(items[i]), result)
            bar.advance(task)
    if failures.first is not None:
        asked = len(items) if part is None else sum(map(len, batches))
        if failures.items == asked:
            raise failures.first
        bad = next((i for i in sorted(results) if results[i].record.get("outcome") == "error"), None)
        name = "" if bad is None else str(getattr(getattr(items[bad], "trial", items[bad]), "id", ""))
        said = _text(failures.first) if bad is None else str(results[bad].record["error"])
        which = f", {name}" if name and name not in said else ""
        summary = f"{description}: {failures.items} of {asked} failed; the first{which}: {said}"
        warnings.warn(summary, stacklevel=users_line())
    if part is not None and folder is not None:
        missing = {i: key(items[i]) for i in range(len(items)) if i not in results}
        results |= part.others(folder, missing, (time.monotonic() - started) / max(1, len(batches)))
    if crew is not None:
        crew.tell([results[i] for i in range(len(items))])
    return [results[i] for i in range(len(items))]


def _stored(folder: RunFolder, keys: list[Key]) -> dict[int, Result]:
    """Finished results by index, with one warning if some are damaged. ValueError for a key that appears twice."""
    twice = next((key for key, times in Counter(keys).items() if times > 1), None)
    if twice is not None:
        raise ValueError(f"two units of this run are called {twice!r}: give every trial an id of its own")
    before = len(folder.damaged)
    found = {i: result for i, key in enumerate(keys) if (result := folder.read(key)) is not None}
    damaged = folder.damaged[before:]
    if damaged:
        warnings.warn(
            f"damaged results are computed anew: {len(damaged)} of {len(keys)}, the first {damaged[0]}",
            stacklevel=users_line(),
        )
    return found


def _batches(
    items: Sequence[Item],
    todo: list[int],
    batch_size: int | Callable[[Item], int],
    size: Callable[[Item], int] | None,
    group: Callable[[Item], Hashable] | None,
) -> Iterator[list[int]]:
    groups: dict[Hashable, list[int]] = {}
    for i in todo:
        groups.setdefault(group(items[i]) if group is not None else None, []).append(i)
    for members in groups.values():
        most = batch_size(items[members[0]]) if callable(batch_size) else batch_size
        if size is not None and most > 1:
            members.sort(key=lambda i: size(items[i]))
        for start in range(0, len(members), most):
            yield members[start : start + most]


def _shared(crew: Driver, batches: list[list[int]], failures: _Failures) -> Iterator[tuple[int, Result]]:
    """Results by index, from the members of a crew."""
    for done in crew.share(batches):
        failures.items += done.failed
        failures.first = failures.first or done.error
        yield from done.results


def _done(work: Callable[[list[Item]], list[Result]], batch: list[tuple[int, Item]], failures: _Failures) -> Done:
    """What became of one batch here."""
    results = list(_attempt(work, batch, failures))
    return Done(results, failures.items, portable(failures.first) if failures.first else None)


def _attempt(
    work: Callable[[list[Item]], list[Result]], batch: list[tuple[int, Item]], failures: _Failures
) -> Iterator[tuple[int, Result]]:
    """Results by index: those of the whole batch, or, if it raises or is too large, of one half after the other."""
    done = None
    if len(batch) <= failures.most:
        try:
            done = work([item for _, item in batch])
        except Exception as error:
            failures.note(error, len(batch))
            if len(batch) == 1:
                done = [Result({}, {"outcome": "error", "error": _text(error)}, keep=False)]
    if done is None:
        half = (len(batch) + 1) // 2
        yield from _attempt(work, batch[:half], failures)
        yield from _attempt(work, batch[half:], failures)
    else:
        yield from [(i, result) for (i, _), result in zip(batch, done, strict=True)]


@dataclass
class _Failures:
    """What has failed so far: the number of single items, the first of their errors, and whether a batch was split.

    `most`: how many items may run together, after memory ran out with more.
    """

    description: str
    items: int = 0
    first: Exception | None = None
    split: bool = False
    most: int = sys.maxsize

    def note(self, error: Exception, size: int) -> None:
        """Record an error and clear the variables of its frames, which hold the tensors of the failed run."""
        seen: BaseException | None = error
        while seen is not None:
            traceback.clear_frames(seen.__traceback__)
            seen = seen.__cause__ or seen.__context__
        if out_of_memory(error):
            self.most = max(1, size // 2)
        if size == 1:
            self.items, self.first = self.items + 1, self.first or error
        elif not self.split:
            self.split = True
            warnings.warn(
                f"{self.description}: a batch of {size} failed ({_text(error)}). Failed batches are retried in halves, "
                "which is slower; if memory ran out, use a smaller batch_size",
                stacklevel=users_line(),
            )


def _text(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
