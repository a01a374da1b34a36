"""AblationCurve: what an ablation study found, as one long table per trial and the statistics on it."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float

from lens_heads.runs.store import write_atomic
from lens_heads.stats import bootstrap_means, bootstrap_over_draws, percentile_interval

if TYPE_CHECKING:
    import plotly.graph_objects as go

MAIN_TASK = "retrieval"


@dataclass(frozen=True)
class Condition:
    """Which heads were ablated: the `set` of `method`, k of them.

    "none", "top", "bottom", "random", "random_like" (as many per layer), or "given", a set by the name `method`.
    """

    method: str
    set: str
    k: int
    seed: int


@dataclass(frozen=True)
class Observation:
    """One trial under one condition."""

    condition: Condition
    heads: str
    task: str
    trial: str
    answer: str
    text: str
    metrics: dict[str, float]


@dataclass(frozen=True, eq=False)
class AblationCurve:
    """The result of `ablation_curve`.

    `per_trial`: one row per trial and condition (method, set, k, seed, heads, task, trial, answer, text, one column per
    metric). `frame` is its summary with intervals, `differences` and `dissociation` compare.
    """

    per_trial: pd.DataFrame
    meta: dict[str, Any]

    @classmethod
    def from_observations(cls, observations: Sequence[Observation], meta: dict[str, Any]) -> AblationCurve:
        """Lay observations out as a table."""
        rows = [
            {
                **asdict(o.condition),
                "heads": o.heads,
                "task": o.task,
                "trial": o.trial,
                "answer": o.answer,
                "text": o.text,
                **o.metrics,
            }
            for o in observations
        ]
        return cls(pd.DataFrame(rows), meta)

    @property
    def metrics(self) -> list[str]:
        """The metrics measured."""
        from lens_heads.ablation.evaluation import METRICS

        return [name for name in METRICS if name in self.per_trial.columns]

    def _conditions(self, task: str) -> list[tuple[str, str, int]]:
        """(method, set, k) with any trial of the task, in the order they were run."""
        rows = self.per_trial[self.per_trial["task"] == task]
        return list(dict.fromkeys(zip(rows["method"], rows["set"], rows["k"], strict=True)))

    @cached_property
    def _by_condition(self) -> dict[Any, pd.DataFrame]:
        """The metrics by (task, method, set, k), rows by trial and draw: looked up far more often than the table is long."""
        rows = self.per_trial.set_index(["trial", "seed"]).sort_index()
        return dict(iter(rows.groupby(["task", "method", "set", "k"], sort=False)[self.metrics]))

    def draws(self, method: str, set: str, k: int, metric: str, task: str = MAIN_TASK) -> pd.DataFrame:
        """The metric under a condition: one row per trial, one column per draw of heads (a single one unless random)."""
        if metric not in self.metrics:
            raise ValueError(f"metric {metric!r} was not measured: there are {', '.join(self.metrics)}")
        rows = self._by_condition.get((task, method, set, k))
        if rows is None:
            raise ValueError(f"nothing was measured for {method} {set} k={k} on {task!r}: see curve.frame")
        return rows[metric].unstack("seed")

    def values(self, method: str, set: str, k: int, metric: str, task: str = MAIN_TASK) -> pd.Series:
        """The metric per trial under a condition, averaged over the draws of a random control; indexed by trial."""
        return self.draws(method, set, k, metric, task).mean(axis=1)

    def gaps(
        self, one: tuple[str, str, int], other: tuple[str, str, int], metric: str, task: str = MAIN_TASK
    ) -> Float[np.ndarray, "draw trial"]:
        """Paired differences one - other, two conditions (method, set, k), on the trials measured in both.

        A row per pair of draws, a single one where neither is random; no column where no trial is in both.
        """
        a, b = self.draws(*one, metric, task).dropna(), self.draws(*other, metric, task).dropna()
        both = a.index.intersection(b.index)
        gap = a.loc[both].to_numpy()[:, :, None] - b.loc[both].to_numpy()[:, None, :]
        return gap.reshape(len(both), a.shape[1] * b.shape[1]).T.copy()

    def difference(
        self, one: tuple[str, str, int], other: tuple[str, str, int], metric: str, task: str
    ) -> tuple[float, float, float]:
        """Mean paired difference one - other, two conditions (method, set, k): (difference, low, high)."""
        gap = self.gaps(one, other, metric, task)
        return bootstrap_over_draws(torch.from_numpy(gap)) if gap.shape[1] else (math.nan, math.nan, math.nan)

    @cached_property
    def frame(self) -> pd.DataFrame:
        """One row per task, condition and metric.

        value and its bootstrap interval (low, high) over trials, and over the draws of a random control; drop = paired
        difference to no ablation with its interval; seed_min, seed_max = range of the means of the single draws.
        """
        rows: list[dict[str, Any]] = []
        for task in self.per_trial["task"].unique():
            for metric in self.metrics:
                if self.per_trial.loc[self.per_trial["task"] == task, metric].isna().all():
                    continue
                for method, set_, k in self._conditions(task):
                    rows.append(
                        {"task": task, "method": method, "set": set_, "k": k, "metric": metric}
                        | self._summary((method, set_, k), metric, task)
                    )
        return pd.DataFrame(rows)

    def _summary(self, condition: tuple[str, str, int], metric: str, task: str) -> dict[str, Any]:
        draws = self.draws(*condition, metric, task).dropna()
        value, low, high = bootstrap_over_draws(torch.from_numpy(draws.to_numpy().T.copy()))
        none = ("none", "none", 0)
        measured = none in self._conditions(task)
        drop = self.difference(none, condition, metric, task) if measured else (math.nan, math.nan, math.nan)
        by_draw = draws.mean(axis=0)
        return {
            "value": value,
            "low": low,
            "high": high,
            "drop": drop[0],
            "drop_low": drop[1],
            "drop_high": drop[2],
            "seed_min": float(by_draw.min()),
            "seed_max": float(by_draw.max()),
            "trials": len(draws),
        }

    def differences(self, metric: str, task: str = MAIN_TASK, lead: str | None = None) -> pd.DataFrame:
        """Paired differences, other condition minus the lead ranking's top k on the same trials, with intervals.

        Positive: ablating the lead's heads hurts more. `lead` defaults to the first ranking.
        """
        lead = str(lead or self.meta["rankings"][0])
        self.values("none", "none", 0, metric, task)  # Refuse an unknown metric or task.
        rows: list[dict[str, Any]] = []
        measured = self._conditions(task)
        for method, set_, k in measured:
            if k == 0 or (method, set_) == (lead, "top") or (lead, "top", k) not in measured:
                continue
            difference, low, high = self.difference((method, set_, k), (lead, "top", k), metric, task)
            rows.append(
                {"against": method, "set": set_, "k": k, "difference": difference, "low": low, "high": high}
                | {"lead": lead, "metric": metric, "task": task}
            )
        return pd.DataFrame(rows)

    def dissociation(self, other: str, metric: str = "contains", n: int = 1000, seed: int = 0) -> pd.DataFrame:
        """Dissociation score per ranking and k: (R0 - Rk)/R0 - (P0 - Pk)/P0, retrieval R against another task P.

        With a bootstrap interval over the trials of both. Needs a metric that is zero at worst: with "logprob" its
        exponential is used. NaN where a baseline is zero.
        """
        self.values("none", "none", 0, metric, other)  # Refuse an unknown metric or task.
        rows: list[dict[str, Any]] = []
        measured = self._conditions(other)
        for method, set_, k in self._conditions(MAIN_TASK):
            if k == 0 or (method, set_, k) not in measured:
                continue
            # Different trials, so independent resamples: one seed for both would pair trial i with trial i.
            loss = [
                self._relative_loss(method, set_, k, metric, task, n, seed + i)
                for i, task in enumerate((MAIN_TASK, other))
            ]
            low, high = percentile_interval(loss[0][1] - loss[1][1])
            rows.append(
                {"method": method, "set": set_, "k": k, "against": other, "metric": metric}
                | {"retrieval_loss": loss[0][0], "other_loss": loss[1][0], "score": loss[0][0] - loss[1][0]}
                | {"low": float(low), "high": float(high)}
            )
        return pd.DataFrame(rows)

    def relative_loss(
        self, method: str, set: str, k: int, metric: str, task: str = MAIN_TASK
    ) -> tuple[float, float, float]:
        """(R0 - Rk) / R0 with its bootstrap interval over trials: the share of a score that an ablation takes away.

        Needs a metric that is zero at worst; of "logprob" the exponential is used. NaN where nothing is there to lose.
        """
        loss, samples = self._relative_loss(method, set, k, metric, task, 1000, 0)
        low, high = percentile_interval(samples)
        return loss, float(low), float(high)

    def _relative_loss(
        self, method: str, set_: str, k: int, metric: str, task: str, n: int, seed: int
    ) -> tuple[float, np.ndarray]:
        """(R0 - Rk)/R0 and its bootstrap samples, trials resampled in pairs."""
        base, now = self.values("none", "none", 0, metric, task), self.values(method, set_, k, metric, task)
        both = base.index.intersection(now.index)
        pair = torch.stack([_tensor(base[both]), _tensor(now[both])], 1)
        pair = pair.exp() if metric == "logprob" else pair
        means = bootstrap_means(pair, n, seed).numpy()
        with np.errstate(divide="ignore", invalid="ignore"):
            samples = (means[:, 0] - means[:, 1]) / means[:, 0]
        start, end = (float(x) for x in pair.mean(0))
        return ((start - end) / start if start else math.nan), samples

    def plot(self, metric: str | None = None, task: str = MAIN_TASK, title: str | None = None) -> go.Figure:
        """The metric against k: one line per ranking with its interval, controls dashed."""
        from lens_heads import plots

        return plots.ablation_curves(self, metric or self.metrics[0], task, title)

    def save(self, folder: str | Path) -> Path:
        """Write `per_trial.parquet`, `summary.parquet` and `curve.json` (meta)."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        self.per_trial.to_parquet(folder / "per_trial.parquet", index=False)
        self.frame.to_parquet(folder / "summary.parquet", index=False)
        write_atomic(folder / "curve.json", json.dumps(self.meta, indent=2, default=str) + "\n")
        return folder

    @classmethod
    def load(cls, folder: str | Path) -> AblationCurve:
        """Read what `save` wrote. FileNotFoundError names the file that is missing."""
        folder = Path(folder)
        for name in ("per_trial.parquet", "curve.json"):
            if not (folder / name).exists():
                raise FileNotFoundError(f"{folder / name} is missing: {folder} holds no finished ablation curve")
        return cls(pd.read_parquet(folder / "per_trial.parquet"), json.loads((folder / "curve.json").read_text()))

    def __repr__(self) -> str:
        ks = sorted(set(self.per_trial["k"]))
        return f"AblationCurve({', '.join(self.meta['rankings'])}; k = {ks}; metrics {', '.join(self.metrics)})"

    def _repr_html_(self) -> str:
        first = self.frame[(self.frame["metric"] == self.metrics[0]) & (self.frame["task"] == MAIN_TASK)]
        return first.to_html(index=False, float_format=lambda x: f"{x:.3f}")


def _tensor(values: pd.Series) -> torch.Tensor:
    return torch.tensor(values.to_numpy(dtype=np.float32))
