"""Blocks that change a model: a `with` that is forgotten is told."""

from __future__ import annotations

import contextlib
import functools
import inspect
import warnings
from collections.abc import Callable, Iterator
from typing import Any, ParamSpec, TypeVar

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

    def _recreate_cm(self) -> Block[Entered]:
        """A context of its own for each call of a function that this one decorates."""
        self._decorates = True
        return super()._recreate_cm()  # type: ignore[misc]  # of contextlib

    def __repr__(self) -> str:
        return f"<{self._said}>" if self._is_forgotten else super().__repr__()

    def __del__(self) -> None:
        if self._is_forgotten:
            warnings.warn(self._said, stacklevel=users_line())

    @property
    def _is_forgotten(self) -> bool:
        generator: Any = getattr(self, "gen", None)
        return (
            generator is not None
            and not self._decorates
            and inspect.getgeneratorstate(generator) == inspect.GEN_CREATED
        )

    @property
    def _said(self) -> str:
        name = self.gen.__name__  # type: ignore[attr-defined]  # a generator has one
        return f"{name}(...) does nothing by itself: what is to run under it stands in a block, `with {name}(...):`"
