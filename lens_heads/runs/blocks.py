"""Blocks that change a model: a `with` that is forgotten is told."""

from __future__ import annotations

import contextlib
import functools
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import ParamSpec, TypeVar

from lens_heads.runs.warned import users_line

Given = ParamSpec("Given")
Entered = TypeVar("Entered")


def block(function: Callable[Given, Iterator[Entered]]) -> Callable[Given, Block[Entered]]:
    """`contextlib.contextmanager`, whose contexts say that they do nothing until they are entered."""

    @functools.wraps(function)
    def call(*args: Given.args, **kwargs: Given.kwargs) -> Block[Entered]:
        return Block(function, args, kwargs)  # type: ignore[arg-type]  # a generator, as of `contextmanager`

    return call


class Block(contextlib._GeneratorContextManager[Entered, None, None]):
    """A context of `block`."""

    _decorates = False
    _entered = False

    def __enter__(self) -> Entered:
        if self._entered:
            name = self.gen.__name__  # type: ignore[attr-defined]  # a generator has one
            raise ValueError(f"this block has been entered before: call {name}(...) again for another `with`")
        self._entered = True
        return super().__enter__()

    def _recreate_cm(self) -> Block[Entered]:
        """A context of its own for each call of a function that this one decorates."""
        self._decorates = True
        return super()._recreate_cm()  # type: ignore[misc]  # of contextlib

    def __repr__(self) -> str:
        return f"<{self._said}>" if self._is_forgotten else super().__repr__()

    def __del__(self, ending: Callable[[], bool] = sys.is_finalizing) -> None:
        if self._is_forgotten and not ending():
            warnings.warn(self._said, stacklevel=users_line())

    @property
    def _is_forgotten(self) -> bool:
        return getattr(self, "gen", None) is not None and not self._decorates and not self._entered

    @property
    def _said(self) -> str:
        name = self.gen.__name__  # type: ignore[attr-defined]  # a generator has one
        return f"{name}(...) does nothing by itself: what is to run under it stands in a block, `with {name}(...):`"
