"""The cells of a transfer study as arrays, and every statistic of them.

acc[t, 0] is the mean metric on target task t without ablation, acc[s, t, k] with the top k heads of source task s ablated:
    drop[s, t, k] = acc[t, 0] - acc[s, t, k]
    fragility   T[t, k] = mean drop over the sources            disruptivity E[s, k] = mean drop over the other targets
    specificity S[s, k] = drop[s, s, k] - E[s, k]               random       R[t, k] = mean drop over random sets of k heads
`relative` divides every drop by acc[t, 0]; NaN where that is 0. Arrays may have leading axes, one entry per resample of the
items.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float

NONE, RANDOM = "none", "random"
CELL = ["source", "draw", "k"]
"""The columns that identify a cell of a target: source "none" with k = 0 is no ablation, source "random" random heads."""
STATISTICS: dict[str, tuple[str, tuple[str, ...]]] = {
    "fragility": ("targets", ("diagonal", "relative")),
    "disruptivity": ("sources", ("diagonal", "relative")),
    "specificity": ("sources", ("relative",)),
    "random": ("targets", ("relative",)),
    "beyond_random": ("targets", ("diagonal", "relative")),
}
"""For each statistic, the tasks in its columns and the options it takes."""


@dataclass(frozen=True, eq=False)
class Cells:
    """Mean metric per cell: `base` without ablation, `ablated` with a source's heads, `drawn` with random heads.

    `own` marks each source's own target. `TransferMatrix` describes the statistics and their options.
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
        return _mean(self.drop(relative), ~self.own | diagonal, "source")

    def disruptivity(self, diagonal: bool = False, relative: bool = False) -> Float[np.ndarray, "*sample k source"]:
        return _mean(self.drop(relative), ~self.own | diagonal, "target")

    def specificity(self, relative: bool = False) -> Float[np.ndarray, "*sample k source"]:
        return _mean(self.drop(relative), self.own, "target") - self.disruptivity(relative=relative)

    def random(self, relative: bool = False) -> Float[np.ndarray, "*sample k target"]:
        return self.drop_of_draws(relative).mean(-3).swapaxes(-1, -2)

    def beyond_random(self, diagonal: bool = True, relative: bool = False) -> Float[np.ndarray, "*sample k target"]:
        return self.fragility(diagonal, relative) - self.random(relative)

    def _lost(self, now: Float[np.ndarray, "*sample set target k"], relative: bool) -> Float[np.ndarray, "..."]:
        base = self.base[..., None, :, None]
        if not relative:
            return base - now
        if (self.base < 0).any():
            raise ValueError("relative=True requires a non-negative metric. Choose another metric, or relative=False.")
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(base > 0, (base - now) / base, np.nan)


def _mean(
    drop: Float[np.ndarray, "*sample source target k"], keep: Bool[np.ndarray, "source target"], over: str
) -> Float[np.ndarray, "*sample k task"]:
    """Mean over the kept sources or targets; NaN if there are none."""
    axis = -3 if over == "source" else -2
    total = np.where(keep[..., None], drop, 0.0).sum(axis)
    with np.errstate(invalid="ignore"):
        return (total / keep.sum(axis + 1)[:, None]).swapaxes(-1, -2)


@dataclass(frozen=True)
class Layout:
    """The cells of a complete study: no ablation, every source at every k, every random draw at every k."""

    sources: tuple[str, ...]
    targets: tuple[str, ...]
    ks: tuple[int, ...]
    draws: int

    @classmethod
    def of(cls, frame: pd.DataFrame) -> Layout:
        """The layout of a long table with the columns source, target, k and draw. ValueError if it has none."""
        targets = tuple(str(task) for task in frame["target"].unique())
        sources = tuple(str(task) for task in frame["source"].unique() if task not in (NONE, RANDOM))
        for task in sources:
            if task not in targets:
                raise ValueError(f"source {task!r} is not among the targets {', '.join(targets)}. Add its own task.")
        if not sources:
            raise ValueError(f"the table has no source but {NONE!r} and {RANDOM!r}. Add cells with heads ablated.")
        odd = frame[(frame["source"] == NONE) != (frame["k"] == 0)]
        if not odd.empty:
            source, k = odd.iloc[0][["source", "k"]]
            raise ValueError(f"source={source!r}, k={k}: k must be 0 for source={NONE!r}, and only for it")
        drawn = frame.loc[frame["source"] == RANDOM, "draw"]
        ks = sorted({int(k) for k in frame["k"]} - {0})
        return cls(sources, targets, tuple(ks), int(drawn.max()) + 1 if len(drawn) else 0)

    @property
    def conditions(self) -> list[tuple[str, int, int]]:
        """(source, draw, k) of every cell of a target."""
        taken = [(source, 0, k) for source in self.sources for k in self.ks]
        return [(NONE, 0, 0), *taken, *((RANDOM, draw, k) for draw in range(self.draws) for k in self.ks)]

    def ordered(self, table: pd.DataFrame, target: str) -> pd.DataFrame:
        """The rows of a target's table in the order of `conditions`. ValueError names a missing cell."""
        missing = [cell for cell in self.conditions if cell not in table.index]
        if missing:
            source, draw, k = missing[0]
            which = f"source {source!r}, draw {draw}, target {target!r}, k={k}"
            raise ValueError(f"the matrix has no cell for {which}. Run it, or drop that task or k everywhere.")
        return table.loc[self.conditions]

    def cells(self, means: Float[np.ndarray, "*sample condition target"]) -> Cells:
        """The means of all conditions and targets, arranged as cells."""
        by_k = means[..., 1:, :].reshape(*means.shape[:-2], -1, len(self.ks), len(self.targets)).swapaxes(-1, -2)
        ablated, drawn = np.split(by_k, [len(self.sources)], axis=-3)
        own = np.array([[source == target for target in self.targets] for source in self.sources])
        return Cells(means[..., 0, :], ablated, drawn, own)
