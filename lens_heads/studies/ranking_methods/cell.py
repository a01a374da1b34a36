"""Cell: what one model and task say about every method. All numbers are views of values per trial, which are stored."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import pandas as pd
import torch

from lens_heads.evidence.curve_results import AblationCurve
from lens_heads.evidence.faithfulness_results import FaithfulnessCurve, trapezoid_weights
from lens_heads.heads.conditions import Condition
from lens_heads.heads.scores import HeadScores
from lens_heads.runs.files import write_atomic
from lens_heads.runs.tables import write_table
from lens_heads.stats import Interval, crossed_interval, difference, ratio_interval, top_k_stability
from lens_heads.studies.finding import plain
from lens_heads.studies.ranking_methods.presets import Preset
from lens_heads.studies.ranking_methods.ranking import Judged, Rankings
from lens_heads.studies.ranking_methods.stored import CELL, read_cell

RANDOM = "random heads"
"""The row of random sets of heads, of all draws together."""
METRIC = "logprob"
NONE = Interval(math.nan, math.nan, math.nan)
_TABLES = ("curve", "other", "kept")
By = Literal["damage", "faithfulness"]


@dataclass(frozen=True, eq=False)
class Cell:
    """One model and task.

    `about`: a row per method with family, passes, seconds and stability. `curve` and `other`: ablation on the task and on
    another. `kept`: faithfulness, None without pairs. `left_out`: why a method has no row.
    """

    model: str
    task: str
    k: int
    about: pd.DataFrame
    curve: AblationCurve
    other: AblationCurve
    kept: FaithfulnessCurve | None
    left_out: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(
        cls, model: str, task: str, plan: Preset, families: Mapping[str, str], found: Rankings, judged: Judged
    ) -> Cell:
        """From the rankings and what their heads did."""
        k = min(plan.k, max(judged.curve.meta["ks"]))
        rows = [
            {"method": name, "family": families[name], "passes": found.passes[name], "seconds": found.seconds[name]}
            | _stability(scores, found.halves.get(name), k)
            for name, scores in found.scores.items()
        ]
        return cls(model, task, k, pd.DataFrame(rows), judged.curve, judged.other, judged.kept, found.left_out)

    @property
    def methods(self) -> list[str]:
        """The methods with a row."""
        return list(self.about["method"])

    @cached_property
    def _weights(self) -> dict[int, float]:
        """What the damage at each k counts in the area over log k; they sum to 1."""
        ks = self.curve.meta["ks"]
        return dict(zip(ks, trapezoid_weights(ks, "log") if len(ks) > 1 else [1.0], strict=True))

    def condition(self, method: str, k: int) -> Condition:
        """The top k heads of a method, or random heads."""
        return Condition.random(k) if method == RANDOM else Condition.top(method, k)

    def damage(self, method: str, k: int | None = None, other: bool = False) -> pd.DataFrame:
        """What ablating k heads takes from the answer's log-probability (nats per token): a row per trial, a column per draw."""
        curve = self.other if other else self.curve
        lost = curve.draws(self.condition(method, k or self.k), METRIC).dropna()
        none = curve.draws(Condition.none(), METRIC)[0]
        return lost.rsub(none.loc[lost.index], axis=0)

    def area(self, method: str) -> pd.DataFrame:
        """The damage averaged over log k: a row per trial, a column per draw."""
        parts = [weight * self.damage(method, k) for k, weight in self._weights.items()]
        return sum(parts[1:], parts[0]).dropna()

    def interval(self, values: pd.DataFrame, level: float = 0.95, other: bool = False) -> Interval:
        """The mean with its interval over trials and draws."""
        groups = (self.other if other else self.curve).groups(values.index)
        return crossed_interval(torch.from_numpy(values.to_numpy(float).T.copy()), groups=groups, level=level)

    def goodness(self, method: str, by: By) -> float:
        """What methods are compared by: the area of damage, or the area under faithfulness (CPR), over log k."""
        check_by(by)
        if by == "damage":
            return float(self.area(method).to_numpy().mean())
        return math.nan if self.kept is None else self.kept.cpr(*_named(method), "log").value

    def beyond(self, method: str, against: str, level: float = 0.95, by: By = "damage") -> Interval:
        """What one method is better by than another (see `goodness`), paired by trial; NaN for faithfulness without pairs."""
        check_by(by)
        if by == "faithfulness":
            return (
                NONE if self.kept is None else self.kept.cpr_difference(_named(method), _named(against), "log", level)
            )
        one, other = self.area(method), self.area(against)
        both = one.index.intersection(other.index)
        if RANDOM in (method, against) and len(one) != len(other):
            return difference(self.interval(one, level), self.interval(other, level))
        gap = one.loc[both].to_numpy(float) - other.loc[both].to_numpy(float)
        return self.interval(pd.DataFrame(gap, index=both), level)

    @cached_property
    def best(self) -> str:
        """What shares are taken of: greedy search, or, where it did not run, the method whose k heads do most damage here."""
        if "greedy" in self.methods:
            return "greedy"
        return max(self.methods, key=lambda method: float(self.damage(method).to_numpy().mean()))

    def share(self, method: str, level: float = 0.95) -> Interval:
        """The damage at k as a share of the best known; NaN where that is not surely above zero."""
        one, best = self.damage(method), self.damage(self.best)
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
        here, aside = self.interval(self.damage(method)), self.interval(self.damage(method, other=True), other=True)
        row = {
            "damage": here,
            "area": self.interval(self.area(method)),
            "beyond_random": self.beyond(method, RANDOM) if method != RANDOM else NONE,
            "share": self.share(method),
            "elsewhere": aside,
            "specific": difference(here, aside),
            **self._faithful(method),
        }
        numbers = {name: value.value for name, value in row.items()}
        bounds = {f"{name}_{end}": getattr(value, end) for name, value in row.items() for end in ("low", "high")}
        kept = self.kept
        cmd = math.nan if kept is None else kept.cmd(*_named(method))
        for_80 = None if kept is None or method == RANDOM else kept.heads_for(0.8, method)
        return {**numbers, **bounds, "cmd": cmd, "heads_for_80": math.nan if for_80 is None else float(for_80)}

    def _faithful(self, method: str) -> dict[str, Interval]:
        if self.kept is None:
            return {"cpr": NONE, "cpr_log": NONE}
        return {"cpr": self.kept.cpr(*_named(method)), "cpr_log": self.kept.cpr(*_named(method), "log")}

    def save(self, folder: Path) -> None:
        """Write the values per trial as Parquet, and the rest as `cell.json`."""
        metas: dict[str, Any] = {}
        for name in _TABLES:
            one = getattr(self, name)
            if one is not None:
                write_table(folder / f"{name}.parquet", one.per_trial.drop(columns=["answer", "text"], errors="ignore"))
                metas[name] = one.meta
        text = {"model": self.model, "task": self.task, "k": self.k, "left_out": self.left_out}
        text |= {"about": self.about.to_dict("records"), "meta": metas}
        write_atomic(folder / CELL, json.dumps(plain(text), indent=1) + "\n")

    @classmethod
    def load(cls, folder: Path) -> Cell:
        """Read what `save` wrote; errors as in `stored.read_cell`."""
        return cls(**read_cell(folder, METRIC, RANDOM))


def check_by(by: str) -> None:
    """ValueError for anything that methods are not compared by."""
    if by not in get_args(By):
        raise ValueError(f"by={by!r}: use {' or '.join(map(repr, get_args(By)))}")


def _named(method: str) -> tuple[str, str]:
    """Method and set of a row in a `FaithfulnessCurve`."""
    return (method, "top") if method != RANDOM else ("any", "random")


def _stability(scores: HeadScores, halves: tuple[HeadScores, HeadScores] | None, k: int) -> dict[str, float]:
    """The Jaccard of the top k heads of two halves of the trials, and that of random sets.

    NaN for methods whose trials cannot be halved, unless two runs on half of them are given.
    """
    chance = top_k_stability(np.zeros((1, scores.values.numel())), k=k).expected
    if halves is not None:
        one, other = (set(half.ranking()[:k]) for half in halves)
        return {"stability": len(one & other) / len(one | other), "chance": chance}
    if scores.selected or not len(scores.trial_ids):
        return {"stability": math.nan, "chance": chance}
    return {"stability": float(scores.stability(k).jaccard), "chance": chance}
