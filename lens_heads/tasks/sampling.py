"""Checked arguments, grids of lengths and depths, splits, and stratified samples."""

from __future__ import annotations

import random
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import TypeVar

from lens_heads.runs import checks

Item = TypeVar("Item")

USUAL = 200
"""Default number of trials from a benchmark, if it has that many."""

SPLITS = ("select", "test")
"""For finding heads, and for evaluating them; the two share no trial and no group."""


def check_known(what: str, value: object, known: Iterable[object], otherwise: str = "", where: str = "") -> None:
    """ValueError for a `value` that is not among the `known` ones; its message begins with `where`, ends in `otherwise`."""
    if value not in (names := list(known)):
        *most, last = map(repr, names)
        listed = f"{', '.join(most)} or {last}" if most else last
        raise ValueError(f"{where}unknown {what} {value!r}: use {listed}{otherwise}")


def enough(n: int | None, have: int, what: str, usual: int | None = None) -> int:
    """How many of `have` items to draw: `n`, or by default all of them, at most `usual`. ValueError if n is out of range."""
    if n is None:
        n = min(have, usual or have)
    if not 1 <= checks.whole_number("n", n, least=None, most=None) <= have:
        raise ValueError(f"n={n} is out of range: there are {have} {what}; use 1 to {have}")
    return n


def drawn(items: Sequence[Item], n: int | None, what: str, rng: random.Random, usual: int | None = None) -> list[Item]:
    """`n` random items in random order; None, `what` and `usual` as in `enough`."""
    return rng.sample(items, enough(n, len(items), what, usual))


def lengths_grid(lengths: int | Sequence[int], low: int = 1_000, high: int = 50_000) -> list[int]:
    """Context lengths in tokens: the list itself, or that many lengths evenly spaced over `low`..`high`, rounded.

    ValueError for an empty list or a length below 1.
    """
    if checks.whole(lengths) is not None:
        return list(dict.fromkeys(round(at) for at in _even(lengths, low, high, "lengths")))  # type: ignore[arg-type]
    return list(dict.fromkeys(checks.whole_numbers("lengths", lengths, remedy=", each a number of tokens")))


def depths_grid(depths: int | Sequence[float]) -> list[float]:
    """Needle depths, 0 (start) to 1 (end): the list itself, or that many evenly spaced depths in whole percent.

    ValueError for an empty list or a depth outside 0 to 1.
    """
    if isinstance(depths, str) or not isinstance(depths, Iterable):
        return list(dict.fromkeys(round(at) / 100 for at in _even(depths, 0, 100, "depths")))  # type: ignore[arg-type]
    if not (listed := list(depths)):
        raise ValueError("depths=[]: must contain at least one fraction of the haystack, from 0 to 1 (0.5 is 50 %)")
    return list(dict.fromkeys(checks.finite("depths", depth, 0, 1) for depth in listed))


def check_split(split: str | None) -> None:
    """ValueError unless `split` is a split or None, which stands for both."""
    if split is not None:
        check_known("split", split, SPLITS, ", or None for both")


def half(items: Sequence[Item], split: str | None) -> list[Item]:
    """Every other item, so that both splits cover the items' order evenly; all of them for None."""
    check_split(split)
    return list(items if split is None else items[SPLITS.index(split) :: 2])


def in_split(key: str, split: str | None) -> bool:
    """Whether a key belongs to a split, by a coin toss seeded with the key: for sets too large to list."""
    check_split(split)
    return split is None or random.Random(key).choice(SPLITS) == split


def _even(count: int, low: float, high: float, what: str) -> list[float]:
    checks.whole_number(what, count, remedy=", or a list of values")
    return [low + (high - low) * i / max(count - 1, 1) for i in range(count)]


def stratified(items: Sequence[Item], n: int | None, key: Callable[[Item], Hashable], seed: int) -> list[Item]:
    """`n` items drawn evenly from the strata (groups of equal `key`), in their original order; all of them for None.

    Each round takes one random item from every stratum, in random order: counts differ by at most one until a stratum
    is exhausted. ValueError if there are fewer than `n` items.
    """
    n = enough(n, len(items), "trials to draw from")
    rng = random.Random(checks.seed(seed))
    groups: dict[Hashable, list[int]] = {}
    for at, item in enumerate(items):
        groups.setdefault(key(item), []).append(at)
    strata = list(groups.values())
    rng.shuffle(strata)
    for stratum in strata:
        rng.shuffle(stratum)
    chosen: list[int] = []
    while len(chosen) < n:
        chosen += [stratum.pop() for stratum in strata if stratum][: n - len(chosen)]
    return [items[at] for at in sorted(chosen)]
