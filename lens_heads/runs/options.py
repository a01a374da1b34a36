"""The options that every long run takes, written down once: where results go, what is shown, how much runs at a time.

Functions take them as plain keywords, `**run: Unpack[RunOptions]`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from numbers import Integral
from pathlib import Path
from typing import Any, TypedDict


class LoopOptions(TypedDict, total=False):
    """Keywords of every function that works through prompts one by one.

    out: a run folder. Every finished unit of work is stored there at once, and the same call continues it; a call with
        other settings is refused, with the difference. Default: nothing is stored.
    progress: whether to show a progress bar. Default: True.
    """

    out: str | Path | None
    progress: bool


class RunOptions(LoopOptions, total=False):
    """`LoopOptions`, and the keywords of every function that runs prompts side by side and decodes.

    batch_size: prompts per forward pass; results equal those of one at a time to rounding.
    max_new_tokens: greedy decoding ends there, at a newline, or at a stop token.
    """

    batch_size: int
    max_new_tokens: int


@dataclass(frozen=True)
class Run:
    """The options of one run, complete and checked."""

    out: str | Path | None = None
    progress: bool = True
    batch_size: int = 1
    max_new_tokens: int = 50

    def __post_init__(self) -> None:
        for name in ("batch_size", "max_new_tokens"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, Integral):
                raise ValueError(f"{name}={value!r}: must be an integer")
        if self.batch_size < 1:
            raise ValueError(f"batch_size={self.batch_size}: must be at least 1")

    @classmethod
    def of(cls, given: Mapping[str, Any], takes: type = RunOptions, **defaults: Any) -> Run:
        """The options given, the function's own defaults for the rest. TypeError for any that it does not take."""
        check_known(given, takes.__annotations__)
        return cls(**{**defaults, **given})

    def room(self, generate: bool) -> int:
        """Tokens that may be generated: none unless asked for, and then at least one."""
        if generate and self.max_new_tokens < 1:
            raise ValueError(
                f"max_new_tokens={self.max_new_tokens}: give at least 1, or generate=False for logprob alone"
            )
        return self.max_new_tokens if generate else 0


def split(given: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Keywords that are run options, and all others."""
    known = {field.name for field in fields(Run)}
    return (
        {name: value for name, value in given.items() if name in known},
        {name: value for name, value in given.items() if name not in known},
    )


def check_known(given: Iterable[str], known: Iterable[str]) -> None:
    """TypeError for the first keyword that is unknown, naming those there are."""
    known = list(known)
    unknown = next((name for name in given if name not in known), None)
    if unknown is not None:
        raise TypeError(f"unexpected keyword argument {unknown!r}: it takes {', '.join(known)}")
