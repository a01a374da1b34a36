"""The cells of a transfer study as arrays, and every statistic on them; tables, intervals and files are elsewhere.

acc[t, 0] is the mean metric on target task t without ablation, acc[s, t, K] with the top K heads of source task s ablated:
    drop[s, t, K] = acc[t, 0] - acc[s, t, K]
    fragility   T[t, K] = mean of drop over the sources           disruptivity E[s, K] = mean of drop over the other targets
    specificity S[s, K] = drop[s, s, K] - E[s, K]                 random       R[t, K] = mean of drop over random sets of K heads
`relative` divides every drop by acc[t, 0], which bounds it; NaN where that is 0. Arrays may have leading axes, one entry per
resample of the items.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float

NONE, RANDOM = "none", "random"
CELL = ["source", "draw", "k"]
"""What a target's cells are told apart by: k = 0 and source "none" is no ablation, source "random" random heads."""
STATISTICS: dict[str, tuple[str, tuple[str, ...]]] = {
    "fragility": ("targets", ("diagonal", "relative")),
    "disruptivity": ("sources", ("diagonal", "relative")),
    "specificity": ("sources", ("relative",)),
    "random": ("targets", ("relative",)),
    "beyond_random": ("targets", ("diagonal", "relative")),
}
"""By name: which tasks the columns are, and the options taken."""


@dataclass(frozen=True, eq=False)
class Cells:
    """Mean of the metric per cell: `base` without ablation, `ablated` with a source's heads, `drawn` with random heads.

    `own` marks each source's own target.
    """

    base: Float[np.ndarray, "*sample target"]
    ablated: Float[np.ndarray, "*sample source target k"]
    drawn: Float[np.ndarray, "*sample draw target k"]
    own: Bool[np.ndarray, "source target"]

    def drop(self, relative: bool = False) -> Float[np.ndarray, "*sample source target k"]:
        return self._lost(self.ablated, relative)

    def drop_of_draws(self, relative: bool = False) -> Float[np.ndarray, "*sample draw target k"]:
        return self._lost(self.drawn, relative)

    def fragility(self, diagonal: bool = True, relative: bool = False) -> Float[np.ndarray, "*sample k target"]:
        """Mean drop of a target over all sources; without the diagonal over those of other tasks."""
        return _mean(self.drop(relative), ~self.own | diagonal, "source")

    def disruptivity(self, diagonal: bool = False, relative: bool = False) -> Float[np.ndarray, "*sample k source"]:
        """Mean drop that a source's heads cost the other targets; with the diagonal all targets."""
        return _mean(self.drop(relative), ~self.own | diagonal, "target")

    def specificity(self, relative: bool = False) -> Float[np.ndarray, "*sample k source"]:
        """Drop of the source's own target beyond the mean drop of the others."""
        return _mean(self.drop(relative), self.own, "target") - self.disruptivity(relative=relative)

    def random(self, relative: bool = False) -> Float[np.ndarray, "*sample k target"]:
        """Mean drop over the random sets."""
        return self.drop_of_draws(relative).mean(-3).swapaxes(-1, -2)

    def beyond_random(self, diagonal: bool = True, relative: bool = False) -> Float[np.ndarray, "*sample k target"]:
        """Fragility less the drop that as many random heads cost."""
        return self.fragility(diagonal, relative) - self.random(relative)

    def _lost(self, now: Float[np.ndarray, "*sample set target k"], relative: bool) -> Float[np.ndarray, "..."]:
        base = self.base[..., None, :, None]
        if not relative:
            return base - now
        if (self.base < 0).any():
            raise ValueError("a relative drop needs a metric that is zero at worst: take another, or relative=False")
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(base > 0, (base - now) / base, np.nan)


def _mean(
    drop: Float[np.ndarray, "*sample source target k"], keep: Bool[np.ndarray, "source target"], over: str
) -> Float[np.ndarray, "*sample k task"]:
    """Mean over the sources or targets that are kept; NaN where none is."""
    axis = -3 if over == "source" else -2
    total = np.where(keep[..., None], drop, 0.0).sum(axis)
    with np.errstate(invalid="ignore"):
        return (total / keep.sum(axis + 1)[:, None]).swapaxes(-1, -2)


@dataclass(frozen=True)
class Layout:
    """Which cells a complete study has: no ablation, every source at every k, every random draw at every k."""

    sources: tuple[str, ...]
    targets: tuple[str, ...]
    ks: tuple[int, ...]
    draws: int

    @classmethod
    def of(cls, frame: pd.DataFrame) -> Layout:
        """Read off a long table with the columns source, target, k and draw. ValueError where it is none."""
        known = [str(task) for task in dict.fromkeys(frame["target"])]
        sources = [str(task) for task in dict.fromkeys(frame["source"]) if task not in (NONE, RANDOM)]
        for task in sources:
            if task not in known:
                raise ValueError(
                    f"source {task!r} is none of the targets ({', '.join(known)}): evaluate its own task too"
                )
        if not sources:
            raise ValueError(f"there is no source: give cells with heads ablated, beside source={NONE!r}, k=0")
        odd = frame[(frame["source"] == NONE) != (frame["k"] == 0)]
        if not odd.empty:
            source, k = odd.iloc[0][["source", "k"]]
            raise ValueError(f"source={source!r}, k={k}: no ablation is source={NONE!r} with k=0, and nothing else is")
        drawn = frame.loc[frame["source"] == RANDOM, "draw"]
        ks = sorted({int(k) for k in frame["k"]} - {0})
        return cls(tuple(sources), tuple(known), tuple(ks), int(drawn.max()) + 1 if len(drawn) else 0)

    @property
    def conditions(self) -> list[tuple[str, int, int]]:
        """(source, draw, k) of every cell of a target."""
        taken = [(source, 0, k) for source in self.sources for k in self.ks]
        return [(NONE, 0, 0), *taken, *((RANDOM, draw, k) for draw in range(self.draws) for k in self.ks)]

    def ordered(self, table: pd.DataFrame, target: str) -> pd.DataFrame:
        """The rows of a target's table in the order of `conditions`. ValueError names a cell that is missing."""
        found = set(table.index)
        for source, draw, k in self.conditions:
            if (source, draw, k) not in found:
                which = f"source {source!r}" + (f" draw {draw}" if source == RANDOM else "")
                raise ValueError(
                    f"the matrix is ragged: no cell for {which}, target {target!r}, k={k}; every source and every draw is "
                    "needed on every target at every k: run it, or leave that task or k out"
                )
        return table.loc[self.conditions]

    def cells(self, means: Float[np.ndarray, "*sample condition target"]) -> Cells:
        """Lay means of all conditions and targets out as cells."""
        by_k = means[..., 1:, :].reshape(*means.shape[:-2], -1, len(self.ks), len(self.targets)).swapaxes(-1, -2)
        ablated, drawn = np.split(by_k, [len(self.sources)], axis=-3)
        own = np.array([[source == target for target in self.targets] for source in self.sources])
        return Cells(means[..., 0, :], ablated, drawn, own)
