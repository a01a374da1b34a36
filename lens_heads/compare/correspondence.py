"""match_heads: which head of one model corresponds to which head of another?

Models have no heads in common, so heads are matched by what they do: where they sit, what their patterns are like, what
methods score them, what they write on the same words. One-to-one, at the least total distance.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import numpy as np
from jaxtyping import Float, Int
from scipy.optimize import linear_sum_assignment

from lens_heads.compare.depth import depth_bins as bins_of
from lens_heads.compare.distances import PARTS, Evidence, Side
from lens_heads.compare.head_match import HeadMatch
from lens_heads.compare.signatures import common_texts, head_signatures, readings
from lens_heads.heads.head import Head
from lens_heads.heads.scores import HeadScores
from lens_heads.model.geometry import HeadGeometry, Model, geometry
from lens_heads.runs.store import digest

if TYPE_CHECKING:
    import pandas as pd

Item = TypeVar("Item")
Scores: TypeAlias = tuple[Mapping[str, HeadScores], Mapping[str, HeadScores]]
Shapes: TypeAlias = tuple[HeadGeometry, HeadGeometry]

_READ = {"patterns", "cka"}
"""The parts that need texts."""


def match_heads(
    model_a: Model,
    model_b: Model,
    signatures: Sequence[str] | None = None,
    scores: Scores | None = None,
    texts: Sequence[str] | None = None,
    weights: Mapping[str, float] | None = None,
    resamples: int = 100,
    permutations: int = 1000,
    seed: int = 0,
    depth_bins: int | None = None,
    progress: bool = True,
) -> HeadMatch:
    """Match the heads of two models, of any shapes and tokenizers, one to one by their signatures.

    distance(h, g) = sum_p w_p d_p(h, g) / sum_p w_p over the parts p: "depth", "patterns" (entropy, distance, sink,
    previous token, induction), "scores" and "cka" (of `hook_z` at the end of every word), each scaled so that unrelated heads
    are 1 apart on average (`Evidence.distances`). The assignment has the least total distance
    (`scipy.optimize.linear_sum_assignment`); in the model with more heads some are left without a partner.

    Args:
        signatures: the parts; by default all that there is input for ("scores" only with scores).
        scores: ({name: HeadScores of a}, {name: HeadScores of b}) with the same names; methods, tasks, or both.
        texts: at least two, of at least four words, read by both models (default: `common_texts()`). Short ones: each is
            read twice in a row, and a layer's pattern of it must fit into memory.
        weights: of the parts, 1 where not given.
        resamples: of texts, and of the trials of scores, for each pair's stability.
        permutations: for the p value of the whole matching. Null: within bins of relative depth, the heads of b are
            shuffled in every part on their own, and matched anew; so p asks whether the parts agree on who is whose partner
            beyond depth. NaN with fewer than two parts beside depth, which cannot disagree.
        depth_bins: how many bins of depth (default 4, or as many as the shallower model has layers).

    Returns a `HeadMatch`: pairs with margin, stability and p, all distances, the p value of the whole.

    Raises ValueError for parts that are unknown or lack their input, scores of another shape or unit or of different names,
    texts that are too few, too short or longer than a context, resamples below 2; TypeError for what is no TransformerLens
    model; all before anything is run.
    """
    shapes = geometry(model_a), geometry(model_b)
    parts = _parts(signatures, scores, texts, shapes)
    weighed = _weights(weights, parts)
    for name, value, least in (("resamples", resamples, 2), ("permutations", permutations, 1)):
        if value < least:
            raise ValueError(f"{name}={value}: at least {least} needed")
    bins = min(4, shapes[0].n_layers, shapes[1].n_layers) if depth_bins is None else depth_bins
    for shape in shapes:
        bins_of(shape.n_layers, bins)  # Refuse more bins than either model fills.
    read = None if not set(parts) & _READ else common_texts() if texts is None else texts
    sides = _sides((model_a, model_b), shapes, read, scores if "scores" in parts else None, progress)
    meta = {"model_a": shapes[0].name, "model_b": shapes[1].name, "weights": weighed, "depth_bins": bins, "seed": seed}
    meta |= {
        "texts": len(read or ()),
        "text_digest": digest(read),
        "resamples": resamples,
        "permutations": permutations,
    }
    return _match(Evidence(sides[0], sides[1], parts), {**meta, "scores": sorted(sides[0].scores)}, progress)


def _match(evidence: Evidence, meta: dict[str, Any], progress: bool) -> HeadMatch:
    """Assign, assign again on resamples and under the null; `meta` says how."""
    weights, seed, shapes = meta["weights"], meta["seed"], (evidence.a.shape, evidence.b.shape)
    bin_of_b = bins_of(shapes[1].n_layers, meta["depth_bins"]).repeat(shapes[1].n_heads)
    parts = evidence.distances(evidence.whole())
    distance = _combined(parts, weights)
    draws = _track(evidence.resampled(meta["resamples"], seed), meta["resamples"], "resampling", progress)
    again = [_assigned(_combined(evidence.distances(draw), weights)) for draw in draws]
    pairs, chance = _pairs(distance, parts, _assigned(distance), again, bin_of_b, shapes)
    return HeadMatch(
        pairs=pairs,
        distance=distance,
        p=_p_value(parts, weights, bin_of_b, meta["permutations"], seed, progress),
        chance=chance,
        shape_a=(shapes[0].n_layers, shapes[0].n_heads),
        shape_b=(shapes[1].n_layers, shapes[1].n_heads),
        meta=meta,
    )


def _parts(
    named: Sequence[str] | None, scores: Scores | None, texts: Sequence[str] | None, shapes: Shapes
) -> tuple[str, ...]:
    """The parts to use, each with its input."""
    if named is None:
        chosen = tuple(part for part in PARTS if part != "scores" or scores is not None)
    else:
        chosen = (named,) if isinstance(named, str) else tuple(dict.fromkeys(named))
    unknown = [part for part in chosen if part not in PARTS]
    if unknown:
        raise ValueError(f"unknown signature {unknown[0]!r}: the parts are {', '.join(PARTS)}")
    if not set(chosen) - {"depth"}:
        raise ValueError(
            f"signatures={list(chosen)}: depth alone does not tell the heads of a layer apart: add patterns, scores or cka"
        )
    if ("scores" in chosen) != (scores is not None):
        lacking = "scores are given, but signatures do not name them: add 'scores', or leave scores out"
        needed = (
            "signatures name 'scores', but none are given: scores=({name: HeadScores of a}, {name: HeadScores of b})"
        )
        raise ValueError(needed if scores is None else lacking)
    if texts is not None and not set(chosen) & _READ:
        raise ValueError(f"texts are given, but signatures={list(chosen)} read none: add 'patterns' or 'cka'")
    if scores is not None:
        _check_scores(scores, shapes)
    return chosen


def _check_scores(scores: Scores, shapes: Shapes) -> None:
    mine, theirs = scores
    if not mine or set(mine) != set(theirs):
        raise ValueError(
            f"scores of a are {', '.join(sorted(mine)) or 'none'}, those of b {', '.join(sorted(theirs)) or 'none'}: give "
            "the same names for both models, at least one"
        )
    for shape, given in zip(shapes, scores, strict=True):
        for name, found in given.items():
            if found.unit != "query_head":
                raise ValueError(
                    f"scores[{name!r}] of {shape.name} are of {found.unit}s, signatures are of query heads: repeat each kv "
                    "head's scores over its group"
                )
            shape.check_scores(found, f"scores[{name!r}]")


def _weights(weights: Mapping[str, float] | None, parts: Sequence[str]) -> dict[str, float]:
    given = dict(weights or {})
    strange = [name for name in given if name not in parts]
    if strange:
        raise ValueError(f"weights name {strange[0]!r}: the parts in use are {', '.join(parts)}")
    found = {part: float(given.get(part, 1.0)) for part in parts}
    if not all(0 <= weight < np.inf for weight in found.values()) or not sum(found.values()):
        raise ValueError(f"weights={found}: finite ones from 0 on are needed, not all 0")
    return found


def _sides(
    models: tuple[Model, Model], shapes: Shapes, texts: Sequence[str] | None, scores: Scores | None, progress: bool
) -> list[Side]:
    """What is known about either model, scores in the same order of names; texts are checked on both before any is run."""
    if texts is not None:
        for model in models:
            readings(model, texts)
    names = sorted(scores[0]) if scores is not None else []
    sides = []
    for i, (model, shape) in enumerate(zip(models, shapes, strict=True)):
        seen = head_signatures(model, texts, progress) if texts is not None else None
        sides.append(Side(shape, seen, {name: scores[i][name] for name in names} if scores is not None else {}))
    return sides


def _combined(
    parts: Mapping[str, Float[np.ndarray, "head_a head_b"]], weights: Mapping[str, float]
) -> Float[np.ndarray, "head_a head_b"]:
    total = sum(weights.values())
    return np.sum([weights[name] / total * part for name, part in parts.items()], axis=0)


def _assigned(distance: Float[np.ndarray, "head_a head_b"]) -> Int[np.ndarray, " head_a"]:
    """The partner of every head of a in the cheapest assignment, -1 for none."""
    partner = np.full(len(distance), -1)
    rows, columns = linear_sum_assignment(distance)
    partner[rows] = columns
    return partner


def _pairs(
    distance: Float[np.ndarray, "head_a head_b"],
    parts: Mapping[str, Float[np.ndarray, "head_a head_b"]],
    partner: Int[np.ndarray, " head_a"],
    again: Sequence[Int[np.ndarray, " head_a"]],
    bin_of_b: Int[np.ndarray, " head_b"],
    shapes: Shapes,
) -> tuple[pd.DataFrame, float]:
    """One row per matched head, and their mean distance to all heads of their partners' depth bins."""
    import pandas as pd

    stability = (np.stack(again) == partner).mean(0)
    rows, chance = [], []
    for i in np.flatnonzero(partner >= 0):
        j = partner[i]
        own, others, binned = distance[i, j], np.delete(distance[i], j), distance[i, bin_of_b == bin_of_b[j]]
        names = [str(Head(*divmod(int(at), shape.n_heads))) for at, shape in zip((i, j), shapes, strict=True)]
        row = {"head_a": names[0], "head_b": names[1], "distance": own, "margin": others.min(initial=np.inf) - own}
        row |= {"stability": stability[i], "p": (binned <= own + 1e-12).mean()}
        rows.append(row | {name: part[i, j] for name, part in parts.items()})
        chance.append(binned.mean())
    return pd.DataFrame(rows), float(np.mean(chance))


def _p_value(
    parts: Mapping[str, Float[np.ndarray, "head_a head_b"]],
    weights: Mapping[str, float],
    bin_of_b: Int[np.ndarray, " head_b"],
    permutations: int,
    seed: int,
    progress: bool,
) -> float:
    """How often parts that are shuffled on their own, within bins of depth, can be matched as well: (hits + 1) / (n + 1)."""
    if sum(weights[name] > 0 for name in parts if name != "depth") < 2:
        return float("nan")
    observed, rng, hits = _cost(_combined(parts, weights)), np.random.default_rng(seed), 0
    for _ in _track(range(permutations), permutations, "permuting", progress):
        # Heads are in order of layer, and so of bin: sorting by bin with random ties shuffles within bins.
        shuffled = {
            name: part if name == "depth" else part[:, np.lexsort((rng.random(len(bin_of_b)), bin_of_b))]
            for name, part in parts.items()
        }
        hits += _cost(_combined(shuffled, weights)) <= observed + 1e-12
    return (hits + 1) / (permutations + 1)


def _cost(distance: Float[np.ndarray, "head_a head_b"]) -> float:
    """Mean distance of the cheapest assignment."""
    return float(distance[linear_sum_assignment(distance)].mean())


def _track(items: Iterable[Item], total: int, what: str, progress: bool) -> Iterable[Item]:
    from rich.progress import track

    return track(items, what, total, disable=not progress, transient=True)
