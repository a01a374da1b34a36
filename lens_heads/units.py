"""Scores of query heads and of kv heads, one from the other; and scores turned so that the highest are best."""

from __future__ import annotations

from dataclasses import replace

from einops import rearrange, repeat

from lens_heads.heads import HeadScores


def to_kv_heads(scores: HeadScores, group: int) -> HeadScores:
    """Scores of kv heads [layer, kv head]: each has those of the best of its `group` query heads (`geometry(model).group`).

    Raises ValueError when the heads are no query heads, or do not divide into groups of this size.
    """
    _check(scores, "query_head", group)
    best = rearrange(scores.sign * scores.values, "layer (kv group) -> layer kv group", group=group).argmax(-1)
    by_group = rearrange(scores.per_trial, "trial layer (kv group) -> trial layer kv group", group=group)
    per_trial = by_group.gather(-1, best.expand(len(by_group), *best.shape)[..., None])[..., 0]
    return HeadScores.from_trials(scores.method, per_trial, scores.trial_ids, _unordered(scores), "kv_head")


def to_query_heads(scores: HeadScores, group: int) -> HeadScores:
    """Scores of query heads [layer, head]: each has that of the kv head it reads, so a group's heads score the same.

    Raises ValueError when the heads are no kv heads.
    """
    _check(scores, "kv_head", 1)
    spread = {
        name: repeat(getattr(scores, name), "... kv -> ... (kv group)", group=group) for name in ("values", "per_trial")
    }
    return replace(scores, **spread, unit="query_head", meta=_unordered(scores))


def highest_first(scores: HeadScores) -> HeadScores:
    """The same scores with their sign turned, if the lowest were best."""
    if scores.sign > 0:
        return scores
    turned = {"values": -scores.values, "per_trial": -scores.per_trial}
    return replace(scores, **turned, meta={**scores.meta, "best": "highest"})


def _unordered(scores: HeadScores) -> dict[str, object]:
    """The meta without an order, which names heads of the other unit."""
    return {name: value for name, value in scores.meta.items() if name != "order"}


def _check(scores: HeadScores, unit: str, group: int) -> None:
    if scores.unit != unit:
        raise ValueError(f"{scores.method} scores {scores.unit}s, not {unit}s: they are what is asked for already")
    if group < 1 or scores.n_heads % group:
        raise ValueError(
            f"group={group}: {scores.n_heads} heads do not divide into groups of that size; it is geometry(model).group"
        )
