"""The loop over units of work: batches, progress, resume. Work runs in this process; a cluster would plug in here."""

from __future__ import annotations

import traceback
import warnings
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from lens_heads.runs.store import Result, RunFolder

Item = TypeVar("Item")


def run(
    items: Sequence[Item],
    work: Callable[[list[Item]], list[Result]],
    key: Callable[[Item], str],
    *,
    folder: RunFolder | None = None,
    batch_size: int = 1,
    size: Callable[[Item], int] | None = None,
    group: Callable[[Item], Hashable] | None = None,
    progress: bool = True,
    description: str = "working",
) -> list[Result]:
    """Results of `work` for every item, in order; finished ones are read from the folder, new ones stored at once.

    A batch never mixes items of different `group`, and within a group `size` puts items of like size together. A batch
    that raises is tried again one by one (warned about once: that is slower), and an item that raises becomes a result
    with `keep=False` and its error in the record: it is warned about, not stored, and tried again on the next run. When
    every single item raises, the first error is raised. Errors are kept without the variables of their frames.
    """
    results: dict[int, Result] = {}
    for i, item in enumerate(items):
        stored = folder.read(key(item)) if folder is not None else None
        if stored is not None:
            results[i] = stored
    todo = [i for i in range(len(items)) if i not in results]
    failed = Failures()
    with _bar(progress, description, len(items), len(results)) as advance:
        for batch in _batches(items, todo, batch_size, size, group):
            for part in _attempt(work, [(i, items[i]) for i in batch], failed):
                if not part and failed.batches == 1:
                    warnings.warn(
                        f"{description}: a batch of {len(batch)} failed ({failed.batch}). Failed batches are run again one by "
                        "one, which is slower: use a smaller batch_size if memory ran out",
                        stacklevel=3,
                    )
                for i, result in part:
                    results[i] = result
                    if folder is not None and result.keep:
                        folder.write(key(items[i]), result)
                advance(len(part))
    if failed.first is not None:
        if failed.items == len(items):
            raise failed.first
        warnings.warn(
            f"{description}: {failed.items} of {len(items)} failed; the first: {_told(failed.first)}", stacklevel=3
        )
    return [results[i] for i in range(len(items))]


def _batches(
    items: Sequence[Item],
    todo: list[int],
    batch_size: int,
    size: Callable[[Item], int] | None,
    group: Callable[[Item], Hashable] | None,
) -> Iterator[list[int]]:
    groups: dict[Hashable, list[int]] = {}
    for i in todo:
        groups.setdefault(group(items[i]) if group is not None else None, []).append(i)
    for members in groups.values():
        if size is not None and batch_size > 1:
            members.sort(key=lambda i: size(items[i]))
        for start in range(0, len(members), batch_size):
            yield members[start : start + batch_size]


@dataclass
class Failures:
    """What went wrong so far: single items with their first error, whole batches with the first one's text."""

    items: int = 0
    batches: int = 0
    first: Exception | None = None
    batch: str = ""

    def note(self, error: Exception, alone: bool) -> None:
        """Count an error. The variables of its frames are let go: they hold the tensors of the failed run."""
        seen: BaseException | None = error
        while seen is not None:
            traceback.clear_frames(seen.__traceback__)
            seen = seen.__cause__ or seen.__context__
        if alone:
            self.items, self.first = self.items + 1, self.first or error
        else:
            self.batches, self.batch = self.batches + 1, self.batch or _told(error)


def _told(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def _attempt(
    work: Callable[[list[Item]], list[Result]], batch: list[tuple[int, Item]], failed: Failures
) -> Iterator[list[tuple[int, Result]]]:
    """Results with their indices as they are ready: the whole batch at once, or one by one after it raised."""
    try:
        done = work([item for _, item in batch])
    except Exception as error:
        alone = len(batch) == 1
        failed.note(error, alone)
        done = [Result({}, {"outcome": "error", "error": _told(error)}, keep=False)] if alone else None
    if done is not None:
        yield [(i, result) for (i, _), result in zip(batch, done, strict=True)]
        return
    yield []  # Lets the caller say so before the slower work begins.
    for one in batch:
        yield from _attempt(work, [one], failed)


class _bar:  # noqa: N801 - used like a function
    """A progress bar that also works in Jupyter, or nothing at all."""

    def __init__(self, show: bool, description: str, total: int, done: int) -> None:
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        self.bar = Progress(*columns, transient=True, disable=not show)
        self.task = self.bar.add_task(description, total=total, completed=done)

    def __enter__(self) -> Callable[[int], None]:
        self.bar.start()
        return lambda n: self.bar.advance(self.task, n)

    def __exit__(self, *_: object) -> None:
        self.bar.stop()
