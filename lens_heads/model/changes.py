"""Changes to a model that end with their `with` block: noted before they are made, and undone whatever interrupts them.

One thread at a time changes a model. Another one waits while a call of this package runs, and is refused while a user's own
block is open, which may itself be waiting for the other thread.

No lock says whose turn it is, but the list of open blocks, in which each has its place by one step: an interrupt between taking a
lock and noting who has it would keep every other thread out, and only the thread that took it could give it back. Nor does an
ExitStack undo the changes: it drops a callback before it runs it, so that an interrupted one would never be finished.
"""

from __future__ import annotations

import contextlib
import inspect
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

from lens_heads.runs import blocks

TRIES = 10
"""How often interrupted cleanup starts again, however often Ctrl-C is pressed."""
PAUSE = 0.002
"""Seconds between two looks at whether the other thread is done."""

_open: weakref.WeakKeyDictionary[Any, list[weakref.ref[changing]]] = weakref.WeakKeyDictionary()


class changing:  # noqa: N801  # Used as a context, like those built on it.
    """A context in which this thread may change the model: `note` how to undo a change, then make it.

    What an interrupted call left behind is undone first. The notes run in reverse at the end of the block, again if they are
    interrupted, and when the object is dropped without its block having ended; each must therefore do no harm when repeated.

    Raises ValueError if another thread has the model in a block of the user's own.
    """

    def __init__(self, model: Any) -> None:
        self._model = getattr(model, "original_model", model)  # Two bridges may share one model.
        self._undo: list[Callable[[], None]] = []
        self._thread = threading.current_thread()
        self._holder = _holder()
        self._done = self._started = False

    def __enter__(self) -> changing:
        try:
            while not self._starts():
                time.sleep(PAUSE)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def __del__(self) -> None:
        if not getattr(self, "_done", True):
            self.close()

    def note(self, undo: Callable[[], None]) -> None:
        """Remember how to undo what comes next."""
        self._undo.append(undo)

    def close(self) -> None:
        """Undo everything noted. An interrupt in between is raised when that is done."""
        failed: BaseException | None = None
        try:
            for _ in range(TRIES):
                try:
                    for undo in reversed(self._undo):
                        undo()
                    queue = _open.get(self._model, [])
                    for ref in [ref for ref in queue if ref() in (None, self)]:
                        with contextlib.suppress(ValueError):
                            queue.remove(ref)
                    self._done = True
                    break
                except BaseException as error:
                    failed = failed or error
            if failed is not None:
                raise failed
        finally:
            failed = None  # It would hold this frame, which holds it.

    def _starts(self) -> bool:
        """Whether it is this thread's turn: it has the model already, or came first. ValueError if that may never come."""
        queue = _open.setdefault(self._model, [])
        if not any(ref() is self for ref in queue):
            queue.append(weakref.ref(self))
        listed = [change for change in (ref() for ref in list(queue)) if change is not None]
        # The innermost first: an outer block gives back what was there before both.
        for left in [change for change in reversed(listed) if change is not self and change._is_left()]:
            left.close()
        listed = [change for change in listed if not change._done]
        mine = any(change._thread is self._thread and change._started for change in listed)
        others = [change for change in listed[: listed.index(self)] if change._thread is not self._thread]
        if mine or not others:
            self._started = True
            return True
        theirs = next((change for change in others if change._started and change._holder is None), None)
        if theirs is not None:
            raise ValueError(
                f"the model is in a `with` block of thread {theirs._thread.name!r}: leave that block first, or load the "
                "model again for this thread"
            )
        return False

    def _is_left(self) -> bool:
        """Whether the function of this package whose block this is has ended without closing it."""
        frame = sys._current_frames().get(self._thread.ident or 0) if self._holder is not None else None
        while frame is not None and (id(frame), frame.f_code) != self._holder:
            frame = frame.f_back
        return self._holder is not None and frame is None


def _holder() -> tuple[int, Any] | None:
    """The running function of this package whose block is being entered; None if the block is the user's.

    An id instead of the frame, which would keep alive what is to be noticed when it is dropped.
    """
    frame = sys._getframe(2)
    entering = (vars(contextlib), vars(blocks))
    while frame is not None and (
        frame.f_code.co_flags & inspect.CO_GENERATOR or any(frame.f_globals is one for one in entering)
    ):
        frame = frame.f_back
    ours = frame is not None and str(frame.f_globals.get("__name__")).startswith(f"{__name__.split('.')[0]}.")
    return (id(frame), frame.f_code) if frame is not None and ours else None


@contextlib.contextmanager
def replacing(model: Any, methods: Iterable[tuple[Any, str, Callable[..., Any]]]) -> Iterator[None]:
    """Inside, each object runs this function as its method of that name; afterwards its own, or its class's, is back."""
    with changing(model) as change:
        for owner, name, function in methods:
            own = vars(owner)
            change.note(partial(own.update, {name: own[name]}) if name in own else partial(own.pop, name, None))
            own[name] = function
        yield
