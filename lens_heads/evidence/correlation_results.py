"""Correlation: what `correlate` found of two models, with and without answer formats, covariates and random heads."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pandas as pd

from lens_heads.runs.drawn import Drawn
from lens_heads.runs.typed import typed_methods
from lens_heads.stats import Interval, Permutation

if TYPE_CHECKING:
    import plotly.graph_objects as go


@typed_methods
@dataclass(frozen=True, eq=False)
class Correlation(Drawn):
    """Correlation of one statistic between two models, over points (k, task), at fixed k.

    `plain`: over all tasks alike, with p over orders of the tasks; `r`, `r2` and `p` are its own. `within`: inside strata of
    tasks; None without strata. `partial`: for each covariate, what is left without it (inside the strata, if there are any);
    `partial_all`: without all of them. `random`: of random heads' drops alone, for two matrices with random draws and a
    statistic of targets: an r2 that needs no task's own heads. `naive_p`: scipy's one-sided p, which takes points for
    independent; for comparison only. `points`: k, task, a, b, and a_controlled, b_controlled without the mean at each k.

    For two transfer matrices also: `interval`, the 95 % bootstrap interval of r2 over items of both (resampling adds noise,
    so it may lie below r2); `reliability` of each table, split-half over items with Spearman-Brown correction;
    `noise_ceiling` = sqrt(reliability_a * reliability_b), the largest r that such tables can show, NaN unless both
    reliabilities are positive; in `points`, 95 % intervals of both controlled values. None for frames.

    `names`: of the models.

    Example:
        >>> table = pd.DataFrame([[0.1, 0.5, 0.9, 0.2, 0.7]], index=[8], columns=list("abcde"))
        >>> found = lh.evidence.correlate(table, 2 * table)
        >>> round(found.r, 3), found.p < 0.05
        (1.0, True)
    """

    statistic: str
    names: tuple[str, str]
    plain: Permutation
    within: Permutation | None
    partial: dict[str, Permutation]
    partial_all: Permutation | None
    random: Permutation | None
    naive_p: float
    interval: Interval[float] | None
    reliability: tuple[float, float] | None
    points: pd.DataFrame

    @property
    def r(self) -> float:
        return self.plain.r

    @property
    def r2(self) -> float:
        return self.plain.r2

    @property
    def p(self) -> float:
        return self.plain.p

    @property
    def noise_ceiling(self) -> float | None:
        if self.reliability is None:
            return None
        return math.sqrt(math.prod(self.reliability)) if min(self.reliability) > 0 else math.nan

    @property
    def noise_ceiling_r2(self) -> float | None:
        return None if self.noise_ceiling is None else self.noise_ceiling**2

    def verdict(self, *, alpha: float = 0.05) -> str:
        """ "correlated" or "cannot be told": inside strata, if tasks have any, else over all tasks alike."""
        return (self.within or self.plain).verdict(alpha=alpha)

    @property
    def frame(self) -> pd.DataFrame:
        """One row for each way to correlate: what is taken out, r, r2, p, p_two_sided, smallest_p, arrangements."""
        left = {f"without {name}": found for name, found in self.partial.items()}
        rows = {
            "tasks alike": self.plain,
            "inside strata": self.within,
            **left,
            "without all covariates": self.partial_all,
        }
        rows["random heads alone"] = self.random
        columns = ["r", "r2", "p", "p_two_sided", "smallest_p", "arrangements"]
        found = [{"how": how, **{name: getattr(one, name) for name in columns}} for how, one in rows.items() if one]
        return pd.DataFrame(found)

    def plot(self, *, title: str | None = None) -> go.Figure:
        """One point per k and task: controlled values of a (x) against b (y), with intervals."""
        from lens_heads import plots

        return plots.transfer_scatter(self, title=title)

    def __repr__(self) -> str:
        bounds = "" if self.interval is None else f" [{self.interval.low:.3f}, {self.interval.high:.3f}]"
        ceiling = "" if self.noise_ceiling_r2 is None else f", noise ceiling {self.noise_ceiling_r2:.3f}"
        inside = self.within
        strata = "" if inside is None else f", inside strata R^2 {inside.r2:.3f}, p = {inside.p:.2g}"
        what = f"{self.statistic} of {self.names[0]} and {self.names[1]}"
        return f"Correlation({what}: R^2 {self.r2:.3f}{bounds}, r {self.r:+.2f}, permutation p = {self.p:.2g}{ceiling}{strata})"
