"""HeadMatch: which head of one model corresponds to which head of another, and how reliably."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from jaxtyping import Float

from lens_heads.heads.head import AnyHeads, Head, parse_heads
from lens_heads.heads.sets import every_head
from lens_heads.runs.drawn import Drawn
from lens_heads.runs.identity import ModelIdentity
from lens_heads.runs.tables import read_tables, write_tables
from lens_heads.runs.typed import typed, typed_methods

if TYPE_CHECKING:
    import plotly.graph_objects as go


@typed_methods
@dataclass(frozen=True, eq=False)
class HeadMatch(Drawn):
    """The result of `match_heads`.

    `pairs` has one row per matched head of a, ordered by layer and head: head_a, head_b ("L12H1"); distance, in all and in
    each part; margin (distance to the nearest other head of b minus that to the partner: negative if the assignment gave the
    nearest head to another); stability (fraction of resamples with the same partner); p (fraction of heads in the partner's
    depth bin that are at least as near to head_a: a rank, not a test, because partners are selected for being near).

    `distance` covers all heads, by layer, then head. `chance` is the mean distance of head_a to the heads in its partner's
    depth bin. `p` tests the whole matching: see `match_heads`. `shape_a` and `shape_b` are (layers, heads per layer).
    `heads_b`: all heads of b, by default as many in each of its layers.
    `identities`: the matched models, by whose weights others are told. `depth_bins`: how many there were.
    `meta`: how it was matched.

    Example:
        >>> match = lh.match_heads(untrained, untrained, texts=["It rained. Nobody went out all day."] * 3)
        >>> match.pairs[["head_a", "head_b"]].head(2)
          head_a head_b
        0   L0H0   L0H0
        1   L0H1   L0H1
    """

    pairs: pd.DataFrame
    distance: Float[np.ndarray, "head_a head_b"]
    p: float
    chance: float
    shape_a: tuple[int, int]
    shape_b: tuple[int, int]
    meta: dict[str, Any]
    identities: tuple[ModelIdentity, ModelIdentity] = (ModelIdentity(""), ModelIdentity(""))
    depth_bins: int = 1
    heads_b: tuple[Head, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "heads_b", self.heads_b or tuple(every_head(*self.shape_b)))

    @property
    def frame(self) -> pd.DataFrame:
        """`pairs`, the nearest first."""
        return self.pairs.sort_values("distance", ignore_index=True)

    @property
    def mean_distance(self) -> float:
        """Mean distance of the matched pairs; unrelated heads are 1 apart on average."""
        return float(self.pairs["distance"].mean())

    @cached_property
    def _partners(self) -> dict[Head, Head]:
        return {Head.parse(a): Head.parse(b) for a, b in zip(self.pairs["head_a"], self.pairs["head_b"], strict=True)}

    def partner(self, head: Head | str | Sequence[int]) -> Head | None:
        """The head of b that corresponds to a head of a, or None. ValueError for a head that a does not have."""
        found, (layers, heads) = Head.parse(head), self.shape_a
        if found.layer >= layers or found.head >= heads:
            shape = f"layers 0-{layers - 1} and heads 0-{heads - 1}"
            raise ValueError(f"head {found} does not exist: {self.meta['model_a']} has {shape}")
        return self._partners.get(found)

    def matched(self, heads: AnyHeads) -> list[Head]:
        """The partners of some heads of a, in their order; unmatched heads are skipped."""
        return [found for head in parse_heads(heads) if (found := self.partner(head)) is not None]

    def plot(self, heads: AnyHeads | None = None, *, title: str | None = None) -> go.Figure:
        """Both models side by side, with a line from each head (or each of `heads`) to its partner."""
        from lens_heads import plots

        return plots.match_diagram(self, heads=None if heads is None else parse_heads(heads), title=title)

    def save(self, folder: str | Path) -> Path:
        """Write `pairs.parquet`, `distance.parquet` and `match.json` (everything else)."""
        distance = pd.DataFrame(self.distance, columns=[str(head) for head in self.heads_b])
        rest = {name: getattr(self, name) for name in ("p", "chance", "shape_a", "shape_b", "meta", "depth_bins")}
        rest |= {"identities": [one.record for one in self.identities]}
        return write_tables(folder, {"pairs": self.pairs, "distance": distance}, "match.json", rest)

    @classmethod
    def load(cls, folder: str | Path) -> HeadMatch:
        """Read what `save` wrote. FileNotFoundError names a missing file."""
        tables, rest = read_tables(folder, ("pairs", "distance"), "match.json", cls.__name__)
        shapes = {name: tuple(rest.pop(name)) for name in ("shape_a", "shape_b")}
        earlier = rest.get("meta", {})  # There, earlier files have the identities and the number of bins.
        one, other = rest.pop("identities", None) or earlier.pop("identities", ({}, {}))
        bins = rest.pop("depth_bins", None) or earlier.pop("depth_bins", 1)
        owners = ModelIdentity.read(one), ModelIdentity.read(other)
        distance = tables["distance"].to_numpy()
        heads = tuple(map(Head.parse, tables["distance"].columns))
        return cls(tables["pairs"], distance, identities=owners, depth_bins=bins, heads_b=heads, **shapes, **rest)

    def __repr__(self) -> str:
        return (
            f"HeadMatch({self.meta['model_a']} to {self.meta['model_b']}: {len(self.pairs)} pairs, mean distance "
            f"{self.mean_distance:.3g} ({self.chance:.3g} to heads at the same depth, p = {self.p:.2g}), mean stability "
            f"{self.pairs['stability'].mean():.2f})"
        )


@typed
def match_accuracy(match: HeadMatch, truth: Mapping[Any, Any]) -> float:
    """Fraction of planted partners found: of the heads of a in `truth` ({head of a: its true partner in b}).

    Heads may be given in any accepted spelling. Raises ValueError if `truth` is empty or names a head that a does not have.

    `match`: of `match_heads`.

    Example:
        >>> match = lh.match_heads(untrained, untrained, texts=["It rained. Nobody went out all day."] * 3)
        >>> lh.compare.match_accuracy(match, {"L0H0": "L0H0", "L2H3": "L2H3"})
        1.0
    """
    if not truth:
        raise ValueError("truth is empty. Pass {head of a: its true partner in b}.")
    right = [match.partner(head) == Head.parse(partner) for head, partner in truth.items()]
    return sum(right) / len(right)
