"""Rankings that rank nothing: heads that score the same are ordered by layer and head alone, which says nothing of them."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sized
from typing import Any, Protocol

from torch import Tensor

from lens_heads.runs.warned import users_line


class Ranked(Protocol):
    """What is asked of scores here."""

    @property
    def flat(self) -> Tensor: ...
    @property
    def order(self) -> Sized: ...
    def ties(self, k: int) -> list[Any]: ...


def ranks_nothing(scores: Ranked) -> bool:
    """Whether all of several heads score the same, and none was put first."""
    values = scores.flat
    return len(values) > 1 and not len(scores.order) and bool(values.min() == values.max())


def check_ranks(rankings: Mapping[str, Ranked], ks: Iterable[int]) -> None:
    """ValueError if the first ranking, the lead, ranks nothing.

    One warning names others that do, and all whose top k is partly arbitrary because of ties.
    """
    found: list[str] = []
    for name, scores in rankings.items():
        cut = [k for k in ks if 0 < k < len(scores.flat)]
        if not cut:
            continue
        if ranks_nothing(scores):
            if scores is next(iter(rankings.values())):
                check_ranked(name, scores)
            found.append(f"{said(name, scores)}, so its heads are the first of layer 0: leave it out")
            continue
        counts = {k: len(scores.ties(k)) for k in cut}
        if any(counts.values()):
            tied = ", ".join(f"{count} of the top {k}" for k, count in counts.items() if count)
            found.append(
                f"ranking {name!r} has ties: {tied} score the same as the next head below and are ordered by layer and head; "
                "more trials could separate them"
            )
    if found:
        warnings.warn("; ".join(found), stacklevel=users_line())


def check_ranked(name: str, scores: Ranked) -> None:
    """ValueError for a ranking that ranks nothing."""
    if ranks_nothing(scores):
        raise ValueError(f"{said(name, scores)}: score trials in which the method sees something")


def warn_of_nothing(rankings: Mapping[str, Ranked]) -> None:
    """One warning that names the rankings that rank nothing, where they are only shown."""
    nothing = [said(name, scores) for name, scores in rankings.items() if ranks_nothing(scores)]
    if nothing:
        warnings.warn(f"{'; '.join(nothing)}: their order is that of layers and heads", stacklevel=users_line())


def said(name: str, scores: Ranked) -> str:
    """That a ranking ranks nothing, in words."""
    return f"ranking {name!r} ranks nothing: all {len(scores.flat)} heads score {float(scores.flat[0]):g}"
