"""Models compared: their size, what each capability's few heads cost them, and how deep these heads sit."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import pandas as pd

from lens_heads.compare import overlap_by_depth
from lens_heads.studies.capability_paper.finding import CapabilityFinding


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
            row = {
                "capability": name,
                "model": each.name,
                "parameters": each.parameters,
                "heads": scores.values.numel(),
            }
            row |= {"metric": each.generality.metrics[name], "base": base, "k": own["k"]}
            row |= {part: own[part] for part in ("damage", "damage_low", "damage_high")}
            row |= {part: at_k[part] for part in ("lost", "lost_low", "lost_high")}
            rows.append(row | {"evaluations": scores.meta["evaluations"]})
    return pd.DataFrame(rows).sort_values(["capability", "parameters"], kind="stable", ignore_index=True)


def depths(findings: Sequence[CapabilityFinding], k: int) -> pd.DataFrame:
    """One row per capability and pair of models: do its top k heads sit at the same relative depth?"""
    rows: list[dict[str, Any]] = []
    for a, b in itertools.combinations(findings, 2):
        for name in (name for name in a.scores if name in b.scores):
            one, other = a.scores[name], b.scores[name]
            found = overlap_by_depth(one, other, k, bins=min(10, one.n_layers, other.n_layers))
            row = {"capability": name, "models": f"{a.name} and {b.name}", "overlap": found.overlap}
            rows.append(row | {"expected": found.expected, "p_value": found.p_value})
    return pd.DataFrame(rows)
