"""Conversion between scores of query heads and of kv heads; and scores negated so that the highest are best."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from einops import rearrange, repeat

from lens_heads.heads.head import AnyHeads, Head, parse_heads
from lens_heads.heads.scores import HeadScores
from lens_heads.runs import checks
from lens_heads.runs.typed import typed

__all__ = ["highest_first", "query_heads", "to_kv_heads", "to_query_heads"]
__dir__ = __all__.copy

LARGEST_GROUP = 1024
"""Query heads of a kv head: more than any model has in all."""


@typed
def to_kv_heads(scores: HeadScores, group: int) -> HeadScores:
    """Scores of kv heads [layer, kv head]: each takes those of the best of its `group` query heads.

    An `order` of heads becomes that of the kv heads they read.
    Raises ValueError as `check_group` does.

    `scores`: of query heads.

    Example:
        >>> kv = lh.units.to_kv_heads(scores, group=2)
        >>> kv.unit, [str(head) for head in kv.top(1)]
        ('kv_head', ['L1K0'])
    """
    check_group(scores, "query_head", group)
    best = rearrange(scores.sign * scores.values, "layer (kv group) -> layer kv group", group=group).argmax(-1)
    by_group = rearrange(scores.per_trial, "trial layer (kv group) -> trial layer kv group", group=group)
    per_trial = by_group.gather(-1, best.expand(len(by_group), *best.shape)[..., None])[..., 0]
    order = dict.fromkeys(Head(head.layer, head.head // group, "kv_head") for head in scores.order)
    fields = {"per_trial": per_trial, "values": per_trial.mean(0), "order": tuple(order), "fit": _unfitted(scores)}
    if scores.null is not None:  # Every draw has its own best head, as the scores have theirs.
        signed = rearrange(scores.sign * scores.null, "draw layer (kv group) -> draw layer kv group", group=group)
        fields["null"] = scores.sign * signed.amax(-1)
    return replace(scores, unit="kv_head", **fields)


@typed
def to_query_heads(scores: HeadScores, group: int) -> HeadScores:
    """Scores of query heads [layer, head]: each takes that of the kv head it reads, so the heads of a group tie.

    An `order` of heads is kept, with the heads of a group side by side: select them in multiples of `group`.
    Raises ValueError as `check_group` does.

    `scores`: of kv heads.

    Example:
        >>> wide = lh.units.to_query_heads(lh.units.to_kv_heads(scores, group=2), group=2)
        >>> wide.unit, wide.values.shape == scores.values.shape
        ('query_head', True)
    """
    check_group(scores, "kv_head", group)
    spread = {
        name: repeat(getattr(scores, name), "... kv -> ... (kv group)", group=group)
        for name in ("values", "per_trial", "null")
        if getattr(scores, name) is not None
    }
    order = query_heads(scores.order, group)
    return replace(scores, **spread, unit="query_head", order=tuple(order), fit=_unfitted(scores))


@typed
def query_heads(kv_heads: AnyHeads, group: int) -> list[Head]:
    """All query heads that read these kv heads (`head_geometry(model).group` of them each). ValueError for a group below 1.

    Kv heads as `scores.top(k)` of their scores gives them, "L12K1" strings, or pairs.

    `kv_heads`: those that are read.

    Example:
        >>> lh.units.query_heads(["L0K1"], group=2)
        [Head(0, 2), Head(0, 3)]
    """
    checks.count("group", group, 1, LARGEST_GROUP)
    listed = parse_heads(kv_heads, "kv_head")
    queries = named_as_query_heads([kv_heads] if isinstance(kv_heads, str) else kv_heads)
    if queries and group > 1:
        raise ValueError(
            f"{queries[0]} is a query head already: pass kv heads, as units.to_kv_heads(scores, {group}).top(k), 'L0K1' or "
            "(layer, kv head)"
        )
    return [Head(kv.layer, kv.head * group + i) for kv in listed for i in range(group)]


def named_as_query_heads(heads: Any) -> list[str]:
    """Those of listed heads that say that they are query heads: of this unit, or written L0H1."""
    named = [head for head in heads if isinstance(head, str) and "H" in head.upper()]
    return named + [str(head) for head in heads if isinstance(head, Head) and head.unit == "query_head"]


@typed
def highest_first(scores: HeadScores) -> HeadScores:
    """The same scores, negated if the lowest are best.

    `scores`: either way round.

    Example:
        >>> lowest = lh.HeadScores("loss", -scores.values, -scores.per_trial, scores.trial_ids, best="lowest")
        >>> lh.units.highest_first(lowest).top(2) == scores.top(2)
        True
    """
    if scores.sign > 0:
        return scores
    null = None if scores.null is None else -scores.null
    return replace(scores, values=-scores.values, per_trial=-scores.per_trial, null=null, best="highest")


def _unfitted(scores: HeadScores) -> dict[str, Any]:
    """The fit without its results for single heads, which are heads of the other unit."""
    return {name: value for name, value in scores.fit.items() if name != "heads"}


@typed
def check_group(scores: HeadScores, unit: str, group: int) -> None:
    """ValueError for scores of another unit, or a group that does not divide the query heads of a layer."""
    if scores.unit != unit:
        raise ValueError(f"{scores.method} scores {scores.unit}s, but this needs scores of {unit}s: pass such scores")
    number = checks.whole(group) or 0
    if not 1 <= number <= LARGEST_GROUP or (unit == "query_head" and scores.n_heads % number):
        raise ValueError(
            f"group={group!r:.60} does not fit {scores.n_heads} {unit}s per layer: pass head_geometry(model).group of their model"
        )
