"""What the study of capabilities found in one model, and in several models compared."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from lens_heads.compare import overlap_by_depth
from lens_heads.compare.universal import Universal
from lens_heads.evidence.curve_results import AblationCurve
from lens_heads.heads.head import Head
from lens_heads.studies.capability_paper.damage import BEFORE, above_chance
from lens_heads.studies.capability_paper.presets import Preset, Repeated, owner
from lens_heads.studies.claims import published
from lens_heads.studies.finding import Finding


@dataclass(frozen=True, eq=False, kw_only=True)
class CapabilityFinding(Finding):
    """What the study found in one model.

    `scores` are by capability and draw of masks, "<capability>, other data" among them; `reasons` says why one has none.
    `curve` has every set of k heads on every task, `metrics` each task's metric, `chances` the share of answers that are right
    without the question. `luck` is the p-value of as many `universal` heads, None with too few capabilities; `shared` are the
    candidates, with the capabilities and draws that have them. `methods` is by method, on the capability `plan.compared`, and
    `compared` ablates their heads.
    """

    plan: Preset
    parameters: int
    scores: Repeated
    reasons: dict[str, str]
    curve: AblationCurve
    metrics: dict[str, str]
    chances: dict[str, float]
    universal: Universal | None
    luck: float
    shared: dict[Head, list[tuple[str, int]]]
    methods: Repeated
    compared: AblationCurve

    @property
    def own(self) -> list[str]:
        """The capabilities that have heads."""
        return [name for name in self.scores if name == owner(name)]

    def able(self, task: str) -> bool:
        """Whether the unablated model does a task better than chance. What it cannot do, no heads carry."""
        return able(self.curve, self.plan, self.chances, task)

    def notes(self) -> dict[str, Any]:
        return {"parameters": self.parameters, "reasons": self.reasons, "chances": self.chances}


@dataclass(frozen=True)
class TaskMap:
    """Every capability's heads on every task, for a map: `frame` has a row per source and task, `metrics` are by task."""

    frame: pd.DataFrame
    metrics: dict[str, str]

    def matrix(self, column: str) -> pd.DataFrame:
        """A column of the frame as a table of sources by tasks."""
        wide = self.frame.pivot(index="source", columns="task", values=column)
        return wide.loc[list(dict.fromkeys(self.frame["source"])), list(self.metrics)]


def able(curve: AblationCurve, plan: Preset, chances: dict[str, float], task: str) -> bool:
    """Whether the unablated model does a task better than chance."""
    right = plan.capabilities[owner(task)].right
    return above_chance(curve.values(BEFORE, right, task).tolist(), chances[task])


def beside(findings: Sequence[CapabilityFinding]) -> pd.DataFrame:
    """One row per capability and model, and the paper's: parameters, heads, base, damage and share lost by the k heads.

    `lost` is the share of right answers above chance that is lost; NaN if there are none. `agreement` is the mean Jaccard of
    the draws of masks, `expected` that of random heads.
    """
    rows: list[dict[str, Any]] = []
    for each in findings:
        spread, agreement, claims = (each.frames[name] for name in ("spread", "agreement", "claims"))
        lost = claims[claims["id"] == "carries"].set_index("capability")
        for name in each.own:
            damage = spread[(spread["heads"] == name) & (spread["on"] == "own")].iloc[0]
            same = agreement[(agreement["a"] == name) & agreement["same"]]
            row = {"capability": name, "model": each.name, "parameters": each.parameters, "k": each.plan.k}
            row |= {"heads": each.scores[name][0].values.numel(), "metric": each.metrics[name]}
            row |= {"base": float(each.curve.values(BEFORE, each.metrics[name], name).mean())}
            row |= {part: damage[part] for part in ("damage", "damage_low", "damage_high")}
            row |= {f"lost{end}": lost.loc[name, f"share{end}"] for end in ("", "_low", "_high")}
            row |= {"agreement": same["jaccard"].mean(), "expected": same["expected_jaccard"].mean()}
            rows.append(row | {"evaluations": sum(found.evaluations for found in each.scores[name])})
    for point in published(__name__)["scale"]:
        row = {name: point[name] for name in ("capability", "model", "parameters", "heads", "k")}
        rows.append(row | {"lost": 1 - point["after"] / point["before"]})
    return pd.DataFrame(rows).sort_values(["capability", "parameters"], kind="stable", ignore_index=True)


def depths(findings: Sequence[CapabilityFinding], k: int) -> pd.DataFrame:
    """One row per capability and pair of models: do its top k heads by the first draw of masks sit at the same depth?"""
    rows: list[dict[str, Any]] = []
    for a, b in itertools.combinations(findings, 2):
        for name in [name for name in a.own if name in b.own]:
            one, other = a.scores[name][0], b.scores[name][0]
            found = overlap_by_depth(one, other, k=k, bins=min(10, one.n_layers, other.n_layers))
            row = {"overlap": found.overlap, "expected": found.expected, "p_value": found.p_value}
            rows.append({"capability": name, "models": f"{a.name} and {b.name}", **row})
    return pd.DataFrame(rows)
