"""Task calls: how presets name their trials."""

from __future__ import annotations

from typing import Any

from lens_heads import tasks
from lens_heads.trials.trial import Trial

TaskCall = tuple[str, dict[str, Any]]
"""A task by name, and its arguments."""


def trials_of(call: TaskCall, **more: Any) -> list[Trial]:
    """The trials of a call, with further arguments of the task."""
    name, arguments = call
    return tasks.load(name, **arguments, **more)


def described(call: TaskCall) -> str:
    """The call in short: musique(n=14, split=test)."""
    name, arguments = call
    return f"{name}({', '.join(f'{key}={value}' for key, value in arguments.items())})"
