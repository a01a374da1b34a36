"""Do two methods pick the same heads? Overlap of their top sets against two exact nulls.

Chance: the other set is drawn from all heads of the model (hypergeometric). Layer-matched: it is drawn with as many heads
in each layer as it has, so that agreeing on depth alone counts for nothing. Comparing whole orders is in `rankings.py`.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float
from scipy import stats as scipy_stats

from lens_heads.heads.head import Head
from lens_heads.heads.scores import HeadScores

if TYPE_CHECKING:
    import pandas as pd

_COLUMNS = (
    *("k_a", "k_b", "jaccard", "share_of_a", "share_of_b", "expected_overlap", "expected_jaccard", "p_value"),
    *("layer_matched_overlap", "layer_matched_jaccard", "layer_matched_p_value"),
)


@dataclass(frozen=True)
class Overlap:
    """The top `k_a` heads of one method beside the top `k_b` of another, of `n` heads in all.

    `both` and `only_a` are in the order of a, `only_b` in that of b. `jaccard` is |both| / |either|, `share_of_a` the part
    of a's heads that b has too. `expected_*` are means under chance, exact; `p_value` is P(overlap at least this large).
    `layer_matched_*` say the same where each set keeps its number of heads in each layer.
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

    def __repr__(self) -> str:
        return (
            f"Overlap({self.method_a!r} top {self.k_a}, {self.method_b!r} top {self.k_b}: {len(self.both)} heads in both, "
            f"{self.expected_overlap:.3g} by chance (p {self.p_value:.2g}), {self.layer_matched_overlap:.3g} with layers "
            f"matched (p {self.layer_matched_p_value:.2g}); Jaccard {self.jaccard:.3g})"
        )


def overlap(a: HeadScores, b: HeadScores, k: int, k_b: int | None = None) -> Overlap:
    """Which of the top k heads two methods share, and how many they would share by chance.

    The sets are `a.top(k)` and `b.top(k)` (`b.top(k_b)` where sets of different sizes are compared). Equal scores are taken
    in order of layer, then head (`HeadScores.ranking`): two methods with many zeros agree on those for no better reason,
    see `HeadScores.ties`.

    The p value is `scipy.stats.hypergeom.sf`; the expected Jaccard is the sum over all possible overlaps of their
    probability times their Jaccard, not the Jaccard of the expected overlap.

    Raises ValueError for scores of models of different shapes, or k outside 1 to the number of heads.
    """
    check_pair(a, b)
    top_a, top_b = _top(a, k), _top(b, k if k_b is None else k_b)
    return _of_sets((a.method, b.method), top_a, top_b, a.n_layers, a.n_heads)


def _of_sets(names: tuple[str, str], a: Sequence[Head], b: Sequence[Head], n_layers: int, n_heads: int) -> Overlap:
    in_a, in_b = set(a), set(b)
    both = [head for head in a if head in in_b]
    n, shared = n_layers * n_heads, len(both)
    chance, matched, jaccards = _chance(n, len(a), len(b)), _layer_matched(n_heads, a, b), _jaccards(len(a), len(b))
    return Overlap(
        method_a=names[0],
        method_b=names[1],
        k_a=len(a),
        k_b=len(b),
        n=n,
        both=both,
        only_a=[head for head in a if head not in in_b],
        only_b=[head for head in b if head not in in_a],
        jaccard=float(jaccards[shared]),
        share_of_a=shared / len(a),
        share_of_b=shared / len(b),
        expected_overlap=_mean(chance, np.arange(len(chance))),
        expected_jaccard=_mean(chance, jaccards),
        p_value=float(scipy_stats.hypergeom.sf(shared - 1, n, len(a), len(b))),
        layer_matched_overlap=_mean(matched, np.arange(len(matched))),
        layer_matched_jaccard=_mean(matched, jaccards),
        layer_matched_p_value=min(1.0, float(matched[shared:].sum())),
    )


def head_overlaps(
    rankings: Mapping[str, HeadScores | Iterable[Head | str | Sequence[int]]],
    k: int | None = None,
    shape: tuple[int, int] | None = None,
) -> pd.DataFrame:
    """Which heads the rankings (of tasks, say) share: a row per pair, in the order given.

    Rankings are scores, or heads in order, best first. `k` cuts each; None takes lists whole (sets of different sizes, whose
    one-sided shares differ). `shape`: layers and heads of the model, needed where there are lists alone.

    Columns: a, b, k_a, k_b, overlap (heads), jaccard, share_of_a, share_of_b, expected_overlap, expected_jaccard, p_value,
    layer_matched_overlap, layer_matched_jaccard, layer_matched_p_value; nulls as in `overlap`. The p values are of single
    pairs: of many, correct them (`stats.benjamini_hochberg`).

    Raises ValueError for fewer than two rankings, a list shorter than k or with a head twice, and heads outside the shape.
    """
    import pandas as pd

    if len(rankings) < 2:
        raise ValueError(f"{len(rankings)} rankings have no overlap: give {{name: heads}} of two or more")
    lists, known = {}, set() if shape is None else {shape}
    for name, ranking in rankings.items():
        if isinstance(ranking, HeadScores):
            if k is None:
                raise ValueError(f"k=None takes lists whole, but {name!r} scores all heads of the model: give k")
            known.add((ranking.n_layers, ranking.n_heads))
            lists[name] = ranking.ranking()
        else:
            lists[name] = [Head.parse(head) for head in ranking]
    if len(known) != 1:
        raise ValueError(f"rankings of one model are needed; of {known or 'lists'} say shape=(layers, heads)")
    n_layers, n_heads = known.pop()
    sets = {name: _cut(name, heads, k, n_layers, n_heads) for name, heads in lists.items()}
    rows = []
    for a, b in itertools.combinations(sets, 2):
        found = vars(_of_sets((a, b), sets[a], sets[b], n_layers, n_heads))
        rows.append({"a": a, "b": b, "overlap": len(found["both"]), **{name: found[name] for name in _COLUMNS}})
    return pd.DataFrame(rows)


def _cut(name: str, heads: list[Head], k: int | None, n_layers: int, n_heads: int) -> list[Head]:
    """The k first of a list, checked."""
    top = heads if k is None else heads[: max(k, 0)]
    if not top or (k is not None and len(top) < k):
        raise ValueError(f"ranking {name!r} has {len(heads)} heads, k={k} are asked for: give k, of 1 to that many")
    for head in top:
        if head.layer >= n_layers or head.head >= n_heads:
            raise ValueError(f"ranking {name!r}: head {head} does not exist in {n_layers} layers x {n_heads} heads")
        if top.count(head) > 1:
            raise ValueError(f"ranking {name!r} lists {head} more than once: a ranking holds each head once")
    return top


def jaccard_curve(a: HeadScores, b: HeadScores, ks: Iterable[int] | None = None) -> pd.DataFrame:
    """Agreement of two methods by the size of the sets: one row per k, smallest first.

    Columns: k; jaccard; chance (its exact mean under the hypergeometric null) with chance_low and chance_high, between which
    lie 95 % of that null; layer_matched_chance (its mean where each set keeps its heads per layer); overlap (heads).
    `ks` are 1, 2, 5, 10, 20, 50, ... up to the number of heads by default. Ties and errors as in `overlap`.
    """
    import pandas as pd

    check_pair(a, b)
    n = a.values.numel()
    rows = []
    for k in sorted(set(_one_two_five(n) if ks is None else ks)):
        found = overlap(a, b, k)
        jaccards = _jaccards(k, k)
        low, high = (int(scipy_stats.hypergeom.ppf(q, n, k, k)) for q in (0.025, 0.975))
        rows.append(
            {
                "k": k,
                "jaccard": found.jaccard,
                "chance": found.expected_jaccard,
                "chance_low": float(jaccards[low]),
                "chance_high": float(jaccards[high]),
                "layer_matched_chance": found.layer_matched_jaccard,
                "overlap": len(found.both),
            }
        )
    if not rows:
        raise ValueError(f"{_name(a)} against {_name(b)}: ks is empty: give sizes of the sets, or None")
    return pd.DataFrame(rows)


def check_pair(a: HeadScores, b: HeadScores) -> None:
    """ValueError unless both are scores of the same heads: as many layers, as many heads, the same unit."""
    if a.values.shape != b.values.shape or a.unit != b.unit:
        raise ValueError(
            f"{_name(a)} and {_name(b)} cannot be compared head by head: {_shape(a)} against {_shape(b)}; "
            "score the same model (or one of the same shape) with both, or compare depths: overlap_by_depth"
        )


def _name(scores: HeadScores) -> str:
    return f"{scores.method} of {scores.model}"


def _shape(scores: HeadScores) -> str:
    return f"{scores.n_layers} layers x {scores.n_heads} {scores.unit.replace('_', ' ')}s"


def _top(scores: HeadScores, k: int) -> list[Head]:
    top = scores.top(k)
    if not top:
        raise ValueError(
            f"k={k}: an empty set overlaps with nothing; {_name(scores)} has {scores.values.numel()} heads"
        )
    return top


def _one_two_five(n: int) -> list[int]:
    return [step * 10**power for power in range(len(str(n))) for step in (1, 2, 5) if step * 10**power <= n]


def _chance(n: int, k_a: int, k_b: int) -> Float[np.ndarray, " overlap"]:
    """Probability of an overlap of 0, 1, ..., min(k_a, k_b) heads between two random sets out of n heads."""
    return np.asarray(scipy_stats.hypergeom.pmf(np.arange(min(k_a, k_b) + 1), n, k_a, k_b))


def _layer_matched(n_heads: int, a: Sequence[Head], b: Sequence[Head]) -> Float[np.ndarray, " overlap"]:
    """The same where the sets are random within each layer: layers are independent, so their distributions convolve."""
    in_a, in_b = Counter(head.layer for head in a), Counter(head.layer for head in b)
    total = np.ones(1)
    for layer in in_a.keys() & in_b.keys():
        total = np.convolve(total, _chance(n_heads, in_a[layer], in_b[layer]))
    return np.pad(total, (0, min(len(a), len(b)) + 1 - len(total)))


def _jaccards(k_a: int, k_b: int) -> Float[np.ndarray, " overlap"]:
    """The Jaccard index of two sets by their overlap of 0, 1, ..., min(k_a, k_b) heads."""
    shared = np.arange(min(k_a, k_b) + 1)
    return shared / (k_a + k_b - shared)


def _mean(chances: Float[np.ndarray, " overlap"], values: Float[np.ndarray, " overlap"]) -> float:
    return float(chances @ values)
