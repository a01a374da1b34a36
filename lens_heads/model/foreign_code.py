"""What loading a model must not do unasked: run code that its folder brings along (`auto_map`), and install packages."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any


@contextmanager
def foreign_code(trusted: bool, name: str) -> Iterator[None]:
    """Inside, transformers runs code of a model's folder only if it is `trusted`, and never asks on standard input.

    Passing `trust_remote_code=False` is not enough: TransformerLens leaves it out where it loads weights, and adapters of hers
    import a folder's modules whatever was passed. ValueError, with the remedy, for a model that needs its own code.
    """
    from transformers import dynamic_module_utils as modules

    if trusted:
        yield
        return
    held = {key: getattr(modules, key) for key in ("TIME_OUT_REMOTE_CODE", "get_class_in_module")}
    modules.TIME_OUT_REMOTE_CODE = 0  # Seconds that it waits for an answer; 0 is an error instead of a question.
    modules.get_class_in_module = _refuse  # What executes a module, whoever asks for it.
    try:
        yield
    except Exception as error:
        if "trust_remote_code" not in _said(error):
            raise
        raise ValueError(
            f"{name} brings code of its own (auto_map in its configuration), and loading it would run that code: read it, and "
            "pass trust_remote_code=True if you trust it"
        ) from error
    finally:
        for key, value in held.items():
            setattr(modules, key, value)


@contextmanager
def nothing_installed() -> Iterator[None]:
    """Inside, no package is installed through `subprocess.check_call`.

    TransformerLens installs torchvision for the image processor of a multimodal model, which nothing here uses, and pip may then
    exchange torch for another build. It goes on without where that fails.
    """
    plain = subprocess.check_call

    def check_call(command: Any, *given: Any, **options: Any) -> int:
        if "install" in command:
            raise RuntimeError(f"{command!r:.60}: nothing is installed while a model is loaded")
        return plain(command, *given, **options)

    subprocess.check_call = check_call
    try:
        yield
    finally:
        subprocess.check_call = plain


def brought_along() -> list[ModuleType]:
    """The modules that this process has loaded from models' folders."""
    return [module for name, module in sorted(sys.modules.items()) if name.startswith("transformers_modules.")]


def _said(error: BaseException | None) -> str:
    """The messages of an error and of what it came from."""
    said = ""
    while error is not None:
        said, error = f"{said} {error}", error.__cause__
    return said


def _refuse(*_: Any, **__: Any) -> Any:
    raise ValueError("trust_remote_code is not set")
