"""Parts of a run: jobs that a scheduler starts, each of which does its share of every loop, in one folder.

What is whose is fixed by the plan of batches, which does not depend on what is finished. So jobs may run side by side or one
after the other, and no unit runs twice.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from lens_heads.runs import checks
from lens_heads.runs.shards import Key, Result
from lens_heads.runs.stopping import PartDone
from lens_heads.runs.store import RunFolder

PATIENCE = 60.0
"""Seconds without a new result of another part, at least, before a part stops waiting."""


@dataclass(frozen=True)
class Part:
    """Part number `index`, from 0, of a run in `of` parts."""

    index: int
    of: int

    def __post_init__(self) -> None:
        checks.whole_number("of", self.of)
        checks.whole_number("index", self.index, 0, self.of - 1, f", one of the {self.of} parts")

    def __str__(self) -> str:
        return f"{self.index}/{self.of}"

    def mine(self, batches: Sequence[list[int]]) -> list[list[int]]:
        """The batches of this part: every `of`-th."""
        return list(batches[self.index :: self.of])

    def others(self, folder: RunFolder, missing: Mapping[int, Key], seconds: float) -> dict[int, Result]:
        """Results of the other parts by index, as they arrive in the folder.

        `seconds`: what a batch took here. Nothing new for ten times as long, and for `PATIENCE`, ends the wait, with PartDone.
        """
        found: dict[int, Result] = {}
        news, patience = time.monotonic(), max(PATIENCE, 10 * seconds)
        while True:
            new = {i: folder.read(key) for i, key in missing.items() if i not in found}
            arrived = {i: result for i, result in new.items() if result is not None}
            found |= arrived
            if len(found) == len(missing):
                return found
            now = time.monotonic()
            news = now if arrived else news
            if now - news >= patience:
                raise PartDone(
                    f"part {self} is done; {len(missing) - len(found)} units of other parts are missing in {folder.path}. "
                    "When they have run, repeat the command without --shard"
                )
            time.sleep(min(1.0, patience))


_PART: ContextVar[Part | None] = ContextVar("part", default=None)


def current() -> Part | None:
    """The part that this process runs."""
    return _PART.get()


@contextmanager
def sharding(part: Part | str | None) -> Iterator[None]:
    """Inside, every call with a run folder does one part of its units: "0/4" is the first of four; None: all of them.

    "auto" reads the environment: RANK and WORLD_SIZE (torchrun), else SLURM_ARRAY_TASK_ID and what Slurm says about the array,
    else SLURM_PROCID and SLURM_NTASKS. The call waits for parts that run side by side, and goes on with the results of all;
    without them it ends with `PartDone`. Once all parts are done, the same call outside reads what they stored. Calls without a
    folder run whole.

    ValueError for a part that cannot be, or without these variables.

    `part`: which one.

    Example:
        >>> with lh.sharding("0/1"):  # The first of one: all of them.
        ...     found = lh.rank(model, trials, "locos", out="run")
        >>> len(list(Path("run").rglob("*.safetensors"))) == len(trials)
        True
    """
    if not isinstance(part, Part | str | None):
        raise TypeError(f"part={part!r:.60}: use a text such as '0/4' or 'auto', a Part, or None")
    token = _PART.set(named(part) if isinstance(part, str) else part)
    try:
        yield
    finally:
        _PART.reset(token)


def named(text: str) -> Part:
    """A part by its name."""
    if text == "auto":
        return _from_environment()
    found = re.fullmatch(r"(\d+)/(\d+)", text.strip())
    if found is None or not int(found[1]) < int(found[2]):
        raise ValueError(f"shard {text!r}: use i/n with i from 0 to n - 1, such as 0/4, or auto")
    return Part(int(found[1]), int(found[2]))


def _from_environment() -> Part:
    def number(name: str, default: int | None = None) -> int:
        text = os.environ.get(name, "" if default is None else str(default))
        if not text.isdecimal():
            raise ValueError(f"shard 'auto': {name}={text!r} is no number; use i/n, such as 0/4")
        return int(text)

    if "RANK" in os.environ and "WORLD_SIZE" in os.environ:
        index, of = number("RANK"), number("WORLD_SIZE")
    elif "SLURM_ARRAY_TASK_ID" in os.environ:
        first, step = number("SLURM_ARRAY_TASK_MIN", 0), number("SLURM_ARRAY_TASK_STEP", 1)
        index, of = (number("SLURM_ARRAY_TASK_ID") - first) // max(1, step), number("SLURM_ARRAY_TASK_COUNT")
    elif "SLURM_PROCID" in os.environ:
        index, of = number("SLURM_PROCID"), number("SLURM_NTASKS", 1)
    else:
        raise ValueError(
            "shard 'auto': neither RANK, SLURM_ARRAY_TASK_ID nor SLURM_PROCID is set; use i/n, such as 0/4"
        )
    return named(f"{index}/{of}")
