"""Presets of a study: the `presets.json` beside it, one by name, another size of it, and the trials that it names."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from importlib import resources
from itertools import zip_longest
from typing import Any, TypeVar

from lens_heads import tasks
from lens_heads.runs import checks
from lens_heads.trials.trial import AnyTrial, Trial

Plan = TypeVar("Plan")
TaskCall = tuple[str, dict[str, Any]]
"""A task by name, and its arguments."""


def beside(module: str, file: str) -> dict[str, Any]:
    """The content of a JSON file next to a module."""
    return json.loads((resources.files(module.rpartition(".")[0]) / file).read_text(encoding="utf-8"))


def read_presets(module: str, made: Callable[..., Plan]) -> dict[str, Plan]:
    """The presets in the `presets.json` next to a module: each has the fields of the one that it is `like`, and its own."""
    listed = beside(module, "presets.json")

    def fields(name: str) -> dict[str, Any]:
        own = dict(listed[name])
        like = own.pop("like", None)
        return {**(fields(like) if like else {}), **own}

    return {name: made(**tuples(fields(name))) for name in listed}


def tuples(value: Any) -> Any:
    """JSON's lists as tuples, as presets hold them."""
    if isinstance(value, dict):
        return {key: tuples(inner) for key, inner in value.items()}
    return tuple(map(tuples, value)) if isinstance(value, list) else value


def named_preset(which: Any, presets: Mapping[str, Plan]) -> tuple[Plan, str]:
    """A preset by name, or the given one, and its name. Raises ValueError for anything else."""
    if isinstance(which, str) and which in presets:
        return presets[which], which
    if isinstance(which, type(next(iter(presets.values())))):
        return which, "own"
    raise ValueError(f"preset={which!r:.60}: use {', '.join(presets)}, or a Preset of this study")


def sized(which: Any, presets: Mapping[str, Plan], options: Any) -> tuple[Plan, str]:
    """As `named_preset`, with the `precision` and `max_trials` that are taken out of the options of a study."""
    plan, name = named_preset(which, presets)
    return resized(plan, options.pop("precision", None), options.pop("max_trials", None)), name


def resized(plan: Plan, precision: float | None, max_trials: int | None) -> Plan:
    """The preset with another precision (half-width in nats) or another cap on test trials."""
    if precision is not None and not 0 < precision < math.inf:
        raise ValueError(f"precision={precision!r}: use a half-width in nats above 0, such as 0.25")
    if max_trials is not None:
        checks.whole_number("max_trials", max_trials)
    changed = {"precision": precision, "max_trials": max_trials}
    return replace(plan, **{name: value for name, value in changed.items() if value is not None})  # type: ignore[type-var]  # a dataclass


def trials_of(call: TaskCall, **more: Any) -> list[Trial]:
    """The trials of a call, with further arguments of the task."""
    name, arguments = call
    return tasks.load(name, **arguments, **more)


def described(call: TaskCall) -> str:
    """The call in short: musique(n=14, split=test)."""
    name, arguments = call
    return f"{name}({', '.join(f'{key}={value}' for key, value in arguments.items())})"


def in_turn(by_task: Mapping[str, Sequence[AnyTrial]]) -> list[Any]:
    """The trials of all tasks in turn, so that the first few have as many of every task."""
    return [trial for row in zip_longest(*by_task.values()) for trial in row if trial is not None]
