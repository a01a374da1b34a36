"""Grids of lengths and depths, and samples of them that stay balanced."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from typing import TypeVar

Item = TypeVar("Item")

SPLITS = ("select", "test")
"""To find heads, and to evaluate them: they share no trial."""


def lengths_grid(lengths: int | Sequence[int], low: int = 1_000, high: int = 50_000) -> list[int]:
    """Context lengths in tokens: a list as given, or a number of them spaced evenly over `low`..`high`, rounded.

    ValueError for an empty list or a length under 1.
    """
    if isinstance(lengths, int):
        lengths = [round(at) for at in _even(lengths, low, high, "lengths")]
    if not lengths or min(lengths) < 1:
        raise ValueError(f"lengths {list(lengths)} must be at least one number of tokens, each above 0")
    return list(dict.fromkeys(lengths))


def depths_grid(depths: int | Sequence[float]) -> list[float]:
    """Needle depths, 0 (first) to 1 (last): a list as given, or a number of them spaced evenly, in whole per cents.

    ValueError for an empty list or a depth outside 0 to 1.
    """
    if isinstance(depths, int):
        depths = [round(at) / 100 for at in _even(depths, 0, 100, "depths")]
    if not depths or min(depths) < 0 or max(depths) > 1:
        raise ValueError(f"depths {list(depths)} must be shares of the haystack from 0 to 1 (write 0.5 for 50 %)")
    return list(dict.fromkeys(depths))


def check_split(split: str | None) -> None:
    """ValueError for what is neither a split nor None, which is both."""
    if split not in (None, *SPLITS):
        raise ValueError(f"there is no split {split!r}: use {' or '.join(map(repr, SPLITS))}, or None for both")


def half(items: Sequence[Item], split: str | None) -> list[Item]:
    """The items of a split: every other one, so that both halves are alike in what the items are ordered by; None: all."""
    check_split(split)
    return list(items if split is None else items[SPLITS.index(split) :: 2])


def in_split(key: str, split: str | None) -> bool:
    """Whether what the key names belongs to a split: drawn once for each key, for items too many to list."""
    check_split(split)
    return split is None or random.Random(key).choice(SPLITS) == split


def _even(count: int, low: float, high: float, what: str) -> list[float]:
    if count < 1:
        raise ValueError(f"{what}={count}: give at least 1, or a list")
    if count == 1:
        return [low]
    return [low + (high - low) * i / (count - 1) for i in range(count)]


def stratified(items: Sequence[Item], n: int, key: Callable[[Item], Hashable], seed: int) -> list[Item]:
    """`n` items whose strata (groups of equal `key`) are used evenly; in their given order, the same for one seed.

    Strata are visited in random order, one random item of each per round: their counts differ by at most one while
    none is used up. ValueError when there are fewer than `n` items.
    """
    if not 1 <= n <= len(items):
        raise ValueError(f"n={n}: there are {len(items)} trials to draw from, ask for 1 to {len(items)}")
    rng = random.Random(seed)
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


def balanced(
    items: Sequence[Item], n: int, keys: Sequence[Callable[[Item], Hashable]], rng: random.Random
) -> list[Item]:
    """`n` items, each the one whose values of `keys` were used least so far (first key first), ties at random.

    The values of the first key are used evenly, within each those of the second, and so on. ValueError when there
    are fewer than `n` items.
    """
    if not 1 <= n <= len(items):
        raise ValueError(f"n={n}: there are {len(items)} trials to draw from, ask for 1 to {len(items)}")
    values = [[(level, key(item)) for level, key in enumerate(keys)] for item in items]
    left = list(range(len(items)))
    rng.shuffle(left)
    used: Counter[Hashable] = Counter()
    chosen: list[int] = []
    for _ in range(n):
        at = min(left, key=lambda i: [used[value] for value in values[i]])
        left.remove(at)
        used.update(values[at])
        chosen.append(at)
    return [items[at] for at in chosen]
