"""match_heads: which head of one model corresponds to which head of another?

Two models share no heads, so heads are matched by their behaviour: where they sit, what their patterns look like, how
methods score them, and what they write on the same words. The matching is one-to-one, at the least total distance.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

import numpy as np
import pandas as pd
from jaxtyping import Float, Int
from rich.progress import track
from scipy.optimize import linear_sum_assignment

from lens_heads.compare.distances import PARTS, Evidence, Side
from lens_heads.compare.signatures import head_signatures, readings
from lens_heads.heads.depth import depth_bins as bins_of
from lens_heads.heads.geometry import HeadGeometry
from lens_heads.heads.matching import HeadMatch
from lens_heads.heads.scores import HeadScores
from lens_heads.model.belonging import check_scores_of
from lens_heads.model.geometry import Model, head_geometry
from lens_heads.model.identity import identify, warn_of_change
from lens_heads.ranking.one_pass.common_texts import common_texts
from lens_heads.runs import checks
from lens_heads.runs.store import digest
from lens_heads.runs.typed import typed

Distance: TypeAlias = Float[np.ndarray, "head_a head_b"]
Scores: TypeAlias = tuple[Mapping[str, HeadScores], Mapping[str, HeadScores]]
Shapes: TypeAlias = tuple[HeadGeometry, HeadGeometry]

_READ = {"patterns", "cka"}
"""The parts that require texts."""


@typed
def match_heads(
    model_a: Model,
    model_b: Model,
    *,
    signatures: Sequence[str] | str | None = None,
    rankings: Scores | None = None,
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
    previous token, induction), "scores" and "cka" (of `hook_z` at the end of every word). Each part is scaled so that
    unrelated heads are 1 apart on average (`Evidence.distances`). The assignment minimizes the total distance
    (`scipy.optimize.linear_sum_assignment`); some heads of the larger model stay unmatched.

    Args:
        signatures: the parts; by default all that have input ("scores" only if `rankings` are given).
        rankings: ({name: HeadScores of a}, {name: HeadScores of b}) with the same names: methods, tasks, or both.
        texts: at least two, of at least four words, read by both models (default: `common_texts()`). Keep them short: each
            is read twice in a row, and one layer's patterns of it must fit into memory.
        weights: weights of the parts; 1 if omitted.
        resamples: resamples of the texts, and of the trials of scores, for the stability of each pair.
        permutations: for the p value of the whole matching. Null: the heads of b are shuffled within bins of relative depth,
            independently in every part, and matched again. p therefore tests whether the parts agree on partners beyond
            depth; NaN with fewer than two parts besides depth.
        depth_bins: number of depth bins (default: 4, or fewer if a model has fewer layers).

    Raises ValueError for parts that are unknown or lack input, scores of another shape or unit or with different names,
    texts that are too few, too short or too long for a context, or too few resamples or permutations; TypeError for a model
    that is not a TransformerLens model. All checks precede the first forward pass.

    `model_a`, `model_b`: of any shapes. `seed`: of the resamples. `progress`: whether to show bars.

    Example:
        >>> match = lh.match_heads(untrained, untrained, texts=["It rained. Nobody went out all day."] * 3)
        >>> bool((match.pairs["head_a"] == match.pairs["head_b"]).all())
        True
    """
    shapes = head_geometry(model_a), head_geometry(model_b)
    for model in (model_a, model_b):
        warn_of_change(model, "signatures")
    parts = _parts(signatures, rankings, texts, shapes)
    weighed = _weights(weights, parts)
    for model, given in zip((model_a, model_b), rankings or (), strict=False):
        check_scores_of(model, given)
    for name, value, least in (("resamples", resamples, 2), ("permutations", permutations, 1)):
        checks.whole_number(name, value, least)
    checks.seed(seed)
    layers = min(shape.n_layers for shape in shapes)
    bins = min(4, layers) if depth_bins is None else depth_bins
    checks.whole_number("depth_bins", bins, 1, layers, ", the layers of the smaller model")
    read = None if not set(parts) & _READ else common_texts() if texts is None else texts
    sides = _sides((model_a, model_b), shapes, read, rankings, progress)
    meta = {"model_a": shapes[0].name, "model_b": shapes[1].name, "weights": weighed, "seed": seed}
    meta |= {"texts": len(read or ()), "text_digest": digest(read)}
    meta |= {"resamples": resamples, "permutations": permutations, "scores": sorted(sides[0].scores)}
    # Assign heads, then repeat on resamples and under the null.
    evidence = Evidence(sides[0], sides[1], parts)
    bin_of_b = bins_of(shapes[1].n_layers, bins)[[head.layer for head in shapes[1].every_head()]]
    apart = evidence.distances(evidence.whole())
    distance = _combined(apart, weighed)
    partner = _assigned(distance)
    draws = evidence.resampled(resamples, seed)
    draws = track(draws, "resampling", resamples, disable=not progress, transient=True)
    again = np.stack([_assigned(_combined(evidence.distances(draw), weighed)) for draw in draws])
    i = np.flatnonzero(partner >= 0)
    j = partner[i]
    own = distance[i, j]
    others = np.where(np.arange(distance.shape[1]) == j[:, None], np.inf, distance[i])
    binned = np.where(bin_of_b == bin_of_b[j, None], distance[i], np.nan)
    names = [[str(head) for head in shape.every_head()] for shape in shapes]
    pairs = {"head_a": np.array(names[0])[i], "head_b": np.array(names[1])[j], "distance": own}
    pairs |= {"margin": others.min(1) - own, "stability": (again == partner).mean(0)[i]}
    pairs |= {"p": (binned <= own[:, None] + 1e-12).sum(1) / np.isfinite(binned).sum(1)}
    return HeadMatch(
        pairs=pd.DataFrame(pairs | {name: part[i, j] for name, part in apart.items()}),
        distance=distance,
        p=_p_value(apart, weighed, bin_of_b, permutations, seed, progress),
        chance=float(np.nanmean(binned, 1).mean()),
        shape_a=(shapes[0].n_layers, shapes[0].n_heads),
        shape_b=(shapes[1].n_layers, shapes[1].n_heads),
        heads_b=tuple(shapes[1].every_head()),
        meta=meta,
        identities=(identify(model_a), identify(model_b)),
        depth_bins=bins,
    )


def _parts(
    named: Sequence[str] | str | None, scores: Scores | None, texts: Sequence[str] | None, shapes: Shapes
) -> tuple[str, ...]:
    """The parts to use, each with its input."""
    if named is None:
        named = [part for part in PARTS if part != "scores" or scores is not None]
    chosen = (named,) if isinstance(named, str) else tuple(dict.fromkeys(named))
    unknown = [part for part in chosen if part not in PARTS]
    if unknown:
        raise ValueError(f"unknown signature {unknown[0]!r}. Choose from {', '.join(PARTS)}.")
    if not set(chosen) - {"depth"}:
        raise ValueError(f"signatures={list(chosen)} cannot separate heads of a layer. Add patterns, scores or cka.")
    if "scores" in chosen and scores is None:
        raise ValueError(
            "signatures include 'scores'. Pass rankings=({name: HeadScores of a}, {name: HeadScores of b})."
        )
    if scores is not None:
        if "scores" not in chosen:
            raise ValueError("rankings are given, but signatures do not include 'scores'. Add it, or omit rankings.")
        _check_scores(scores, shapes)
    if texts is not None and not set(chosen) & _READ:
        raise ValueError(f"signatures={list(chosen)} use no texts. Add 'patterns' or 'cka', or omit texts.")
    return chosen


def _check_scores(scores: Scores, shapes: Shapes) -> None:
    names_a, names_b = (sorted(given) for given in scores)
    if not names_a or names_a != names_b:
        raise ValueError(f"rankings of a are named {names_a}, those of b {names_b}. Pass the same names, at least one.")
    for shape, given in zip(shapes, scores, strict=True):
        for name, found in given.items():
            if found.unit != "query_head":
                what = f"rankings[{name!r}] of {shape.name} must score query heads, not {found.unit}s"
                raise ValueError(f"{what}. Convert them with lens_heads.units.to_query_heads.")
            shape.check_scores(found, f"rankings[{name!r}]")


def _weights(weights: Mapping[str, float] | None, parts: Sequence[str]) -> dict[str, float]:
    given = weights or {}
    unused = [name for name in given if name not in parts]
    if unused:
        raise ValueError(f"weights include {unused[0]!r}, but the parts in use are {', '.join(parts)}")
    found = {part: checks.finite(f"weights[{part!r}]", given.get(part, 1.0), 0) for part in parts}
    if not any(found.values()):
        raise ValueError(f"weights={found}: at least one must be above 0")
    return found


def _sides(
    models: tuple[Model, Model], shapes: Shapes, texts: Sequence[str] | None, scores: Scores | None, progress: bool
) -> list[Side]:
    """What is known about each model, scores in the same order; both models' texts are checked before either runs."""
    for model in models if texts is not None else ():
        readings(model, texts or ())
    return [
        Side(
            shape,
            head_signatures(model, texts, progress=progress) if texts is not None else None,
            dict(sorted(given.items())),
        )
        for model, shape, given in zip(models, shapes, scores or ({}, {}), strict=True)
    ]


def _combined(parts: Mapping[str, Distance], weights: Mapping[str, float]) -> Distance:
    total = sum(weights.values())
    return np.sum([weights[name] / total * part for name, part in parts.items()], axis=0)


def _assigned(distance: Distance) -> Int[np.ndarray, " head_a"]:
    """The partner of every head of a in the cheapest assignment; -1 if unmatched."""
    partner = np.full(len(distance), -1)
    rows, columns = linear_sum_assignment(distance)
    partner[rows] = columns
    return partner


def _p_value(
    parts: Mapping[str, Distance],
    weights: Mapping[str, float],
    bin_of_b: Int[np.ndarray, " head_b"],
    permutations: int,
    seed: int,
    progress: bool,
) -> float:
    """(hits + 1) / (n + 1), where a hit shuffles every part within depth bins and still matches at least as well."""
    if sum(weights[name] > 0 for name in parts if name != "depth") < 2:
        return float("nan")
    observed, rng, hits = _cost(_combined(parts, weights)), np.random.default_rng(seed), 0
    for _ in track(range(permutations), "permuting", disable=not progress, transient=True):
        # Heads are in order of layer, and so of bin: sorting by bin with random ties shuffles within bins.
        shuffled = {
            name: part if name == "depth" else part[:, np.lexsort((rng.random(len(bin_of_b)), bin_of_b))]
            for name, part in parts.items()
        }
        hits += _cost(_combined(shuffled, weights)) <= observed + 1e-12
    return (hits + 1) / (permutations + 1)


def _cost(distance: Distance) -> float:
    """Mean distance of the cheapest assignment."""
    return float(distance[linear_sum_assignment(distance)].mean())
