"""Which values a function's code refers to: its closure, its globals, and attributes of the user's own modules."""

from __future__ import annotations

import dis
import importlib
import inspect
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_CALLS = {"eval", "exec", "globals", "input", "locals", "open", "vars", "__import__"}
_READS = {"environ", "getenv", "read_bytes", "read_text"}
"""Builtins and attributes that read what no code shows."""


class UnknownError(Exception):
    """What is read that cannot be identified."""


def closure(function: types.FunctionType) -> Iterator[tuple[str, Any]]:
    """The variables that a function closes over."""
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            yield name, cell.cell_contents
        except ValueError:
            yield name, "not set yet"


def global_values(function: types.FunctionType) -> Iterator[tuple[str, Any]]:
    """The globals that a function reads; of modules that are the user's own, the attributes with names that occur in it."""
    steps, known = list(_steps(function.__code__)), function.__globals__
    names = {step.argval for step in steps if step.opcode in dis.hasname}
    read = {step.argval for step in steps if step.opname in ("LOAD_GLOBAL", "LOAD_NAME")}
    for name in sorted(names & _READS | (read & _CALLS) - known.keys()):
        raise UnknownError(f"what {name} gives")
    for name in sorted(read & known.keys()):
        yield name, known[name]
        yield from _module_values(name, known[name], names)
    for place, step in enumerate(steps):
        if step.opname == "IMPORT_NAME":
            if steps[place - 2].argval:  # How many folders up; 0 where the name is in full.
                raise UnknownError("what a relative import gives")
            yield from _module_values(step.argval, _imported(step.argval), names)


def _steps(code: types.CodeType) -> Iterator[dis.Instruction]:
    yield from dis.get_instructions(code)
    for const in code.co_consts:
        if isinstance(const, types.CodeType):
            yield from _steps(const)


def _imported(name: str) -> types.ModuleType | None:
    """The user's own module that a function imports when it runs; it is imported now, as it would be then."""
    try:
        return None if _is_installed(name) else importlib.import_module(name)
    except Exception:
        raise UnknownError(f"the module {name}") from None


def _module_values(name: str, value: Any, names: set[str], depth: int = 0) -> Iterator[tuple[str, Any]]:
    if issubclass(type(value), types.ModuleType) and not _is_installed(value.__name__) and depth < 5:
        for attribute in sorted(names & vars(value).keys()):
            inner = vars(value)[attribute]
            yield f"{name}.{attribute}", inner
            yield from _module_values(f"{name}.{attribute}", inner, names, depth + 1)


def is_library(value: Any) -> bool:
    """Whether a value is known by its name in an installed package."""
    module, qualname = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    if not isinstance(module, str) or not isinstance(qualname, str) or not _is_installed(module):
        return False
    found: Any = sys.modules.get(module)
    for part in qualname.split("."):
        found = inspect.getattr_static(found, part, None)
    return found is value


def _is_installed(module: str) -> bool:
    """Also for the user or the system, whose packages a virtual environment may add. A notebook is not, though its program is."""
    top = module.split(".")[0]
    if top in sys.stdlib_module_names or top in (__name__.split(".")[0], "__main__"):
        return top != "__main__"
    files = (getattr(sys.modules.get(name), "__file__", None) for name in (top, module))
    return bool({"site-packages", "dist-packages"} & set(Path(next(filter(None, files), "")).parts))
