"""HeadMatch: which head of one model corresponds to which head of another, how surely, and how it is kept and drawn."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from lens_heads.heads.head import Head, parse_heads
from lens_heads.runs.store import write_atomic

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

AnyHeads = Iterable[Head | str | Sequence[int]] | Head | str


@dataclass(frozen=True, eq=False)
class HeadMatch:
    """The result of `match_heads`.

    `pairs`, one row per matched head of a, in order of layer and head: head_a, head_b ("L12H1"); distance; margin
    (distance of the nearest other head of b minus that of the partner: below zero the partner is not the nearest, it was
    left over); stability (share of resamples that choose the same partner); p (share of the heads in the partner's depth
    bin that are as near to head_a as it is: 1 / their number at best, the rank of a partner that was chosen for being near);
    and the distance in each part of the signature.

    `distance` [head_a, head_b] has all heads in order of layer, then head. `chance` is the mean distance of head_a to the
    heads of its partner's depth bin. `p` tests the whole matching, see `match_heads`. `shape_a`, `shape_b`: layers and heads
    per layer.
    """

    pairs: pd.DataFrame
    distance: Float[np.ndarray, "head_a head_b"]
    p: float
    chance: float
    shape_a: tuple[int, int]
    shape_b: tuple[int, int]
    meta: dict[str, Any]

    @property
    def mean_distance(self) -> float:
        """Mean distance of the matched pairs; unrelated heads are 1 apart on average."""
        return float(self.pairs["distance"].mean())

    @cached_property
    def _partners(self) -> dict[Head, Head]:
        return {Head.parse(a): Head.parse(b) for a, b in zip(self.pairs["head_a"], self.pairs["head_b"], strict=True)}

    def partner(self, head: Head | str | Sequence[int]) -> Head | None:
        """The head of b that corresponds to a head of a; None where b has fewer heads and it was left without.

        ValueError for a head that a does not have.
        """
        found, (layers, heads) = Head.parse(head), self.shape_a
        if found.layer >= layers or found.head >= heads:
            raise ValueError(
                f"head {found} does not exist: {self.meta['model_a']} has layers 0-{layers - 1} and heads 0-{heads - 1}"
            )
        return self._partners.get(found)

    def matched(self, heads: AnyHeads) -> list[Head]:
        """The partners of some heads of a, in their order; heads without a partner are left out."""
        return [found for head in parse_heads(heads) if (found := self.partner(head)) is not None]

    def plot(self, heads: AnyHeads | None = None, title: str | None = None) -> go.Figure:
        """Both models side by side, a line from each head (or from some) to its partner."""
        from lens_heads import plots

        return plots.match_diagram(self, None if heads is None else parse_heads(heads), title)

    def save(self, folder: str | Path) -> Path:
        """Write `pairs.parquet`, `distance.parquet` and `match.json` (everything else)."""
        import pandas as pd

        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        self.pairs.to_parquet(folder / "pairs.parquet", index=False)
        columns = [str(Head(*divmod(i, self.shape_b[1]))) for i in range(self.distance.shape[1])]
        pd.DataFrame(self.distance, columns=columns).to_parquet(folder / "distance.parquet", index=False)
        rest = {"p": self.p, "chance": self.chance, "shape_a": self.shape_a, "shape_b": self.shape_b, "meta": self.meta}
        write_atomic(folder / "match.json", json.dumps(rest, indent=2) + "\n")
        return folder

    @classmethod
    def load(cls, folder: str | Path) -> HeadMatch:
        """Read what `save` wrote. FileNotFoundError names the file that is missing."""
        import pandas as pd

        folder = Path(folder)
        for name in ("pairs.parquet", "distance.parquet", "match.json"):
            if not (folder / name).exists():
                raise FileNotFoundError(f"{folder / name} is missing: {folder} holds no saved match of heads")
        rest = json.loads((folder / "match.json").read_text(encoding="utf-8"))
        shapes = {name: tuple(rest.pop(name)) for name in ("shape_a", "shape_b")}
        pairs, distance = (pd.read_parquet(folder / f"{name}.parquet") for name in ("pairs", "distance"))
        return cls(pairs=pairs, distance=distance.to_numpy(), **shapes, **rest)

    def __repr__(self) -> str:
        return (
            f"HeadMatch({self.meta['model_a']} to {self.meta['model_b']}: {len(self.pairs)} pairs, mean distance "
            f"{self.mean_distance:.3g}, {self.chance:.3g} to heads as deep (p {self.p:.2g}), mean stability "
            f"{self.pairs['stability'].mean():.2f})"
        )

    def _repr_html_(self) -> str:
        nearest = self.pairs.sort_values("distance").head(10)
        return f"{escape(repr(self))}{nearest.to_html(index=False, float_format=lambda x: f'{x:.3f}')}"


def recovery_rate(match: HeadMatch, truth: Mapping[Any, Any]) -> float:
    """Share of the heads in `truth` (head of a: its true partner) whose partner is the true one.

    Keys and values are heads in any accepted spelling. ValueError without truth, or for a head that a does not have.
    """
    if not truth:
        raise ValueError("truth is empty: give {head of a: the head of b that it corresponds to}")
    right = [match.partner(head) == Head.parse(partner) for head, partner in truth.items()]
    return sum(right) / len(right)
