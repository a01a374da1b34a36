"""AblationCurve: the results of an ablation study, as one long table by trial and statistics on it."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float

from lens_heads.ablation.conditions import Condition
from lens_heads.ablation.evaluation import METRICS
from lens_heads.runs import checks
from lens_heads.runs.files import path_of, write_atomic
from lens_heads.runs.reading import read_json
from lens_heads.runs.tables import read_table, write_table
from lens_heads.stats import bootstrap_means, bootstrap_over_draws, percentile_interval

if TYPE_CHECKING:
    import plotly.graph_objects as go

MAIN_TASK = "main"
"""The default name of a curve's task."""


@dataclass(frozen=True, eq=False)
class AblationCurve:
    """The result of `ablation_curve`.

    `per_trial`: one row per trial and condition (method, set, k, seed, heads, task, trial, answer, text, one column per
    metric). `frame` summarizes it with intervals; `differences` and `dissociation` compare conditions.
    """

    per_trial: pd.DataFrame
    meta: dict[str, Any]

    @property
    def main_task(self) -> str:
        """The name of the task that the curve is about; the other tasks test specificity."""
        return str(self.per_trial["task"].iloc[0])

    @property
    def rankings(self) -> list[str]:
        """Names of the rankings, the lead first."""
        return list(self.per_trial.loc[self.per_trial["set"] == "top", "method"].unique())

    @property
    def metrics(self) -> list[str]:
        """The measured metrics."""
        return [name for name in METRICS if name in self.per_trial.columns]

    def conditions(self, task: str | None = None) -> list[Condition]:
        """The conditions with any trial of the task (by default the main one), in the order in which they ran."""
        rows = self.per_trial[self.per_trial["task"] == (task or self.main_task)]
        return [Condition(*found) for found in dict.fromkeys(zip(rows["method"], rows["set"], rows["k"], strict=True))]

    def heads(self, condition: Condition, draw: int = 0) -> str:
        """The ablated heads, as "L1H2,L3H0"."""
        rows = self.per_trial[self.per_trial["seed"] == draw]
        for column, value in asdict(condition).items():
            rows = rows[rows[column] == value]
        return str(rows["heads"].iloc[0])

    @cached_property
    def _by_condition(self) -> dict[Any, pd.DataFrame]:
        """The metrics by (task, method, set, k), with rows by trial and draw: cached, since lookups are very frequent."""
        rows = self.per_trial.set_index(["trial", "seed"]).sort_index()
        return dict(iter(rows.groupby(["task", "method", "set", "k"], sort=False)[self.metrics]))

    def draws(self, condition: Condition, metric: str, task: str | None = None) -> pd.DataFrame:
        """The metric under a condition: one row per trial, one column per draw of heads (a single one unless random)."""
        if metric not in self.metrics:
            raise ValueError(f"metric {metric!r} was not measured: use {', '.join(self.metrics)}")
        task = task or self.main_task
        rows = self._by_condition.get((task, condition.method, condition.set, condition.k))
        if rows is None:
            raise ValueError(f"nothing was measured for {condition} on {task!r}: see curve.frame")
        return rows[metric].unstack("seed")

    def values(self, condition: Condition, metric: str, task: str | None = None) -> pd.Series:
        """The metric per trial under a condition, averaged over the draws of a random control; indexed by trial."""
        return self.draws(condition, metric, task).mean(axis=1)

    def gaps(
        self, one: Condition, other: Condition, metric: str, task: str | None = None
    ) -> Float[np.ndarray, "draw trial"]:
        """Paired differences one - other on the trials measured under both (no columns if there are none).

        One row per pair of draws, so a single one if neither is random.
        """
        a, b = self.draws(one, metric, task).dropna(), self.draws(other, metric, task).dropna()
        both = a.index.intersection(b.index)
        gap = a.loc[both].to_numpy()[:, :, None] - b.loc[both].to_numpy()[:, None, :]
        return gap.reshape(len(both), a.shape[1] * b.shape[1]).T.copy()

    def difference(
        self, one: Condition, other: Condition, metric: str, task: str | None = None
    ) -> tuple[float, float, float]:
        """Mean paired difference one - other: (difference, low, high)."""
        gap = self.gaps(one, other, metric, task)
        return bootstrap_over_draws(torch.from_numpy(gap)) if gap.shape[1] else (math.nan, math.nan, math.nan)

    @cached_property
    def frame(self) -> pd.DataFrame:
        """One row per task, condition and metric.

        value, with its bootstrap interval (low, high) over trials and the draws of a random control; drop, the paired
        difference to no ablation, with its interval; seed_min and seed_max, the range of the draws' means.
        """
        rows: list[dict[str, Any]] = []
        for task in self.per_trial["task"].unique():
            for metric in self.metrics:
                if self.per_trial.loc[self.per_trial["task"] == task, metric].isna().all():
                    continue
                for condition in self.conditions(task):
                    about = {"task": task, **asdict(condition), "metric": metric}
                    rows.append(about | self._summary(condition, metric, task))
        return pd.DataFrame(rows)

    def _summary(self, condition: Condition, metric: str, task: str) -> dict[str, Any]:
        draws, none = self.draws(condition, metric, task).dropna(), Condition.none()
        value = bootstrap_over_draws(torch.from_numpy(draws.to_numpy().T.copy()))
        measured = none in self.conditions(task)
        drop = self.difference(none, condition, metric, task) if measured else (math.nan, math.nan, math.nan)
        by_draw = draws.mean(axis=0)
        return {
            **dict(zip(("value", "low", "high"), value, strict=True)),
            **dict(zip(("drop", "drop_low", "drop_high"), drop, strict=True)),
            "seed_min": float(by_draw.min()),
            "seed_max": float(by_draw.max()),
            "trials": len(draws),
        }

    def differences(self, metric: str, task: str | None = None, lead: str | None = None) -> pd.DataFrame:
        """Paired differences, other condition minus the lead ranking's top k on the same trials, with intervals.

        Positive: ablating the lead's heads does more damage. `lead` defaults to the first ranking.
        """
        task, lead = task or self.main_task, lead or self.rankings[0]
        self.values(Condition.none(), metric, task)  # Raises for an unknown metric or task.
        rows: list[dict[str, Any]] = []
        measured = self.conditions(task)
        for condition in measured:
            best = Condition.top(lead, condition.k)
            if condition.k == 0 or condition == best or best not in measured:
                continue
            difference, low, high = self.difference(condition, best, metric, task)
            rows.append(
                {"against": condition.method, "set": condition.set, "k": condition.k, "difference": difference}
                | {"low": low, "high": high, "lead": lead, "metric": metric, "task": task}
            )
        return pd.DataFrame(rows)

    def dissociation(self, other: str, metric: str = "contains", n: int = 1000, seed: int = 0) -> pd.DataFrame:
        """Dissociation score per condition: (R0 - Rk)/R0 - (P0 - Pk)/P0, the main task R against another task P.

        With a bootstrap interval over the trials of both. The metric's worst value must be 0; for "logprob" its exponential
        is used. NaN if a baseline is zero.
        """
        checks.whole_number("n", n)
        checks.seed(seed)
        self.values(Condition.none(), metric, other)  # Raises for an unknown metric or task.
        rows: list[dict[str, Any]] = []
        measured = self.conditions(other)
        for condition in self.conditions():
            if condition.k == 0 or condition not in measured:
                continue
            # The trials differ, so the resamples must be independent: one seed would pair them.
            (main, mine), (beside, theirs) = (
                self._lost(condition, metric, task, n, seed + i) for i, task in enumerate((self.main_task, other))
            )
            low, high = percentile_interval(mine - theirs)
            rows.append(
                {**asdict(condition), "against": other, "metric": metric, "main_loss": main, "other_loss": beside}
                | {"score": main - beside, "low": float(low), "high": float(high)}
            )
        return pd.DataFrame(rows)

    def relative_loss(self, condition: Condition, metric: str, task: str | None = None) -> tuple[float, float, float]:
        """(R0 - Rk) / R0, the share of a score that an ablation removes, with its bootstrap interval over trials.

        The metric is treated as in `dissociation`.
        """
        loss, samples = self._lost(condition, metric, task or self.main_task)
        low, high = percentile_interval(samples)
        return loss, float(low), float(high)

    def _lost(
        self, condition: Condition, metric: str, task: str, n: int = 1000, seed: int = 0
    ) -> tuple[float, np.ndarray]:
        """(R0 - Rk)/R0 and its bootstrap samples, trials resampled in pairs."""
        base, now = self.values(Condition.none(), metric, task), self.values(condition, metric, task)
        both = base.index.intersection(now.index)
        pair = torch.stack([_tensor(base[both]), _tensor(now[both])], 1)
        pair = pair.exp() if metric == "logprob" else pair
        means = bootstrap_means(pair, n, seed).numpy()
        with np.errstate(divide="ignore", invalid="ignore"):
            samples = (means[:, 0] - means[:, 1]) / means[:, 0]
        start, end = (float(x) for x in pair.mean(0))
        return ((start - end) / start if start else math.nan), samples

    def plot(self, metric: str | None = None, task: str | None = None, title: str | None = None) -> go.Figure:
        """The metric against k: one line per ranking with its interval, controls dashed."""
        from lens_heads import plots

        return plots.ablation_curves(self, metric or self.metrics[0], task, title)

    def save(self, folder: str | Path) -> Path:
        """Write `per_trial.parquet`, `summary.parquet` and `curve.json` (meta)."""
        folder = path_of(folder, "folder")
        write_table(folder / "per_trial.parquet", self.per_trial)
        write_table(folder / "summary.parquet", self.frame)
        write_atomic(folder / "curve.json", json.dumps(self.meta, indent=2, default=str) + "\n")
        return folder

    @classmethod
    def load(cls, folder: str | Path) -> AblationCurve:
        """Read what `save` wrote. FileNotFoundError names the file that is missing, ValueError one that is damaged."""
        folder = path_of(folder, "folder")
        for name in ("per_trial.parquet", "curve.json"):
            if not (folder / name).exists():
                raise FileNotFoundError(f"{folder / name} is missing: {folder} contains no finished ablation curve")
        table, meta = read_table(folder / "per_trial.parquet"), read_json(folder / "curve.json", loose=True)
        absent = [name for name in ("method", "set", "k", "seed", "heads", "task", "trial") if name not in table]
        if absent or not isinstance(meta, dict):
            lacks = f"no column {absent[0]!r}" if absent else "no object in curve.json"
            raise ValueError(
                f"{folder} is not an ablation curve ({lacks}): pass a folder written by AblationCurve.save"
            )
        return cls(table, meta)

    def __repr__(self) -> str:
        ks = sorted(set(self.per_trial["k"]))
        return f"AblationCurve({', '.join(self.rankings)}; k = {ks}; metrics {', '.join(self.metrics)})"

    def _repr_html_(self) -> str:
        first = self.frame[(self.frame["metric"] == self.metrics[0]) & (self.frame["task"] == self.main_task)]
        return first.to_html(index=False, float_format=lambda x: f"{x:.3f}")


def _tensor(values: pd.Series) -> torch.Tensor:
    return torch.tensor(values.to_numpy(dtype=np.float32))
