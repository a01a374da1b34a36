"""Scores by name, however they are given."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from lens_heads.heads.scores import HeadScores


def by_name(scores: Mapping[str, HeadScores] | Iterable[HeadScores] | HeadScores) -> dict[str, HeadScores]:
    """One HeadScores, several, or a mapping of them, by name: a mapping's own, else the method's. ValueError for two of
    one name, TypeError for anything else."""
    given: Any = [scores] if isinstance(scores, HeadScores | str) else scores
    if not isinstance(given, Iterable):
        raise TypeError(f"scores is {type(given).__name__}: pass HeadScores, such as score_heads returns")
    listed = given.values() if isinstance(given, Mapping) else (given := list(given))
    wrong = next((one for one in listed if not isinstance(one, HeadScores)), None)
    if wrong is not None:
        raise TypeError(f"scores holds {type(wrong).__name__}: pass HeadScores, such as score_heads returns")
    if isinstance(given, Mapping):
        return dict(given)
    names = [one.method for one in given]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ValueError(f"two scores are called {twice!r}: pass a mapping of names to scores")
    return dict(zip(names, given, strict=True))
