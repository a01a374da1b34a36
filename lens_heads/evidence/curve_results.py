"""AblationCurve: the results of an ablation study, as one long table by trial and statistics on it."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from functools import cached_property, partial, reduce
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from jaxtyping import Float

from lens_heads.answering.evaluation import METRICS, range_of
from lens_heads.evidence import estimates as statistics
from lens_heads.evidence.estimates import Draws
from lens_heads.evidence.words import Verdict
from lens_heads.heads.conditions import KEY, TOP_NO_NEEDLE, Condition, with_key
from lens_heads.heads.grouping import Labels, groups_in
from lens_heads.runs.digests import file_digest
from lens_heads.runs.drawn import Drawn
from lens_heads.runs.fields import check_columns
from lens_heads.runs.files import path_of, write_atomic
from lens_heads.runs.identity import ModelIdentity
from lens_heads.runs.reading import read_json
from lens_heads.runs.tables import read_table, write_table
from lens_heads.runs.typed import typed_methods
from lens_heads.stats import Interval, difference, effective_n
from lens_heads.stats.intervals import NOTHING

if TYPE_CHECKING:
    import plotly.graph_objects as go

MAIN_TASK = "main"
"""The default name of a curve's task."""


@typed_methods
@dataclass(frozen=True, eq=False)
class AblationCurve(Drawn):
    """The result of `ablation_curve`.

    `per_trial`: one row per trial and condition (method, set, k, draw, heads, task, trial, answer, text, one column per
    metric). `frame` summarizes it with intervals; `differences` and `dissociation` compare conditions. `verdicts`: what
    `ablation_curve(verdict=k)` told; they are not stored, and `verdicts.judge(curve, k=k)` gives them again.

    `meta`: the settings. `model`: on which it was measured. `selecting`: whether its trials selected something, so that it proves
    nothing.

    Example:
        >>> best = curve.frame[(curve.frame["set"] == "top") & (curve.frame["metric"] == "logprob")]
        >>> best.sort_values("value")["method"].iloc[0]
        'locos'
    """

    per_trial: pd.DataFrame
    meta: dict[str, Any]
    verdicts: tuple[Verdict, ...] = ()
    model: ModelIdentity = field(default_factory=partial(ModelIdentity, ""))
    selecting: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "per_trial", with_key(self.per_trial))
        if {*KEY} <= {*self.per_trial} and self.per_trial.duplicated(list(KEY)).any():
            raise ValueError(
                "per_trial has rows twice (the same heads, draw, task and trial): pass each once, drop_duplicates()"
            )

    @property
    def main_task(self) -> str:
        """The name of the task that the curve is about; the other tasks test specificity."""
        return str(self.per_trial["task"].iloc[0])

    @property
    def tasks(self) -> list[str]:
        """The tasks, the main one first."""
        return [str(task) for task in self.per_trial["task"].unique()]

    @property
    def rankings(self) -> list[str]:
        """Names of the rankings, the lead first."""
        return list(self.per_trial.loc[self.per_trial["set"] == "top", "method"].unique())

    @property
    def metrics(self) -> list[str]:
        """The measured metrics."""
        return [name for name in METRICS if name in self.per_trial.columns]

    def conditions(self, *, task: str | None = None) -> list[Condition]:
        """The conditions with any trial of the task (by default the main one), in the order in which they ran."""
        return list(self._conditions.get(task or self.main_task, ()))

    @cached_property
    def _conditions(self) -> dict[str, list[Condition]]:
        found = self.per_trial[["task", "method", "set", "k"]].drop_duplicates()
        by_task = found.groupby("task", sort=False)
        return {str(task): [Condition(*row[1:]) for row in rows.itertuples(index=False)] for task, rows in by_task}

    def heads(self, condition: Condition, *, draw: int = 0) -> str:
        """The ablated heads, as "L1H2,L3H0"."""
        rows = self.per_trial[self.per_trial["draw"] == draw]
        for column, value in asdict(condition).items():
            rows = rows[rows[column] == value]
        if rows.empty:
            raise ValueError(f"nothing was measured for {condition}, draw {draw}: see curve.frame")
        return str(rows["heads"].iloc[0])

    @cached_property
    def _by_condition(self) -> dict[Any, pd.DataFrame]:
        """The metrics by (task, method, set, k), with rows by trial and draw: cached, since lookups are very frequent."""
        rows = self.per_trial.set_index(["trial", "draw"]).sort_index()
        return dict(iter(rows.groupby(["task", "method", "set", "k"], sort=False)[self.metrics]))

    def draws(self, condition: Condition, metric: str, *, task: str | None = None) -> pd.DataFrame:
        """The metric under a condition: one row per trial, one column per draw of heads (a single one unless random)."""
        if metric not in self.metrics:
            raise ValueError(f"metric {metric!r} was not measured: use {', '.join(self.metrics)}")
        task = task or self.main_task
        rows = self._by_condition.get((task, condition.method, condition.set, condition.k))
        if rows is None:
            raise ValueError(f"nothing was measured for {condition} on {task!r}: see curve.frame")
        key = task, condition, metric
        if key not in self._draws:
            self._draws[key] = rows[metric].unstack("draw")
        return self._draws[key]

    @cached_property
    def _draws(self) -> dict[Any, pd.DataFrame]:
        """What `draws` has returned so far."""
        return {}

    def values(self, condition: Condition, metric: str, *, task: str | None = None) -> pd.Series:
        """The metric per trial under a condition, averaged over the draws of a random control; indexed by trial."""
        return self.draws(condition, metric, task=task).mean(axis=1)

    def groups(self, trials: pd.Index, *, task: str | None = None) -> Labels:
        """The trials' groups, one list of labels per kind of group; () without groups."""
        return groups_in(self._first_rows[task or self.main_task], trials, "trial")

    @cached_property
    def _first_rows(self) -> dict[str, pd.DataFrame]:
        """One row per trial, by task."""
        return {str(task): rows.drop_duplicates("trial") for task, rows in self.per_trial.groupby("task", sort=False)}

    def pair(self, one: Condition, other: Condition, metric: str, *, task: str | None = None) -> tuple[Draws, Draws]:
        """The metric under two conditions, on the trials that all their draws have."""
        a, b = self.draws(one, metric, task=task).dropna(), self.draws(other, metric, task=task).dropna()
        both = a.index.intersection(b.index)
        return a.loc[both], b.loc[both]

    def gaps(
        self, one: Condition, other: Condition, metric: str, *, task: str | None = None
    ) -> Float[np.ndarray, "draw trial"]:
        """Paired differences one - other on the trials measured under both (no columns if there are none).

        One row per draw; two random conditions are paired draw by draw.
        """
        return statistics.gaps(*self.pair(one, other, metric, task=task))

    def difference(
        self, one: Condition, other: Condition, metric: str, *, task: str | None = None, level: float = 0.95
    ) -> Interval[float]:
        """Mean difference one - other with its interval, paired by trial.

        A random control that ran on fewer trials than the other condition is compared through no ablation: each one's
        difference to it, on all trials of its own.
        """
        a, b = (self.draws(each, metric, task=task).dropna() for each in (one, other))
        none, random = Condition.none(), max(a.shape[1], b.shape[1]) > 1
        if random and len(a) != len(b) and none not in (one, other) and none in self.conditions(task=task):
            lost, other_lost = (self.difference(none, each, metric, task=task, level=level) for each in (other, one))
            return difference(lost, other_lost)
        a, b = self.pair(one, other, metric, task=task)
        return statistics.paired(a, b, self.groups(a.index, task=task), level)

    def share_lost(
        self, condition: Condition, metric: str = "logprob", *, task: str | None = None, level: float = 0.95
    ) -> Interval[float]:
        """What share of the needle's benefit an ablation removes; 1 is as bad as no needle.

        1 - (ablated - ablated without needle) / (none - without needle), a difference in differences: what ablation does to
        prompts without the needle is not counted. Where the curve has no "top_no_needle", (none - ablated) / (none - without
        needle), which counts it. The benefit is what the needle adds to the metric of the unablated model. ValueError unless
        "no_needle" was among the controls.
        """
        names = [Condition.none(), condition, Condition.no_needle()]
        twin = Condition.top_no_needle(condition.method, condition.k)
        if condition.set == "top" and twin in self.conditions(task=task):
            names.append(twin)
        found = [self.draws(one, metric, task=task).dropna() for one in names]
        both = reduce(lambda kept, one: kept.intersection(one.index), found[1:], found[0].index)
        return statistics.share_lost(
            *(one.loc[both] for one in found), groups=self.groups(both, task=task), level=level
        )

    def benefit_lost(
        self, condition: Condition, metric: str = "logprob", *, task: str | None = None
    ) -> Interval[float]:
        """`share_lost`, or, of a margin between choices without prompts that lack the needle, the share of its distance to 0.

        At 0 the model prefers neither choice, which is as far as a lost question can take it. ValueError as there.
        """
        if metric.endswith("margin") and Condition.no_needle() not in self.conditions(task=task):
            return self.relative_loss(condition, metric, task=task)
        return self.share_lost(condition, metric, task=task)

    @cached_property
    def frame(self) -> pd.DataFrame:
        """One row per task, condition and metric.

        value, with its 95 % interval (low, high) over trials and the draws of a random control; drop, the paired difference
        to no ablation, with its interval; draw_min and draw_max, the range of the draws' means; trials, and effective_trials
        where trials share groups. Intervals need five trials, and five draws of a random control: `stats` says which they are.
        That of a value stays in the metric's range: a log-probability's ends at 0.
        """
        rows: list[dict[str, Any]] = []
        for task in self.tasks:
            for metric in self.metrics:
                if self.per_trial.loc[self.per_trial["task"] == task, metric].isna().all():
                    continue
                for condition in self.conditions(task=task):
                    about = {"task": task, **asdict(condition), "metric": metric}
                    rows.append(about | self._summary(condition, metric, task))
        return pd.DataFrame(rows)

    def _summary(self, condition: Condition, metric: str, task: str) -> dict[str, Any]:
        draws, none = self.draws(condition, metric, task=task).dropna(), Condition.none()
        groups = self.groups(draws.index, task=task)
        value = statistics.mean(draws, groups).within(*range_of(metric))
        measured = none in self.conditions(task=task)
        drop = self.difference(none, condition, metric, task=task) if measured else NOTHING
        by_draw = draws.mean(axis=0)
        return {
            **dict(zip(("value", "low", "high"), value, strict=True)),
            **dict(zip(("drop", "drop_low", "drop_high"), drop, strict=True)),
            "draw_min": float(by_draw.min()),
            "draw_max": float(by_draw.max()),
            "trials": len(draws),
            "effective_trials": effective_n(draws.mean(axis=1).to_numpy(), groups),
        }

    def differences(self, metric: str, *, task: str | None = None, lead: str | None = None) -> pd.DataFrame:
        """Paired differences, other condition minus the lead ranking's top k on the same trials, with intervals.

        Positive: ablating the lead's heads does more damage. `lead` defaults to the first ranking.
        """
        task, lead = task or self.main_task, lead or self.rankings[0]
        self.values(Condition.none(), metric, task=task)  # Raises for an unknown metric or task.
        rows: list[dict[str, Any]] = []
        measured = self.conditions(task=task)
        for condition in measured:
            best = Condition.top(lead, condition.k)
            if condition.k == 0 or condition == best or best not in measured or condition.set == TOP_NO_NEEDLE:
                continue
            difference, low, high = self.difference(condition, best, metric, task=task)
            rows.append(
                {"against": condition.method, "set": condition.set, "k": condition.k, "difference": difference}
                | {"low": low, "high": high, "lead": lead, "metric": metric, "task": task}
            )
        return pd.DataFrame(rows)

    def dissociation(self, other: str, *, metric: str) -> pd.DataFrame:
        """Dissociation score per condition: (R0 - Rk)/R0 - (P0 - Pk)/P0, the main task R against another task P.

        With an interval over the trials of both. The metric's worst value must be 0; for "logprob" its exponential is used.
        NaN if a baseline is zero.
        """
        self.values(Condition.none(), metric, task=other)  # Raises for an unknown metric or task.
        rows: list[dict[str, Any]] = []
        measured = self.conditions(task=other)
        for condition in self.conditions():
            if condition.k == 0 or condition not in measured:
                continue
            main, beside = (self.relative_loss(condition, metric, task=task) for task in (self.main_task, other))
            score = difference(main, beside)
            rows.append(
                {**asdict(condition), "against": other, "metric": metric, "main_loss": main.value}
                | {"other_loss": beside.value, "score": score.value, "low": score.low, "high": score.high}
            )
        return pd.DataFrame(rows)

    def relative_loss(
        self, condition: Condition, metric: str, *, task: str | None = None, level: float = 0.95
    ) -> Interval[float]:
        """(R0 - Rk) / R0, the share of a score that an ablation removes; the metric is treated as in `dissociation`."""
        none, now = self.pair(Condition.none(), condition, metric, task=task)
        if metric == "logprob":
            none, now = none.apply(np.exp), now.apply(np.exp)
        return statistics.share_lost(none, now, groups=self.groups(none.index, task=task), level=level)

    def plot(self, metric: str | None = None, *, task: str | None = None, title: str | None = None) -> go.Figure:
        """The metric against k: one line per ranking with its interval, controls dashed."""
        from lens_heads import plots

        return plots.ablation_curves(self, metric or self.metrics[0], task=task, title=title)

    def save(self, folder: str | Path) -> Path:
        """Write `per_trial.parquet`, `summary.parquet` and `curve.json` (meta)."""
        folder = path_of(folder, "folder")
        write_table(folder / "per_trial.parquet", self.per_trial)
        write_table(folder / "summary.parquet", self.frame)
        about = self.meta | {"selecting": self.selecting, "table": file_digest(folder / "per_trial.parquet")}
        write_atomic(folder / "curve.json", json.dumps(about, indent=2, default=str) + "\n")
        return folder

    @classmethod
    def load(cls, folder: str | Path) -> AblationCurve:
        """Read what `save` wrote. FileNotFoundError names the file that is missing, ValueError one that is damaged."""
        folder = path_of(folder, "folder")
        for name in ("per_trial.parquet", "curve.json"):
            if not (folder / name).exists():
                raise FileNotFoundError(f"{folder / name} is missing: {folder} contains no finished ablation curve")
        table, meta = with_key(read_table(folder / "per_trial.parquet")), read_json(folder / "curve.json", loose=True)
        absent = [name for name in ("method", "set", "k", "draw", "heads", "task", "trial") if name not in table]
        if absent or not isinstance(meta, dict):
            lacks = f"no column {absent[0]!r}" if absent else "no object in curve.json"
            raise ValueError(
                f"{folder} is not an ablation curve ({lacks}): pass a folder written by AblationCurve.save"
            )
        check_table(folder / "per_trial.parquet", table)
        if meta.pop("table", None) not in (None, file_digest(folder / "per_trial.parquet")):
            raise ValueError(
                f"{folder}: per_trial.parquet is not the table that curve.json was saved with: save the curve again"
            )
        return cls(table, meta, model=ModelIdentity.stored(meta), selecting=bool(meta.pop("selecting", False)))

    def __repr__(self) -> str:
        ks = sorted(set(self.per_trial["k"]))
        return f"AblationCurve({', '.join(self.rankings)}; k = {ks}; metrics {', '.join(self.metrics)})"

    def _repr_html_(self) -> str:
        said = "".join(f"<p>{escape(str(verdict))}</p>" for verdict in self.verdicts)
        first = self.frame[(self.frame["metric"] == self.metrics[0]) & (self.frame["task"] == self.main_task)]
        return said + first.to_html(index=False, float_format=lambda x: f"{x:.3f}")


def check_table(file: Path, table: pd.DataFrame, remedy: str = "save it again") -> None:
    """ValueError naming column and row for a table per trial with rows that occur twice, other types, or infinite metrics.

    A metric may be missing: not all trials have choices, and random heads need not run on all of them.
    """
    measured = [name for name in METRICS if name in table]
    check_columns(file, table, ("method", "set", "heads", "task", "trial"), ("k", "draw"), (), measured, KEY, remedy)
