"""Which values a function's code refers to: its closure, its globals, and attributes of the user's own modules."""

from __future__ import annotations

import dis
import importlib
import inspect
import sys
import sysconfig
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_CALLS = {"eval", "exec", "globals", "input", "locals", "open", "vars", "__import__"}
_READS = {"environ", "getenv", "read_bytes", "read_text"}
"""Builtins and attributes that read what no code shows."""
_LIBRARIES = tuple(sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib"))
_FOLDERS = {"site-packages", "dist-packages"}
"""Where packages are installed, also those of the user and of the system, which a virtual environment may add."""
_HOUSE = __name__.split(".")[0]


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
    names = {name for code in _codes(function.__code__) for name in code.co_names}
    for name in sorted(names & _READS):
        raise UnknownError(f"what {name} gives")
    for name in sorted(_steps(function.__code__, "LOAD_GLOBAL", "LOAD_NAME")):
        if name in function.__globals__:
            value = function.__globals__[name]
            yield name, value
            yield from _module_values(name, value, names)
        elif name in _CALLS:
            raise UnknownError(f"what {name}() gives")
    for name in sorted(_imported(function.__code__)):
        yield from _module_values(name, sys.modules.get(name), names)


def _module_values(name: str, value: Any, names: set[str], depth: int = 0) -> Iterator[tuple[str, Any]]:
    if isinstance(value, types.ModuleType) and not _is_installed(value.__name__) and depth < 5:
        for attribute in sorted(names & vars(value).keys()):
            inner = vars(value)[attribute]
            yield f"{name}.{attribute}", inner
            yield from _module_values(f"{name}.{attribute}", inner, names, depth + 1)


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for const in code.co_consts:
        if isinstance(const, types.CodeType):
            yield from _codes(const)


def _steps(code: types.CodeType, *kinds: str) -> set[str]:
    """The arguments of all instructions of these kinds."""
    found = (step for one in _codes(code) for step in dis.get_instructions(one))
    return {step.argval for step in found if step.opname in kinds}


def _imported(code: types.CodeType) -> set[str]:
    """The modules that a function imports when it runs. They are imported now, as it would."""
    names = _steps(code, "IMPORT_NAME")
    if "" in names:
        raise UnknownError("what a relative import gives")
    for name in names:
        if not _is_installed(name) and name not in sys.modules:
            try:
                importlib.import_module(name)
            except Exception:
                raise UnknownError(f"the module {name}") from None
    return names


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
    top = module.split(".")[0]
    if top in sys.stdlib_module_names or top == _HOUSE:
        return True
    if top == "__main__":  # In a notebook, its file is the installed program that runs the notebook.
        return False
    files = [getattr(sys.modules.get(name), "__file__", None) for name in (top, module)]
    file = Path(next(filter(None, files), ""))
    return bool(_FOLDERS & set(file.parts)) or any(file.is_relative_to(folder) for folder in _LIBRARIES)
