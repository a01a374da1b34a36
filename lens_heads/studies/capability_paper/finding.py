"""What the study of capabilities found in one model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from lens_heads.ablation.curves import AblationCurve
from lens_heads.localize import Generality, Universal
from lens_heads.studies.capability_paper.presets import Preset
from lens_heads.studies.capability_paper.stages import Rankings
from lens_heads.studies.runner import Finding


@dataclass(frozen=True, eq=False, kw_only=True)
class CapabilityFinding(Finding):
    """What the study found in one model.

    `scores` is by capability; `reasons` says why a capability has none. `methods` is by method, on the capability
    `plan.compared`, and `compared` ablates their heads.
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

    def notes(self) -> dict[str, Any]:
        return {"parameters": self.parameters, "reasons": self.reasons}
