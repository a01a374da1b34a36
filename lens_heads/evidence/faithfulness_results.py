"""FaithfulnessCurve: how much of a behaviour is left when only k heads are kept, with areas as MIB takes them."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float

from lens_heads.heads.conditions import Condition, with_key
from lens_heads.heads.grouping import Labels, groups_in
from lens_heads.heads.scores import HeadScores
from lens_heads.runs import checks
from lens_heads.runs.drawn import Drawn
from lens_heads.runs.files import write_atomic
from lens_heads.runs.reading import user_path
from lens_heads.runs.typed import typed_methods
from lens_heads.stats import Interval, ratio_interval

if TYPE_CHECKING:
    import plotly.graph_objects as go

ALL = "all heads"
LEAST = 1e-4
"""A smaller mean difference between all heads and none is none to take shares of."""
Scale = Literal["linear", "log"]


@typed_methods
@dataclass(frozen=True, eq=False)
class FaithfulnessCurve(Drawn):
    """The result of `faithfulness`.

    `per_trial`: a row per pair and set of kept heads: method, set, k, draw, heads, task, trial, groups, and the metric by
    its name. `rankings`: the scores by method. `metric`, `mlps`: as given. `shape`: layers and heads of each; `d_model`: of the
    model. `shares`: pairs of a share of all heads and a number of them. `meta`: settings. `size`: how many heads there are, 0 for
    as many in each layer.

    Example:
        >>> found = lh.faithfulness(model, pairs[:2], {"locos": scores}, ks=[2], controls=(), positions="all")
        >>> list(found.rankings), found.frame[found.frame["set"] == "top"]["value"].round(1).tolist()
        (['locos'], [1.0])
    """

    per_trial: pd.DataFrame
    rankings: Mapping[str, HeadScores]
    metric: str
    mlps: str
    shape: tuple[int, int]
    shares: Sequence[tuple[float, int]]
    d_model: int
    meta: dict[str, Any] = field(default_factory=dict)
    size: int = 0

    def __post_init__(self) -> None:
        table = with_key(self.per_trial)
        renamed = table.rename(columns={"value": self.metric}) if self.metric not in table else table
        object.__setattr__(self, "per_trial", renamed)  # Older files call every metric "value".

    def checked(self) -> FaithfulnessCurve:
        """The curve. ValueError where all heads and none give the same."""
        gap = float((self._whole - self._empty).mean())
        if abs(gap) < LEAST:
            raise ValueError(
                f"with all heads and with none, {self.metric} differs by {gap:.1e}: there is nothing to take shares of; "
                "use pairs whose answer the corruption takes away"
            )
        return self

    @property
    def total(self) -> int:
        """The number of heads in the model."""
        return self.size or self.shape[0] * self.shape[1]

    def draws(self, condition: Condition) -> pd.DataFrame:
        """The metric under a condition: a row per pair, a column per draw. ValueError for one that was not measured."""
        key = condition.method, condition.set, condition.k
        if key not in self._by_condition:
            raise ValueError(f"nothing was measured for {condition}: see curve.frame")
        return self._by_condition[key]

    @cached_property
    def _by_condition(self) -> dict[Any, pd.DataFrame]:
        by = self.per_trial.groupby(["method", "set", "k"], sort=False)
        return {key: rows.pivot(index="trial", columns="draw", values=self.metric) for key, rows in by}

    @cached_property
    def _empty(self) -> pd.Series:
        return self.draws(Condition.none())[0]

    @cached_property
    def _whole(self) -> pd.Series:
        return self.draws(Condition.given(ALL, self.total))[0]

    @cached_property
    def _first(self) -> pd.DataFrame:
        return self.per_trial.drop_duplicates("trial")

    def _groups(self, trials: pd.Index) -> Labels:
        return groups_in(self._first, trials, "trial")

    def _ratio(self, above: pd.DataFrame, level: float = 0.95) -> Interval[float]:
        """Sums of differences of the metric as a share of all heads' less none's, over the same pairs."""
        below = (self._whole - self._empty).loc[above.index]
        sign = math.copysign(1.0, float(below.mean()))
        values = torch.from_numpy(sign * above.to_numpy(float).T.copy())
        whole = torch.from_numpy(sign * below.to_numpy(float))[None].expand_as(values)
        return ratio_interval(values, whole, groups=self._groups(above.index), level=level)

    def faithfulness(self, condition: Condition, *, level: float = 0.95) -> Interval[float]:
        """f of one condition with its interval over pairs (and draws). Exactly 0 for no head and 1 for all."""
        return self._ratio(self._gain(condition), level)

    def _gain(self, condition: Condition) -> pd.DataFrame:
        """The metric above that without any head: a row per pair, a column per draw."""
        if condition.k == 0:
            condition = Condition.none()
        elif condition.k == self.total:
            condition = Condition.given(ALL, self.total)
        kept = self.draws(condition).dropna()
        return kept.sub(self._empty.loc[kept.index], axis=0)

    @cached_property
    def conditions(self) -> list[Condition]:
        """What was measured between no head and all, in order."""
        return [Condition(*key) for key in self._by_condition if 0 < key[2] < self.total]

    @cached_property
    def frame(self) -> pd.DataFrame:
        """One row per method, set and k: share of all heads, value (f) with its 95 % interval, pairs, draws."""
        rows = []
        for one in [Condition.none(), *self.conditions, Condition.given(ALL, self.total)]:
            value, low, high = self.faithfulness(one)
            kept = self.draws(one).dropna()
            row = {"method": one.method, "set": one.set, "k": one.k, "share": one.k / self.total}
            rows.append(row | {"value": value, "low": low, "high": high, "pairs": len(kept), "draws": kept.shape[1]})
        return pd.DataFrame(rows)

    def differences(self, *, lead: str | None = None) -> pd.DataFrame:
        """f of the lead (the first ranking, if None) less that of every other condition of the same k, paired by pair."""
        lead = next(iter(self.rankings)) if lead is None else lead
        if lead not in self.rankings:
            raise ValueError(f"lead={lead!r}: the rankings are {', '.join(self.rankings)}")
        rows = []
        for other in self.conditions:
            if (other.method, other.set) == (lead, "top"):
                continue
            one, against = self.draws(Condition.top(lead, other.k)).dropna(), self.draws(other).dropna()
            both = one.index.intersection(against.index)
            gap = against.loc[both].rsub(one.loc[both].iloc[:, 0], axis=0)
            value, low, high = self._ratio(gap)
            row = {"lead": lead, "against": other.method, "set": other.set, "k": other.k}
            rows.append(row | {"difference": value, "low": low, "high": high})
        return pd.DataFrame(rows, columns=["lead", "against", "set", "k", "difference", "low", "high"])

    def heads_for(self, *, share: float = 0.8, method: str | None = None) -> int | None:
        """The smallest number of heads measured whose f reaches `share`, from there on; None if only all heads do."""
        checks.finite("share", share)
        method = next(iter(self.rankings)) if method is None else method
        values = {
            one.k: self.faithfulness(one).value for one in self.conditions if (one.method, one.set) == (method, "top")
        }
        last = None
        for k in sorted(values, reverse=True):
            if not values[k] >= share:
                break
            last = k
        return last

    def cpr(self, method: str | None = None, set: str = "top", *, scale: Scale = "linear") -> Interval[float]:
        """Circuit performance ratio: the area under f over the share of heads, by trapezoids. Higher is better.

        On a linear axis as in the benchmark, which integrates from its smallest share to 1 without dividing by the width.
        "log": over the logarithm of the share, divided by the width, since 80 % of the linear area lies above 20 % of the heads.
        """
        return self._ratio(self._area(method, set, scale))

    def cpr_difference(
        self, one: tuple[str, str], other: tuple[str, str], *, scale: Scale = "linear", level: float = 0.95
    ) -> Interval[float]:
        """The CPR of one method and set, as ("locos", "top"), less that of another, paired by pair."""
        areas = [self._area(*named, scale) for named in (one, other)]
        both = areas[0].index.intersection(areas[1].index)
        gap = areas[0].loc[both].to_numpy(float) - areas[1].loc[both].to_numpy(float)
        return self._ratio(pd.DataFrame(gap, index=both), level)

    def _area(self, method: str | None, set: str, scale: Scale) -> pd.DataFrame:
        """The area under the gain: a row per pair, a column per draw."""
        shares, gains = self._points(method, set)
        weights = trapezoid_weights(shares, scale)
        both = gains[0].index
        for gain in gains[1:]:
            both = both.intersection(gain.index)
        draws = max(gain.shape[1] for gain in gains)
        spread = [gain.loc[both].to_numpy(float) for gain in gains]
        parts = [
            weight * (values if values.shape[1] == draws else values[:, :1].repeat(draws, 1))
            for weight, values in zip(weights, spread, strict=True)
        ]
        return pd.DataFrame(np.sum(parts, axis=0), index=both)

    def cmd(self, method: str | None = None, set: str = "top", *, scale: Scale = "linear") -> float:
        """Circuit-model distance: the area between f and 1, by trapezoids over |1 - f|; lower is better. Scales as in `cpr`."""
        shares, gains = self._points(method, set)
        distance = [abs(1 - self._ratio(gain).value) for gain in gains]
        return float(np.dot(trapezoid_weights(shares, scale), distance))

    def _points(self, method: str | None, set: str) -> tuple[list[float], list[pd.DataFrame]]:
        """The shares at which f is known, and the gain at each. ValueError for a method or set without any."""
        name = next(iter(self.rankings)) if method is None else method
        if not any((one.method, one.set) == (name, set) for one in self.conditions):
            known = ", ".join(dict.fromkeys(f"{one.method} {one.set}" for one in self.conditions))
            raise ValueError(f"nothing was measured for {name} {set}: there is {known}")
        shares = [share for share, _ in self.shares]
        return shares, [self._gain(Condition(name, set, k)) for _, k in self.shares]

    def to_mib(self, path: str | Path, *, method: str | None = None) -> Path:
        """Write a ranking as node importances in the benchmark's JSON (`Graph.from_json` of EAP-IG).

        Heads ("a0.h0") have their scores, higher is better. MLPs ("m0") and the input have none, so that every circuit keeps
        them. There are no edges.
        """
        name = next(iter(self.rankings)) if method is None else method
        scores, (layers, heads) = self.rankings[name], self.shape
        nodes: dict[str, Any] = {"input": {"in_graph": True}, "logits": {"in_graph": True}}
        nodes |= {f"m{layer}": {"in_graph": True} for layer in range(layers)}
        for head in scores.heads:
            nodes[f"a{head.layer}.h{head.head}"] = {"in_graph": False, "score": scores.sign * scores[head]}
        cfg = {"n_layers": layers, "n_heads": heads, "parallel_attn_mlp": False, "d_model": self.d_model}
        file = user_path(path, "path")
        write_atomic(file, json.dumps({"cfg": cfg, "nodes": nodes, "edges": {}}))
        return file

    def plot(self, *, title: str | None = None) -> go.Figure:
        """f against the number of heads kept: a line per ranking, controls in grey."""
        from lens_heads import plots

        return plots.faithfulness_curves(self.frame, self.mlps, title=title)

    def __repr__(self) -> str:
        areas = ", ".join(f"{name} {self.cpr(name).value:.2f}" for name in self.rankings)
        return f"FaithfulnessCurve({len(self._empty)} pairs, area under f: {areas})"


def trapezoid_weights(shares: Sequence[float], scale: Scale) -> Float[np.ndarray, " share"]:
    """What each value counts in an area by trapezoids; on a logarithmic axis divided by its width, without a share of 0.

    A single value on such an axis counts whole.
    """
    x = np.asarray(shares, dtype=float)
    if scale not in ("linear", "log"):
        raise ValueError(f"scale={scale!r}: use 'linear' or 'log'")
    if scale == "log":
        inside = x > 0
        logs = np.log(x[inside])
        weights = np.zeros(len(x))
        weights[inside] = _trapezoids(logs) / (logs[-1] - logs[0]) if len(logs) > 1 else 1.0
        return weights
    return _trapezoids(x)


def _trapezoids(x: Float[np.ndarray, " share"]) -> Float[np.ndarray, " share"]:
    widths = np.diff(x)
    return (np.concatenate([[0.0], widths]) + np.concatenate([widths, [0.0]])) / 2
