"""What the study of capabilities found in one model, and in several models compared."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from lens_heads.ablation.curves import AblationCurve
from lens_heads.compare import overlap_by_depth
from lens_heads.localize import Generality, Universal
from lens_heads.studies.capability_paper.presets import Preset
from lens_heads.studies.capability_paper.stages import Rankings
from lens_heads.studies.runner import Finding


@dataclass(frozen=True, eq=False, kw_only=True)
class CapabilityFinding(Finding):
    """What the study found in one model.

    `scores` is by capability; `reasons` says why a capability has none. `methods` is by method, on the capability
    `plan.compared`, and `compared` ablates their heads. `luck` is the p-value of as many universal heads, NaN without any test;
    `chances` is the share of answers that are right without the question, by task.
    """

    plan: Preset
    parameters: int
    scores: Rankings
    reasons: dict[str, str]
    universal: Universal | None
    generality: Generality
    curves: dict[str, AblationCurve]
    methods: Rankings
    compared: Generality
    chances: dict[str, float]
    luck: float

    def notes(self) -> dict[str, Any]:
        return {"parameters": self.parameters, "reasons": self.reasons}


def beside(findings: Sequence[CapabilityFinding]) -> pd.DataFrame:
    """One row per capability and model: parameters, heads, base, damage by the capability's heads, and evaluations.

    `lost` is the share of right answers above chance that is lost; NaN if there are none.
    """
    rows: list[dict[str, Any]] = []
    for each in findings:
        spread, lost = each.frames["spread"], each.frames["right_answers"]
        for name, scores in each.scores.items():
            own = spread[(spread["heads"] == name) & (spread["on"] == "own")].iloc[0]
            at_k = lost[(lost["capability"] == name) & (lost["k"] == own["k"])].iloc[0]
            base = each.generality.frame.query("source == @name and task == @name").iloc[0]["base"]
            row = {"capability": name, "model": each.name, "parameters": each.parameters}
            row |= {
                "heads": scores.values.numel(),
                "metric": each.generality.metrics[name],
                "base": base,
                "k": own["k"],
            }
            row |= {**own[["damage", "damage_low", "damage_high"]], **at_k[["lost", "lost_low", "lost_high"]]}
            rows.append(row | {"evaluations": scores.meta["evaluations"]})
    return pd.DataFrame(rows).sort_values(["capability", "parameters"], kind="stable", ignore_index=True)


def depths(findings: Sequence[CapabilityFinding], k: int) -> pd.DataFrame:
    """One row per capability and pair of models: do its top k heads sit at the same relative depth?"""
    rows: list[dict[str, Any]] = []
    for a, b in itertools.combinations(findings, 2):
        for name in [name for name in a.scores if name in b.scores]:
            one, other = a.scores[name], b.scores[name]
            found = overlap_by_depth(one, other, k, bins=min(10, one.n_layers, other.n_layers))
            row = {"overlap": found.overlap, "expected": found.expected, "p_value": found.p_value}
            rows.append({"capability": name, "models": f"{a.name} and {b.name}", **row})
    return pd.DataFrame(rows)
