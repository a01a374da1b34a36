"""Conditions, which name a choice of heads to ablate, and the sets of heads that realize them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lens_heads.heads.head import Head

if TYPE_CHECKING:
    import pandas as pd

KEY = ("method", "set", "k", "draw", "task", "trial")
"""What tells the rows of every table per trial apart, in all results."""
_OLDER = {"source": "method", "target": "task", "item": "trial", "example": "trial"}
NO_NEEDLE, TOP_NO_NEEDLE = "no_needle", "top_no_needle"
BARE = ", without needles"
"""Ends the name under which a task's prompts without needles run."""


@dataclass(frozen=True)
class Condition:
    """k heads: `set` says which, `method` of which ranking.

    Sets: "none", "no_needle" (no ablation, prompts without their needles), "top", "top_no_needle" (the same, prompts without
    their needles), "bottom", "random", "random_like", "given".

    Example:
        >>> lh.Condition("locos", "random", 5)
        Condition(method='locos', set='random', k=5)
    """

    method: str
    set: str
    k: int

    @classmethod
    def none(cls) -> Condition:
        """No ablation."""
        return cls("none", "none", 0)

    @classmethod
    def no_needle(cls) -> Condition:
        """No ablation, on prompts without their needles: the floor that ablation can reach."""
        return cls("none", NO_NEEDLE, 0)

    @classmethod
    def top(cls, method: str, k: int) -> Condition:
        """The k best heads of a ranking."""
        return cls(method, "top", k)

    @classmethod
    def top_no_needle(cls, method: str, k: int) -> Condition:
        """The k best heads of a ranking, on prompts without their needles: what they cost where there is nothing to find."""
        return cls(method, TOP_NO_NEEDLE, k)

    @classmethod
    def bottom(cls, method: str, k: int) -> Condition:
        """The k worst heads of a ranking."""
        return cls(method, "bottom", k)

    @classmethod
    def random(cls, k: int, *, method: str = "any") -> Condition:
        """k random heads of all heads, in several draws."""
        return cls(method, "random", k)

    @classmethod
    def random_like(cls, method: str, k: int) -> Condition:
        """Random heads of all heads, in several draws, with as many per layer as a ranking's top k."""
        return cls(method, "random_like", k)

    @classmethod
    def given(cls, name: str, k: int) -> Condition:
        """A set of heads with its own name."""
        return cls(name, "given", k)

    def __str__(self) -> str:
        named = {Condition.none(): "no ablation", Condition.no_needle(): "no ablation, without the needle"}
        return named.get(self, f"{self.method} {self.set} k={self.k}")


@dataclass(frozen=True)
class HeadSet:
    """The heads of one draw of a condition, the `tasks` to run it on (None: all), and how many of their trials (None: all)."""

    condition: Condition
    heads: tuple[Head, ...]
    draw: int = 0
    tasks: tuple[str, ...] | None = None
    trials: int | None = None


def head_set(condition: Condition, heads: Sequence[Head], draw: int = 0, trials: int | None = None) -> HeadSet:
    """A set of heads to run on all tasks."""
    return HeadSet(condition, tuple(heads), draw, trials=trials)


NO_ABLATION = HeadSet(Condition.none(), ())


def with_key(table: pd.DataFrame) -> pd.DataFrame:
    """A table per trial with the columns of `KEY` by these names; older files call some of them otherwise."""
    older = _OLDER | ({"seed": "draw"} if "set" in table else {})
    return table.rename(columns={was: now for was, now in older.items() if was in table and now not in table})
