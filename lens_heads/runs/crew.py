"""A crew: processes that run the same call side by side and share the units of its loops.

Every member runs the whole call with a model of its own. Where the call comes to a loop over units (`engine.run`), the driver
hands out batches, receives their results, stores them, and in the end gives all results to everyone, so that all go on alike. So
a call with several loops, each of which depends on the one before, needs nothing of its own.

What is handed out is fixed before anything runs: the number of members changes nothing but time.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from lens_heads.runs.shards import Result


@dataclass(frozen=True)
class Done:
    """What became of a batch: results by index, how many items raised, the first error, and the work it took."""

    results: list[tuple[int, Result]]
    failed: int = 0
    error: Exception | None = None
    work: int = 0


@runtime_checkable
class Driver(Protocol):
    """The side that hands out batches."""

    def share(self, batches: Sequence[list[int]]) -> Iterator[Done]:
        """What became of every batch, in the order in which they end."""
        ...

    def tell(self, results: list[Result]) -> None:
        """Give the results of a whole loop to all members."""
        ...


@runtime_checkable
class Member(Protocol):
    """The side that works."""

    def serve(self, work: Callable[[list[int]], Done]) -> list[Result]:
        """Work on batches until the loop is over; its results."""
        ...


_CREW: ContextVar[Driver | Member | None] = ContextVar("crew", default=None)


def current_crew() -> Driver | Member | None:
    """The crew that the running call belongs to."""
    return _CREW.get()


@contextmanager
def in_crew(side: Driver | Member) -> Iterator[None]:
    """Inside, loops are shared with the rest of the crew."""
    token = _CREW.set(side)
    try:
        yield
    finally:
        _CREW.reset(token)


def portable(error: Exception) -> Exception:
    """The error without its frames; as a RuntimeError with the same text, if it cannot be sent to another process."""
    error = error.with_traceback(None)
    error.__cause__ = error.__context__ = None
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error
