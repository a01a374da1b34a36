"""The sets of heads that an ablation curve evaluates: the top k of each ranking, and controls."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from lens_heads.heads.conditions import NO_ABLATION, NO_NEEDLE, TOP_NO_NEEDLE, Condition, HeadSet, head_set
from lens_heads.heads.controls import CONTROLS, Controls
from lens_heads.heads.geometry import HeadGeometry
from lens_heads.heads.named import AnyRankings, by_name
from lens_heads.heads.scores import HeadScores
from lens_heads.heads.units import to_query_heads
from lens_heads.runs import checks

RESERVED = ("none", "any", NO_NEEDLE, TOP_NO_NEEDLE, *CONTROLS)
"""Names that tables use for no ablation and for controls."""


def named_scores(rankings: AnyRankings, shape: HeadGeometry) -> dict[str, HeadScores]:
    """The rankings by name, each of this model's shape."""
    named = by_name(rankings)
    check_names(named, "a ranking")
    for name, scores in named.items():
        shape.check_scores(scores, f"ranking {name!r}")
    # A kv head that one query head reads is that one.
    return {name: to_query_heads(one, 1) if one.unit == "kv_head" else one for name, one in named.items()}


def check_names(names: Iterable[Any], what: str) -> None:
    """ValueError for a name that is no text, or that stands for a control or for no ablation in tables."""
    for name in names:
        if not isinstance(name, str) or not name.strip() or name in RESERVED:
            why = "the name of a control" if name in RESERVED else "but a name is a non-empty string"
            raise ValueError(f"{what} is called {name!r}, {why}: choose another name")


def capped(ks: Sequence[int] | int, most: int) -> list[int]:
    """Numbers of heads to ablate, ascending, capped at the most that there are. ValueError unless positive integers."""
    listed = checks.whole_numbers("ks", ks, remedy=" (k = 0, no ablation, is always included)")
    return sorted({min(k, most) for k in listed})


def plan_sets(
    rankings: Mapping[str, HeadScores],
    ks: Sequence[int],
    controls: Controls,
) -> list[HeadSet]:
    """No ablation; then for every k the top k of every ranking, and its controls."""
    few, everyone = controls.trials, next(iter(rankings.values())).ranking()
    named = named_rankings(next(iter(rankings)) if controls.of is None else controls.of, rankings, "controls of")
    sets = [NO_ABLATION]
    for k in ks:
        sets += [head_set(Condition.top(name, k), scores.ranking()[:k]) for name, scores in rankings.items()]
        for name in named:
            scores = rankings[name]
            if "bottom" in controls.names:
                sets.append(head_set(Condition.bottom(name, k), scores.ranking()[::-1][:k]))
            drawn = controls.random_like(scores.ranking()[:k], everyone)
            sets += [head_set(Condition.random_like(name, k), heads, at, few) for at, heads in enumerate(drawn)]
        drawn = controls.random(everyone, k)
        sets += [head_set(Condition.random(k), heads, at, few) for at, heads in enumerate(drawn)]
    return sets


def limited(sets: Sequence[HeadSet], rankings: Sequence[str], task: str) -> list[HeadSet]:
    """The sets, with those of all other rankings limited to one task; "none" and "random" run on all tasks."""
    everywhere = ("none", "any", *rankings)
    return [one if one.condition.method in everywhere else replace(one, tasks=(task,)) for one in sets]


def named_rankings(names: str | Sequence[str], rankings: Mapping[str, HeadScores], what: str) -> list[str]:
    """The names as a list, with "all" for all rankings. ValueError for an unknown name."""
    named = list(rankings) if names == "all" else [names] if isinstance(names, str) else list(names)
    for name in named:
        if name not in rankings:
            raise ValueError(f"{what}: there is no ranking {name!r}: the rankings are {', '.join(rankings)}")
    return named
