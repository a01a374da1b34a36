"""Conditions, which name a choice of heads to ablate, and the sets of heads that realize them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lens_heads.heads.head import Head
from lens_heads.runs import checks

CONTROLS = ("bottom", "random", "random_like")


@dataclass(frozen=True)
class Condition:
    """k heads: `set` says which ("none", "top", "bottom", "random", "random_like", "given"), `method` of which ranking."""

    method: str
    set: str
    k: int

    @classmethod
    def none(cls) -> Condition:
        """No ablation."""
        return cls("none", "none", 0)

    @classmethod
    def top(cls, method: str, k: int) -> Condition:
        """The k best heads of a ranking."""
        return cls(method, "top", k)

    @classmethod
    def bottom(cls, method: str, k: int) -> Condition:
        """The k worst heads of a ranking."""
        return cls(method, "bottom", k)

    @classmethod
    def random(cls, k: int, method: str = "any") -> Condition:
        """k random heads, in several draws; by default from outside every ranking's top k."""
        return cls(method, "random", k)

    @classmethod
    def random_like(cls, method: str, k: int) -> Condition:
        """Random heads, in several draws, with as many heads per layer as a ranking's top k."""
        return cls(method, "random_like", k)

    @classmethod
    def given(cls, name: str, k: int) -> Condition:
        """A set of heads with its own name."""
        return cls(name, "given", k)

    def __str__(self) -> str:
        return "no ablation" if self == Condition.none() else f"{self.method} {self.set} k={self.k}"


@dataclass(frozen=True)
class Controls:
    """Which controls a curve has: their names, how many draws of random heads, and the rankings that they belong to.

    `of`: the rankings whose bottom and layer-matched heads are evaluated: names, "all", or None for the lead. "random"
    belongs to no ranking. ValueError for an unknown name or a number of draws that is none.
    """

    names: Sequence[str] | str = CONTROLS
    draws: int = 3
    of: str | Sequence[str] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "names", (self.names,) if isinstance(self.names, str) else tuple(self.names))
        unknown = next((name for name in self.names if name not in CONTROLS), None)
        if unknown is not None:
            raise ValueError(f"unknown control {unknown!r}: the controls are {', '.join(CONTROLS)}")
        checks.whole_number("draws", self.draws, 0, remedy="; 0 draws no random sets")
        if not self.draws and self.names and all(name.startswith("random") for name in self.names):
            raise ValueError(f"draws=0 leaves no control of {', '.join(self.names)}: use at least 1, or controls=()")


@dataclass(frozen=True)
class HeadSet:
    """The heads of one draw of a condition, and the `tasks` to run it on (None: all)."""

    condition: Condition
    heads: tuple[Head, ...]
    draw: int = 0
    tasks: tuple[str, ...] | None = None


def head_set(condition: Condition, heads: Sequence[Head], draw: int = 0) -> HeadSet:
    """A set of heads to run on all tasks."""
    return HeadSet(condition, tuple(heads), draw)


NO_ABLATION = HeadSet(Condition.none(), ())
