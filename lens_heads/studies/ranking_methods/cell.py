"""Cell: what the methods' heads cost one model on one task."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
import pandas as pd
import torch

from lens_heads.evidence.areas import over_log_k
from lens_heads.evidence.curve_results import AblationCurve
from lens_heads.evidence.faithfulness_results import FaithfulnessCurve
from lens_heads.heads.conditions import Condition
from lens_heads.runs.files import write_atomic
from lens_heads.runs.tables import write_table
from lens_heads.stats import Interval, crossed_interval, difference, ratio_interval
from lens_heads.studies.finding import plain
from lens_heads.studies.ranking_methods.presets import METRIC

if TYPE_CHECKING:
    pass
from lens_heads.studies.ranking_methods.stored_cells import CELL, read_cell, stored_meta

RANDOM = "random heads"
"""The row of random sets of heads, of all draws together."""
NONE = Interval(math.nan, math.nan, math.nan)
_TABLES = ("curve", "other", "kept")
By = Literal["damage", "faithfulness"]


@dataclass(frozen=True, eq=False)
class Cell:
    """One model and task.

    `about`: a row per method with family, passes, seconds and stability. `curve` and `other`: ablation on the task and on
    another. `kept`: faithfulness, None without pairs. `left_out`: why a method has no row. `metric`: what heads take from on the
    task, the answer's log-probability or the margin of the choice, both in nats; on the other task it is the former. `ability`:
    what the model can do of the task, and `does` whether it does it; None of a task without choices.
    """

    model: str
    task: str
    k: int
    about: pd.DataFrame
    curve: AblationCurve
    other: AblationCurve
    kept: FaithfulnessCurve | None
    left_out: dict[str, str] = field(default_factory=dict)
    metric: str = METRIC
    ability: str = ""
    does: bool | None = None

    @property
    def methods(self) -> list[str]:
        """The methods with a row."""
        return list(self.about["method"])

    @cached_property
    def ks(self) -> list[int]:
        """The numbers of heads that were ablated on the task."""
        return sorted({one.k for one in self.curve.conditions() if one.k})

    def condition(self, method: str, k: int) -> Condition:
        """The top k heads of a method, or random heads."""
        return Condition.random(k) if method == RANDOM else Condition.top(method, k)

    def damage(self, method: str, k: int | None = None, other: bool = False) -> pd.DataFrame:
        """What ablating k heads takes from the metric, in nats: a row per trial, a column per draw."""
        curve, metric = (self.other, METRIC) if other else (self.curve, self.metric)
        lost = curve.draws(self.condition(method, k or self.k), metric).dropna()
        none = curve.draws(Condition.none(), metric)[0]
        return lost.rsub(none.loc[lost.index], axis=0)

    def area(self, method: str) -> pd.DataFrame:
        """The damage averaged over log k: a row per trial, a column per draw."""
        return over_log_k(self.curve, [self.condition(method, k) for k in self.ks], self.metric)

    def interval(self, values: pd.DataFrame, level: float = 0.95, other: bool = False) -> Interval[float]:
        """The mean with its interval over trials and draws."""
        groups = (self.other if other else self.curve).groups(values.index)
        return crossed_interval(torch.from_numpy(values.to_numpy(float).T.copy()), groups=groups, level=level)

    def goodness(self, method: str, by: By) -> float:
        """What methods are compared by: the area of damage, or the area under faithfulness (CPR), over log k."""
        check_by(by)
        if by == "damage":
            return float(self.area(method).to_numpy().mean())
        return math.nan if self.kept is None else self.kept.cpr(*_named(method), scale="log").value

    def beyond(self, method: str, against: str, level: float = 0.95, by: By = "damage") -> Interval[float]:
        """What one method is better by than another (see `goodness`), paired by trial; NaN for faithfulness without pairs."""
        check_by(by)
        if by == "faithfulness":
            return (
                NONE
                if self.kept is None
                else self.kept.cpr_difference(_named(method), _named(against), scale="log", level=level)
            )
        return self._gap(self.area(method), self.area(against), level)

    def chosen_beyond(self, among: Sequence[str], against: str, level: float = 0.95) -> Interval[float]:
        """What the best of several methods is better by than another, in area: each half of the test trials judges the one whose
        area is largest on the other half, so that none is judged where it was chosen."""
        areas = {name: self.area(name) for name in among}
        chosen = [areas[name].reindex(half) for name, half in zip(self._most(areas), self.halves, strict=True)]
        return self._gap(pd.concat(chosen).dropna(), self.area(against), level)

    def _gap(self, one: pd.DataFrame, other: pd.DataFrame, level: float) -> Interval[float]:
        """The mean of one table less that of another, paired by trial unless one of them, of random heads, has fewer."""
        if len(one) != len(other):
            return difference(self.interval(one, level), self.interval(other, level))
        both = one.index.intersection(other.index)
        gap = one.loc[both].to_numpy(float) - other.loc[both].to_numpy(float)
        return self.interval(pd.DataFrame(gap, index=both), level)

    @cached_property
    def halves(self) -> tuple[pd.Index, pd.Index]:
        """The test trials in two halves that share no group: groups in turn, in the order of the trials."""
        trials = self.damage(self.methods[0]).index
        groups = self.curve.groups(trials)
        labels = [label or trial for label, trial in zip(groups[0], trials, strict=True)] if groups else list(trials)
        place = {label: at for at, label in enumerate(dict.fromkeys(labels))}
        first = np.array([place[label] % 2 == 0 for label in labels])
        return trials[first], trials[~first]

    @cached_property
    def rivals(self) -> tuple[str, str]:
        """For each half of the test trials, the method whose k heads do most damage on the other half: shares are of its."""
        return self._most({name: self.damage(name) for name in self.methods})

    def _most(self, tables: Mapping[str, pd.DataFrame]) -> tuple[str, str]:
        """For each half of the test trials, the name of the table whose mean is largest on the other half."""

        def most(half: pd.Index) -> str:
            means = {
                name: float(one.loc[one.index.intersection(half)].to_numpy().mean()) for name, one in tables.items()
            }
            return max(means, key=lambda name: means[name])

        one, other = self.halves
        return (most(other), most(one)) if len(other) else (most(one), most(one))

    @property
    def best(self) -> str:
        """The best known method, or both where the halves have different ones."""
        return " and ".join(dict.fromkeys(self.rivals))

    @cached_property
    def best_known(self) -> pd.DataFrame:
        """The damage of the best known method, trial by trial, none of which chose it."""
        parts = [self.damage(name).reindex(half) for name, half in zip(self.rivals, self.halves, strict=True)]
        return pd.concat(parts).dropna()

    def share(self, method: str, level: float = 0.95) -> Interval[float]:
        """The damage at k as a share of that of the best known (`rivals`); NaN where that is not surely above zero.

        A method that is itself the best known of both halves has 1; one that only looks best where it was chosen does not.
        """
        one, best = self.damage(method), self.best_known
        both = one.index.intersection(best.index)
        above = torch.from_numpy(one.loc[both].to_numpy(float).T.copy())
        below = torch.from_numpy(best.loc[both].to_numpy(float).T.copy()).expand_as(above)
        return ratio_interval(above, below, groups=self.curve.groups(both), level=level)

    @cached_property
    def frame(self) -> pd.DataFrame:
        """A row per method and one of random heads: see `Bench.frame`."""
        chance = float(self.about["chance"].iloc[0])
        first = {"method": RANDOM, "family": "baseline", "passes": 0.0, "seconds": 0.0, "stability": chance}
        about = [*self.about.to_dict("records"), {**first, "chance": chance}]
        rows = [row | self._row(str(row["method"])) for row in about]
        return pd.DataFrame(rows).assign(model=self.model, task=self.task, k=self.k, best=self.best)

    def _row(self, method: str) -> dict[str, Any]:
        here, kept = self.interval(self.damage(method)), self.kept
        aside = self.interval(self.damage(method, other=True), other=True)
        row = {
            "damage": here,
            "area": self.interval(self.area(method)),
            "beyond_random": self.beyond(method, RANDOM) if method != RANDOM else NONE,
            "share": self.share(method),
            "elsewhere": aside,
            "specific": difference(here, aside),
            "cpr": NONE if kept is None else kept.cpr(*_named(method)),
            "cpr_log": NONE if kept is None else kept.cpr(*_named(method), scale="log"),
        }
        numbers = {name: value.value for name, value in row.items()}
        bounds = {f"{name}_{end}": getattr(value, end) for name, value in row.items() for end in ("low", "high")}
        cmd = math.nan if kept is None else kept.cmd(*_named(method))
        for_80 = None if kept is None or method == RANDOM else kept.heads_for(share=0.8, method=method)
        return {**numbers, **bounds, "cmd": cmd, "heads_for_80": math.nan if for_80 is None else float(for_80)}

    def save(self, folder: Path) -> None:
        """Write the values per trial as Parquet, and the rest as `cell.json`."""
        metas: dict[str, Any] = {}
        for name in _TABLES:
            one = getattr(self, name)
            if one is not None:
                write_table(folder / f"{name}.parquet", one.per_trial.drop(columns=["answer", "text"], errors="ignore"))
                metas[name] = stored_meta(one)
        text = {"model": self.model, "task": self.task, "k": self.k, "left_out": self.left_out}
        text |= {"metric": self.metric, "ability": self.ability, "does": self.does}
        text |= {"about": self.about.to_dict("records"), "meta": metas}
        write_atomic(folder / CELL, json.dumps(plain(text), indent=1) + "\n")

    @classmethod
    def load(cls, folder: Path) -> Cell:
        """Read what `save` wrote; errors as in `read_cell`."""
        return cls(**read_cell(folder, METRIC, RANDOM))


def check_by(by: str) -> None:
    """ValueError for anything that methods are not compared by."""
    if by not in get_args(By):
        raise ValueError(f"by={by!r}: use {' or '.join(map(repr, get_args(By)))}")


def _named(method: str) -> tuple[str, str]:
    """Method and set of a row in a `FaithfulnessCurve`."""
    return (method, "top") if method != RANDOM else ("any", "random")
