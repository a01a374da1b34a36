"""Head: one attention head, and the notations in which users write heads."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from lens_heads.runs.checks import whole


@dataclass(frozen=True, order=True)
class Head:
    """One attention head, counted from 0. `str(Head(12, 1))` is "L12H1"; its key in score files is "12-1"."""

    layer: int
    head: int

    def __post_init__(self) -> None:
        for name, value in (("layer", self.layer), ("head", self.head)):
            number = whole(value)
            if number is None or number < 0:
                raise ValueError(f"cannot read {self!r} as a head: its {name} {value!r} is not a non-negative integer")
            object.__setattr__(self, name, number)

    def __str__(self) -> str:
        return f"L{self.layer}H{self.head}"

    def __repr__(self) -> str:
        return f"Head({self.layer}, {self.head})"

    @property
    def key(self) -> str:
        return f"{self.layer}-{self.head}"

    @classmethod
    def parse(cls, value: Head | str | Sequence[int]) -> Head:
        """Read "L12H1", "12-1", "12.1" or a pair (12, 1)."""
        if isinstance(value, Head):
            return value
        if isinstance(value, str):
            found = re.fullmatch(r"[Ll]?(\d+)\s*([-.,HhKk:])\s*(\d+)", value.strip(), re.ASCII)
            if found is None:
                raise ValueError(f"cannot read {value!r} as a head: write L12H1 or 12-1")
            if found[2] in "Kk":
                raise ValueError(
                    f"{value!r} is a kv head, but query heads are expected: write L12H1 for each of its query heads, "
                    "k * group to (k + 1) * group - 1 with group = geometry(model).group"
                )
            return cls(int(found[1]), int(found[3]))
        if not isinstance(value, Iterable):
            if hasattr(value, "ranking"):
                raise TypeError(f"{value.method}: expected heads, got scores: select the best with .top(k)")
            raise TypeError(f"cannot read {value!r} as a head: write L12H1, 12-1 or a pair (12, 1)")
        pair = tuple(value)
        if len(pair) != 2:
            raise ValueError(f"cannot read {value!r} as a head: expected a pair (layer, head)")
        return cls(*pair)


AnyHeads: TypeAlias = Iterable[Head | str | Sequence[int]] | Head | str
"""One head or several: `Head`s, "L12H1" strings or pairs (layer, head)."""


def parse_heads(heads: AnyHeads | Sequence[int]) -> list[Head]:
    """Heads in any accepted notation, as a list in the given order without duplicates.

    A string may list several: "L12H1,L3H0". A bare pair of integers is one head.
    """
    if isinstance(heads, str):
        heads = [part for part in re.split(r"[,\s]+", heads) if part]
    listed: list[Any] = list(heads) if isinstance(heads, Iterable) else [heads]
    if isinstance(heads, Sequence) and len(listed) == 2 and all(whole(number) is not None for number in listed):
        listed = [tuple(listed)]
    return list(dict.fromkeys(Head.parse(head) for head in listed))
