"""Head: one attention head, and the notations in which users write heads."""

from __future__ import annotations

import re
import reprlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

from lens_heads.runs.checks import whole

Unit: TypeAlias = Literal["query_head", "kv_head"]
"""What a number inside a layer counts: its query heads, or its kv heads, each of which a group of query heads reads."""


@dataclass(frozen=True, order=True)
class Head:
    """One attention head, counted from 0. `str(Head(12, 1))` is "L12H1"; its key in score files is "12-1".

    `unit`: a kv head, as the best of a table of gates are, is written "L12K1" and equals no query head. `ablate` and whatever
    else takes query heads refuses it: `units.query_heads` are those that read it.

    `layer`, `head`: which one.

    Example:
        >>> str(lh.Head(12, 1)), lh.Head(12, 1) < lh.Head(13, 0)
        ('L12H1', True)
    """

    layer: int
    head: int
    unit: Unit = "query_head"

    def __post_init__(self) -> None:
        for name, value in (("layer", self.layer), ("head", self.head)):
            number = whole(value)
            if number is None or number < 0:
                raise ValueError(f"cannot read {self!r} as a head: its {name} {value!r} is not a non-negative integer")
            object.__setattr__(self, name, number)
        if self.unit not in get_args(Unit):
            raise ValueError(f"unit={self.unit!r}: must be {' or '.join(map(repr, get_args(Unit)))}")

    def __str__(self) -> str:
        return f"L{self.layer}{'H' if self.unit == 'query_head' else 'K'}{self.head}"

    def __repr__(self) -> str:
        return f"Head({self.layer}, {self.head}{'' if self.unit == 'query_head' else f', {self.unit!r}'})"

    @property
    def key(self) -> str:
        return f"{self.layer}-{self.head}"

    @classmethod
    def parse(cls, value: Head | str | Sequence[int], *, unit: Unit = "query_head") -> Head:
        """Read "L12H1", "12-1", "12.1" or a pair (12, 1): heads of `unit`, and "L12K1" where that is "kv_head".

        A `Head` keeps its own unit.
        """
        if isinstance(value, Head):
            return value
        if isinstance(value, str):
            found = re.fullmatch(r"[Ll]?(\d+)\s*([-.,HhKk:])\s*(\d+)", value.strip(), re.ASCII)
            if found is None:
                raise ValueError(f"cannot read {value!r} as a head: write L12H1 or 12-1")
            if found[2] in "Kk" and unit == "query_head":
                raise ValueError(
                    f"{value!r} is a kv head, but query heads are expected: write L12H1 for each of its query heads, "
                    "k * group to (k + 1) * group - 1 with group = head_geometry(model).group"
                )
            return cls(int(found[1]), int(found[3]), unit)
        if not isinstance(value, Iterable) or getattr(value, "ndim", 1) == 0:
            if hasattr(value, "ranking"):
                raise TypeError(f"{value.method}: expected heads, got scores: select the best with .top(k)")  # type: ignore[attr-defined]  # scores
            raise TypeError(f"cannot read {value!r} as a head: write L12H1, 12-1 or a pair (12, 1)")
        pair = tuple(value)
        if len(pair) != 2:
            raise ValueError(f"cannot read {value!r} as a head: expected a pair (layer, head)")
        return cls(*pair, unit)


AnyHeads: TypeAlias = Iterable[Head | str | Sequence[int]] | Head | str | tuple[int, int]
"""One head or several: `Head`s, "L12H1" strings or pairs (layer, head)."""


def parse_heads(heads: AnyHeads, unit: Unit = "query_head") -> list[Head]:
    """Heads of `unit` in any accepted notation, as a list in the given order without duplicates; a `Head` keeps its own unit.

    A string may list several: "L12H1,L3H0". A bare pair of integers is one head.
    """
    return list(dict.fromkeys(listed_heads(heads, unit)))


def listed_heads(heads: AnyHeads, unit: Unit = "query_head") -> list[Head]:
    """As `parse_heads`, with every head as often as it is given."""
    if isinstance(heads, str):
        heads = split_heads(heads)
    if isinstance(heads, Mapping):
        raise TypeError(
            f"heads are a mapping ({reprlib.repr(heads)}), whose values would count for nothing: pass list(heads), or, to scale "
            "each head by its value, a block of kind 'scale' for each"
        )
    if hasattr(heads, "columns"):
        raise TypeError("heads are a table: pass the column that names them, table['head'], or scores.top(k)")
    if str(getattr(heads, "dtype", "")) in ("torch.bool", "bool"):
        raise ValueError("heads are a mask of true and false: pass the places where it is true, mask.nonzero()")
    if isinstance(heads, tuple) and any(getattr(one, "ndim", 0) == 1 and not isinstance(one, str) for one in heads):
        raise ValueError("heads are a tuple of arrays, as of where(): pass pairs (layer, head), mask.nonzero()")
    listed: list[Any] = list(heads) if isinstance(heads, Iterable) else [heads]
    if isinstance(heads, Sequence) and len(listed) == 2 and all(whole(number) is not None for number in listed):
        listed = [tuple(listed)]
    return [Head.parse(head, unit=unit) for head in listed]


def split_heads(text: str) -> list[str]:
    """The notations of heads in a text, separated by commas or spaces."""
    return [part for part in re.split(r"[,\s]+", text) if part]
