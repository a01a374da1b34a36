"""Conditions, which name a choice of heads to ablate, and the sets of heads that realize them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lens_heads.heads.head import Head
from lens_heads.runs import checks

CONTROLS = ("bottom", "random", "random_like")
"""The default controls. "no_needle", the unablated model on prompts without their needles, is the fourth."""
NO_NEEDLE = "no_needle"
BARE = ", without needles"
"""Ends the name under which a task's prompts without needles run."""


@dataclass(frozen=True)
class Condition:
    """k heads: `set` says which, `method` of which ranking.

    Sets: "none", "no_needle" (no ablation, prompts without their needles), "top", "bottom", "random", "random_like", "given".
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
    def bottom(cls, method: str, k: int) -> Condition:
        """The k worst heads of a ranking."""
        return cls(method, "bottom", k)

    @classmethod
    def random(cls, k: int, method: str = "any") -> Condition:
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
class Controls:
    """Which controls a curve has, how many draws of random heads, and the rankings that they belong to.

    `names`: "bottom" (the k lowest heads of a ranking), "random" (of all heads), "random_like" (of all heads, as many per
    layer as in the ranking's top k), "no_needle" (no ablation, prompts without their needles; `Trial`s with a haystack).
    `draws`: sets of random heads at each k; a verdict takes 40. `trials`: random heads run on the first so many trials of
    a task, None for all. Draws carry most of the variance, so 20 trials are enough.
    `of`: the rankings whose bottom and layer-matched heads are evaluated: names, "all", or None for the lead. "random" and
    "no_needle" belong to no ranking.

    ValueError for an unknown name, and for numbers of draws or trials that are none.
    """

    names: Sequence[str] | str = CONTROLS
    draws: int = 8
    of: str | Sequence[str] | None = None
    trials: int | None = 20

    def __post_init__(self) -> None:
        object.__setattr__(self, "names", (self.names,) if isinstance(self.names, str) else tuple(self.names))
        unknown = next((name for name in self.names if name not in (*CONTROLS, NO_NEEDLE)), None)
        if unknown is not None:
            raise ValueError(f"unknown control {unknown!r}: the controls are {', '.join((*CONTROLS, NO_NEEDLE))}")
        checks.count("draws", self.draws, 0, remedy="; 0 draws no random sets")
        if self.trials is not None:
            checks.whole_number("trials", self.trials, remedy=", or None for all")
        if not self.draws and self.names and all(name.startswith("random") for name in self.names):
            raise ValueError(f"draws=0 leaves no control of {', '.join(self.names)}: use at least 1, or controls=()")


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
