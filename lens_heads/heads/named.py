"""Rankings by name, in every form that functions take them."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import pandas as pd

from lens_heads.heads.head import AnyHeads
from lens_heads.heads.scores import HeadScores
from lens_heads.runs.drawn import Tabled

AnyRankings: TypeAlias = Mapping[str, HeadScores] | Iterable[HeadScores] | HeadScores
"""One ranking, several, or several by name, as `rank` and `score_heads` return them."""

Ranking: TypeAlias = HeadScores | AnyHeads
"""Scores, or heads from best to worst."""
AnyRanked: TypeAlias = Mapping[str, Ranking] | Iterable[HeadScores] | Ranking
"""`AnyRankings`, in which heads may stand for scores; heads alone go by the name "heads"."""


class Rankings(Tabled, dict[str, HeadScores]):
    """Rankings by name; a notebook shows the best heads of each.

    Example:
        >>> lh.rank(model, trials, "locos", progress=False).frame["ranking"].tolist()
        ['locos']
    """

    def __missing__(self, name: Any) -> HeadScores:
        close = difflib.get_close_matches(str(name), self, 1)
        meant = f": did you mean {close[0]!r}?" if close else "."
        raise KeyError(f"there is no ranking {name!r}{meant} There are {', '.join(self) or 'none'}")

    @property
    def frame(self) -> pd.DataFrame:
        """A row per ranking: ranking, best (its five best heads), their scores, unit, trials."""
        rows = []
        for name, one in self.items():
            best = one.ranking()[:5]
            told = {"best": ", ".join(map(str, best)), "scores": ", ".join(f"{one[head]:.3g}" for head in best)}
            rows.append({"ranking": name, **told, "unit": one.score_unit, "trials": len(one.trial_ids)})
        return pd.DataFrame(rows, columns=["ranking", "best", "scores", "unit", "trials"])


def by_name(rankings: AnyRankings) -> dict[str, HeadScores]:
    """The rankings by name: a mapping's own, else the method's.

    TypeError for anything that is not a ranking, ValueError for none and for two of one name.
    """
    given: Any = [rankings] if isinstance(rankings, HeadScores) else rankings
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise TypeError(f"rankings={given!r:.60}: must be a HeadScores, several, or what score_heads returns")
    if not isinstance(given, Mapping):
        listed = list(given)
        names = [getattr(one, "method", "?") for one in listed]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise ValueError(f"two rankings are called {twice!r}: pass a mapping of names to rankings")
        given = dict(zip(names, listed, strict=True))
    for name, one in given.items():
        if not isinstance(one, HeadScores):
            raise TypeError(
                f"ranking {name!r} must be a HeadScores, as score_heads returns, not a {type(one).__name__}"
            )
    methods = {one.method for one in given.values()}
    for name, one in given.items():
        if name != one.method and name in methods and one.method in given:
            raise ValueError(
                f"ranking {name!r} holds scores of {one.method!r}, and there is a ranking of that name: exchange them, or use "
                "other names"
            )
    if not given:
        raise ValueError("there are no rankings: pass the result of score_heads, or one HeadScores")
    return dict(given)


def ranked_by_name(rankings: AnyRanked) -> dict[str, Ranking]:
    """The rankings by name, as `by_name`, where some or all may be heads without scores."""
    given: Any = list(rankings) if isinstance(rankings, Iterator) else rankings
    listed = isinstance(given, Sequence) and not isinstance(given, str)
    every = given.values() if isinstance(given, Mapping) else given if listed else [given]
    if all(isinstance(one, HeadScores) for one in every):
        known: Any = given
        return dict(by_name(known))
    return dict(given) if isinstance(given, Mapping) else {"heads": given}
