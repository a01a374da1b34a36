"""Do two methods select the same heads? Overlap of their top sets, tested against two exact nulls.

Under the plain null, the other set is a random draw from all heads of the model (hypergeometric). Under the layer-matched
null, it keeps its number of heads in each layer, so agreement on depth alone does not count.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float
from scipy.stats import hypergeom

from lens_heads.heads.head import Head, listed_heads
from lens_heads.heads.named import AnyRanked, ranked_by_name
from lens_heads.heads.one_model import check_one_model
from lens_heads.heads.scores import HeadScores
from lens_heads.runs import checks
from lens_heads.runs.drawn import Tabled
from lens_heads.runs.typed import typed


@dataclass(frozen=True)
class Overlap(Tabled):
    """The top `k_a` heads of one method and the top `k_b` of another, in a model of `n` heads.

    `both` and `only_a` follow the ranking of a, `only_b` that of b. `jaccard` is |both| / |either|; `share_of_a` is the
    fraction of a's heads that b also selects. `expected_*` are exact means under the plain null, and `p_value` is the
    probability of an overlap at least this large. `layer_matched_*` are the same under the layer-matched null.

    `method_a`, `method_b`: the names of the two. `share_of_b`: the fraction of b's heads that a also selects. Means are
    `expected_overlap`, `expected_jaccard`, `layer_matched_overlap` and `layer_matched_jaccard`; `layer_matched_p_value` is
    `p_value` under the layer-matched null.

    Example:
        >>> lh.compare.overlap(scores, scores, k=2).p_value < 0.05
        True
    """

    method_a: str
    method_b: str
    k_a: int
    k_b: int
    n: int
    both: list[Head]
    only_a: list[Head]
    only_b: list[Head]
    jaccard: float
    share_of_a: float
    share_of_b: float
    expected_overlap: float
    expected_jaccard: float
    p_value: float
    layer_matched_overlap: float
    layer_matched_jaccard: float
    layer_matched_p_value: float

    @property
    def frame(self) -> pd.DataFrame:
        """One row: every field, heads by name."""
        listed = {name: ", ".join(map(str, getattr(self, name))) for name in ("both", "only_a", "only_b")}
        return pd.DataFrame([vars(self) | listed])

    def __repr__(self) -> str:
        return (
            f"Overlap({self.method_a!r} top {self.k_a}, {self.method_b!r} top {self.k_b}: {len(self.both)} shared heads, "
            f"{self.expected_overlap:.3g} expected by chance (p = {self.p_value:.2g}), {self.layer_matched_overlap:.3g} "
            f"with layers matched (p = {self.layer_matched_p_value:.2g}); Jaccard {self.jaccard:.3g})"
        )


@typed
def overlap(a: HeadScores, b: HeadScores, *, k: int, k_b: int | None = None) -> Overlap:
    """Which top heads two methods share, and how many they would share by chance.

    The sets are `a.top(k)` and `b.top(k_b)`; `k_b` defaults to `k`. Ties are broken by layer, then head, so two methods
    with many zeros can agree on those by construction: see `HeadScores.ties`. The p value is `scipy.stats.hypergeom.sf`,
    and the expected Jaccard the mean over all possible overlaps, not the Jaccard of the expected overlap.

    Raises ValueError if the scores have different shapes or units, or if k is not between 1 and the number of heads.

    Example:
        >>> found = lh.compare.overlap(scores, lh.rank(model, trials, "dla")["dla"], k=2)
        >>> found.jaccard, [str(head) for head in found.both]
        (1.0, ['L1H0', 'L0H0'])
    """
    check_pair(a, b)
    top_a, top_b = top_heads(a, k), top_heads(b, k if k_b is None else k_b)
    return _of_sets((a.method, b.method), top_a, top_b, a.there.sum(1).tolist())


def _of_sets(names: tuple[str, str], a: Sequence[Head], b: Sequence[Head], heads: Sequence[int]) -> Overlap:
    """`heads`: how many there are in each layer."""
    n, in_a, in_b = sum(heads), set(a), set(b)
    both = [head for head in a if head in in_b]
    counts = np.arange(min(len(a), len(b)) + 1)  # Every possible overlap.
    jaccards = counts / (len(a) + len(b) - counts)
    chance, matched = _chance(n, len(a), len(b)), _layer_matched(heads, a, b)
    return Overlap(
        method_a=names[0],
        method_b=names[1],
        k_a=len(a),
        k_b=len(b),
        n=n,
        both=both,
        only_a=[head for head in a if head not in in_b],
        only_b=[head for head in b if head not in in_a],
        jaccard=float(jaccards[len(both)]),
        share_of_a=len(both) / len(a),
        share_of_b=len(both) / len(b),
        expected_overlap=float(chance @ counts),
        expected_jaccard=float(chance @ jaccards),
        p_value=float(hypergeom.sf(len(both) - 1, n, len(a), len(b))),
        layer_matched_overlap=float(matched @ counts),
        layer_matched_jaccard=float(matched @ jaccards),
        layer_matched_p_value=min(1.0, float(matched[len(both) :].sum())),
    )


@typed
def head_overlaps(
    rankings: AnyRanked,
    *,
    k: int | None = None,
    shape: tuple[int, int] | None = None,
) -> pd.DataFrame:
    """Overlap of every pair of rankings, for example of several tasks: one row per pair, in the given order.

    Args:
        rankings: scores, or lists of heads from best to worst.
        k: how many heads to take from each ranking. None takes whole lists, which may differ in length.
        shape: (layers, heads per layer) of the model; required if all rankings are lists.

    Columns: a, b, overlap (number of heads), then the fields of `Overlap` from k_a to layer_matched_p_value. The p values
    are not corrected for multiple comparisons: see `stats.benjamini_hochberg`.

    Raises ValueError for fewer than two rankings, a list shorter than k or with repeated heads, or heads outside the shape.

    Example:
        >>> lh.compare.head_overlaps({"names": ["L0H1", "L1H2"], "dates": ["L1H2", "L0H0"]}, shape=(2, 4))[["overlap", "jaccard"]]
           overlap   jaccard
        0        1  0.333333
    """
    named = ranked_by_name(rankings)
    if len(named) < 2:
        raise ValueError(f"head_overlaps got {len(named)} rankings. Pass {{name: heads}} with at least two.")
    if k is not None:
        checks.whole_number("k", k, least=None)
    lists, known = {}, set() if shape is None else {shape}
    counts: list[int] = []
    for name, ranking in named.items():
        if isinstance(ranking, HeadScores):
            if k is None:
                raise ValueError(f"k=None takes whole lists, but {name!r} scores all heads of the model. Pass k.")
            known.add((ranking.n_layers, ranking.n_heads))
            counts = ranking.there.sum(1).tolist()
            lists[name] = ranking.ranking()
        else:
            lists[name] = listed_heads(ranking)
    units = {ranking.unit for ranking in named.values() if isinstance(ranking, HeadScores)}
    if len(units) > 1:
        raise ValueError("rankings score query heads and kv heads: turn them into one unit with lens_heads.units")
    if len(known) != 1:
        problem = f"have different shapes: {sorted(known)}" if known else "are lists without a shape"
        raise ValueError(f"rankings {problem}. Pass rankings of one model, and shape=(layers, heads) for lists.")
    n_layers, n_heads = known.pop()
    counts = counts or [n_heads] * n_layers
    sets = {name: _cut(name, heads, k, n_layers, n_heads) for name, heads in lists.items()}
    pairs = itertools.combinations(sets, 2)
    table = pd.DataFrame([vars(_of_sets((a, b), sets[a], sets[b], counts)) for a, b in pairs])
    table.insert(2, "overlap", table.pop("both").map(len))
    return table.drop(columns=["n", "only_a", "only_b"]).rename(columns={"method_a": "a", "method_b": "b"})


def _cut(name: str, heads: list[Head], k: int | None, n_layers: int, n_heads: int) -> list[Head]:
    """The first k heads of a list, checked."""
    top = heads[: len(heads) if k is None else max(k, 0)]
    if not top or (k is not None and len(top) < k):
        raise ValueError(f"k={k}: must be between 1 and {len(heads)}, the number of heads in ranking {name!r}")
    for head in top:
        if head.layer >= n_layers or head.head >= n_heads:
            raise ValueError(f"ranking {name!r}: head {head} does not exist in {n_layers} layers x {n_heads} heads")
        if top.count(head) > 1:
            raise ValueError(f"ranking {name!r} lists {head} more than once. Keep one.")
    return top


@typed
def jaccard_curve(a: HeadScores, b: HeadScores, *, ks: Iterable[int] | None = None) -> pd.DataFrame:
    """Agreement of two methods as a function of set size: one row per k, in ascending order.

    Columns: k; jaccard; chance (its exact mean under the plain null); chance_low and chance_high (central 95 % of that
    null); layer_matched_chance (mean under the layer-matched null); overlap (number of heads). `ks` defaults to 1, 2, 5,
    10, 20, 50, ... up to the number of heads. Ties and errors as in `overlap`.

    `a`, `b`: scores of one model.

    Example:
        >>> lh.compare.jaccard_curve(scores, scores, ks=[1, 2])[["k", "jaccard", "chance"]]
           k  jaccard    chance
        0  1      1.0  0.125000
        1  2      1.0  0.178571
    """
    n = len(a.flat)
    sizes = [step * 10**power for power in range(len(str(n))) for step in (1, 2, 5)]
    rows = []
    for k in sorted({k for k in sizes if k <= n} if ks is None else set(checks.whole_numbers("ks", ks))):
        found = overlap(a, b, k=k)
        shared = np.asarray(hypergeom.ppf([0.025, 0.975], n, k, k))
        band = shared / (2 * k - shared)
        rows.append((k, found.jaccard, found.expected_jaccard, *band, found.layer_matched_jaccard, len(found.both)))
    columns = ["k", "jaccard", "chance", "chance_low", "chance_high", "layer_matched_chance", "overlap"]
    return pd.DataFrame(rows, columns=columns)


def check_pair(a: HeadScores, b: HeadScores, one_model: bool = True) -> None:
    """ValueError unless both score the same heads: equal layers, heads per layer and unit, and (`one_model`) weights."""
    if a.values.shape != b.values.shape or a.unit != b.unit or not torch.equal(a.there, b.there):
        of_a, of_b = (f"{x.n_layers} layers x {x.n_heads} {x.unit.replace('_', ' ')}s" for x in (a, b))
        found = f"{a.method} of {a.model} and {b.method} of {b.model} cannot be compared: {of_a} against {of_b}"
        raise ValueError(f"{found}. Score one model with both, or use overlap_by_depth.")
    if one_model:
        check_one_model(a, b)


def check_alike(a: HeadScores, b: HeadScores) -> None:
    """ValueError for scores of one method in other units, ranked the other way round, or made with other settings."""
    for what, one, other in (
        ("score_unit", a.score_unit, b.score_unit),
        ("best", a.best, b.best),
        *((name, a.settings[name], b.settings[name]) for name in a.settings if name in b.settings),
    ):
        if one != other:
            raise ValueError(
                f"both are scores of method {a.method!r}, but {what} is {one!r} in one and {other!r} in the other, so that their "
                "numbers cannot be compared: score both alike"
            )


def top_heads(scores: HeadScores, k: int) -> list[Head]:
    """`scores.top(k)`, which must not be empty. ValueError if k is not between 1 and the number of heads."""
    most = len(scores.flat)
    return scores.top(checks.whole_number("k", k, 1, most, f", the number of heads that {scores.method} scores"))


def _chance(n: int, k_a: int, k_b: int) -> Float[np.ndarray, " overlap"]:
    """Probability that two random sets out of n heads share 0, 1, ..., min(k_a, k_b) heads."""
    return np.asarray(hypergeom.pmf(np.arange(min(k_a, k_b) + 1), n, k_a, k_b))


def _layer_matched(heads: Sequence[int], a: Sequence[Head], b: Sequence[Head]) -> Float[np.ndarray, " overlap"]:
    """The same for sets that are random within each layer: layers are independent, so their distributions convolve."""
    in_a, in_b = Counter(head.layer for head in a), Counter(head.layer for head in b)
    total = np.ones(1)
    for layer in in_a.keys() & in_b.keys():
        total = np.convolve(total, _chance(heads[layer], in_a[layer], in_b[layer]))
    return np.pad(total, (0, min(len(a), len(b)) + 1 - len(total)))
