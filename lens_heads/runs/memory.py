"""Memory that runs out: recognized on every device, and answered with half as much at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import torch

Item = TypeVar("Item")
Done = TypeVar("Done")

_TEXTS = ("out of memory", "can't allocate memory")
"""Of errors that have no class of their own: MPS, the CPU's allocator."""


def out_of_memory(error: BaseException) -> bool:
    """Whether memory ran out, on a GPU or in this process."""
    own = isinstance(error, torch.OutOfMemoryError | MemoryError)
    return own or (isinstance(error, RuntimeError) and any(text in str(error) for text in _TEXTS))


def in_parts(
    work: Callable[[Sequence[Item]], Done], items: Sequence[Item], most: int
) -> Iterator[tuple[Sequence[Item], Done]]:
    """`work` on all items in order, at most so many at a time; half as many from where memory runs out, down to one."""
    start = 0
    while start < len(items):
        part = items[start : start + most]
        try:
            done = work(part)
        except Exception as error:
            if len(part) == 1 or not out_of_memory(error):
                raise
            most = len(part) // 2
            continue
        yield part, done
        start += len(part)
