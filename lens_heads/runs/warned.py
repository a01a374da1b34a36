"""Whose line a warning names."""

from __future__ import annotations

import contextlib
import functools
import os
import sys
from pathlib import Path

import torch

WITHIN = (
    f"{Path(__file__).parents[1]}{os.sep}",
    f"{Path(torch.__file__).parent}{os.sep}",
    contextlib.__file__,
    functools.__file__,
)
"""Whose lines tell a user nothing: this package's, those that enter its blocks, turn off gradients and cache properties."""


def users_line() -> int:
    """The `stacklevel` of `warnings.warn` that names the user's line, however many functions and decorators lie between."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(WITHIN):
        level, frame = level + 1, frame.f_back
    return level
