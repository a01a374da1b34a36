"""The last rows of tensors in several forwards, each tensor's in one piece of memory that rarely grows.

Small pieces that stay, taken one by one between the large ones of a growing cache, would keep the allocator from using again what
the cache gives back: the peak of a long prompt grew by a third.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from jaxtyping import Float
from torch import Tensor

from lens_heads.model.geometry import Model
from lens_heads.model.hooks import hooked

ROOM = 64
"""Rows for which there is room at first, beside those of the first forward."""


class LastRows:
    """Of every tensor that is added, its last `each` rows, which stand in dimension `dim`."""

    def __init__(self, each: int, dim: int = 1) -> None:
        self.each, self.dim = each, dim
        self._held: Float[Tensor, "row ..."] | None = None
        self._filled = 0

    def __len__(self) -> int:
        return self._filled

    def add(self, x: Float[Tensor, "..."]) -> None:
        rows = x.detach().movedim(self.dim, 0)[-self.each :]
        end = self._filled + len(rows)
        if self._held is None or end > len(self._held):
            wider = rows.new_empty(max(2 * self._filled, end + ROOM), *rows.shape[1:])
            if self._held is not None:
                wider[: self._filled] = self._held[: self._filled]
            self._held = wider
        self._held[self._filled : end] = rows
        self._filled = end

    def get(self) -> Float[Tensor, "..."]:
        """All rows so far, in the shape of what was added."""
        assert self._held is not None
        return self._held[: self._filled].movedim(0, self.dim)


@contextmanager
def keeping_last_rows(model: Model, names: Sequence[str], each: int) -> Iterator[dict[str, LastRows]]:
    """Inside, every forward adds its last rows at each of these hooks."""

    def add(x: Tensor, hook: Any, kept: LastRows) -> None:
        kept.add(x)

    kept = {name: LastRows(each) for name in names}
    with hooked(model, [(name, partial(add, kept=rows)) for name, rows in kept.items()]):
        yield kept
