"""The options of every long run: where results go, whether progress is shown, and how much runs at a time.

Functions take them as plain keywords, `**run: Unpack[RunOptions]`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, TypedDict

from lens_heads.runs.checks import whole_number
from lens_heads.runs.typed import Default, defaults_of


class LoopOptions(TypedDict, total=False):
    """Keywords of every function that works through prompts one by one.

    out: a run folder. Every finished unit of work is stored there at once, and repeating the call continues the run. A
        call with different settings is an error that lists the differences. Default: nothing is stored.
    progress: whether to show a progress bar. Default: True.
    workers: processes, each with a copy of the model, that share the prompts or other units: a number, "auto", "cuda:0,cuda:1" or
        "ray://HOST:PORT"; see `lh.worker_pool`. Default: this process alone.
    """

    out: str | Path | None
    progress: Annotated[bool, Default(True)]
    workers: int | str | None


class RunOptions(LoopOptions, total=False):
    """`LoopOptions`, and the keywords of every function that runs prompts in batches and decodes.

    batch_size: prompts per forward pass; does not change results beyond rounding.
    max_new_tokens: greedy decoding stops after this many tokens, at a newline, or at a stop token.
    """

    batch_size: Annotated[int, Default(1)]
    max_new_tokens: Annotated[int, Default(50)]


@dataclass(frozen=True)
class Run:
    """The complete, checked options of one run."""

    out: str | Path | None
    progress: bool
    batch_size: int
    max_new_tokens: int

    def __post_init__(self) -> None:
        whole_number("batch_size", self.batch_size)
        whole_number("max_new_tokens", self.max_new_tokens, 0)

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Run:
        """The given options, and the defaults of the others."""
        every = {**defaults_of(RunOptions), **given}
        return cls(**{field.name: every[field.name] for field in fields(cls)})

    def room(self, generate: bool) -> int:
        """The number of tokens to generate: 0 without `generate`, else `max_new_tokens`. ValueError if that is below 1."""
        if not generate:
            return 0
        return whole_number("max_new_tokens", self.max_new_tokens, remedy="; use generate=False for logprob alone")


def inside(given: Mapping[str, Any], name: str) -> Any:
    """The same options for a further run, in a subfolder of `out`."""
    return dict(given) if given.get("out") is None else {**given, "out": f"{given['out']}/{name}"}


def split(given: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Two dictionaries: the keywords that are run options, and all others."""
    known = [field.name for field in fields(Run) if field.name in given]
    return {name: given[name] for name in known}, {name: given[name] for name in given if name not in known}
