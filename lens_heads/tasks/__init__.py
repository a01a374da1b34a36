"""Tasks: functions that return trials. `TASKS` is the written-out table of them, by the names the command line uses."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from lens_heads.tasks.arithmetic import arithmetic
from lens_heads.tasks.niah import niah
from lens_heads.tasks.nolima import nolima
from lens_heads.tasks.packaged import packaged
from lens_heads.tasks.parametric import parametric
from lens_heads.trials import Trial


class Task(NamedTuple):
    """A function that makes trials, and what they are about in one line."""

    trials: Callable[..., list[Trial]]
    about: str


TASKS: dict[str, Task] = {
    "packaged": Task(packaged, "needles in made-up prose, shipped: no download, short, for small models too"),
    "nolima": Task(nolima, "needles whose question shares no word with them, in books; or your own in the same format"),
    "niah": Task(niah, "needle in a haystack from a folder in the format of the retrieval-head paper"),
    "parametric": Task(parametric, "facts known from training (city -> country, PopQA): no needle, to be spared"),
    "arithmetic": Task(arithmetic, "generated sums and differences: no needle, to be spared"),
}

__all__ = ["TASKS", "Task", "arithmetic", "niah", "nolima", "packaged", "parametric"]
