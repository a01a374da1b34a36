"""code_of: what a user's own function is, so that run folders can tell one from another."""

from __future__ import annotations

import functools
import inspect
from typing import Any


def code_of(function: Any) -> str:
    """A text that changes when a function does and is the same in every process, so that run folders can identify it.

    It consists of the source, the defaults and the closure variables; for a callable object, of its class and state.
    """
    if isinstance(function, functools.partial):
        return f"{code_of(function.func)} {function.args} {sorted(function.keywords.items())}"
    if not inspect.isroutine(function):
        return f"{code_of(type(function).__call__)} {sorted(vars(function).items()) if hasattr(function, '__dict__') else ''}"
    try:
        source = inspect.getsource(function)
    except (OSError, TypeError):
        source = f"{getattr(function, '__module__', '')}.{getattr(function, '__qualname__', '')}"
    closed = inspect.getclosurevars(function).nonlocals if inspect.isfunction(function) else {}
    bound = [getattr(function, "__defaults__", None), getattr(function, "__kwdefaults__", None)]
    values = [code_of(value) if inspect.isroutine(value) else repr(value) for _, value in sorted(closed.items())]
    return f"{source} {bound} {values}"
