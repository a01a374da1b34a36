"""How a run ends early: SIGTERM ends it as Ctrl-C does, and both say how to continue it."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType


class PartDone(BaseException):
    """A part has done its share, and the call cannot go on without the others'. No error, so nothing may swallow it."""


@contextmanager
def stoppable(folder: Path | None) -> Iterator[None]:
    """Inside, SIGTERM raises KeyboardInterrupt, unless the program handles it itself; its note names the run folder."""
    with _terminating():
        try:
            yield
        except KeyboardInterrupt as stopped:
            if folder is not None:
                stopped.add_note(f"Finished work is kept in {folder}: the same call continues the run.")
            raise


@contextmanager
def _terminating() -> Iterator[None]:
    in_main = threading.current_thread() is threading.main_thread()
    if not in_main or signal.getsignal(signal.SIGTERM) != signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGTERM, _as_interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _as_interrupt(number: int, frame: FrameType | None) -> None:
    """Do what Ctrl-C would do; also where Ctrl-C is ignored, as for programs in the background."""
    interrupt = signal.getsignal(signal.SIGINT)
    (interrupt if callable(interrupt) else signal.default_int_handler)(number, frame)
