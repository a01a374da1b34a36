"""Calls of tasks, as presets hold them."""

from __future__ import annotations

from typing import Any

TaskCall = tuple[str, dict[str, Any]]
"""A task by name, and its arguments."""


def described(call: TaskCall) -> str:
    """A call as one would write it: musique(n=14, split=test)."""
    name, arguments = call
    return f"{name}({', '.join(f'{key}={value}' for key, value in arguments.items())})"
