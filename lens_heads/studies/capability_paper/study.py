"""Which few heads carry a capability? Heads, what they cost it and others, curves, methods, models beside each other.

`capability` runs it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from lens_heads import report
from lens_heads.heads.scores import HeadScores
from lens_heads.localize import Generality
from lens_heads.model.geometry import Model, geometry, require_raw_weights
from lens_heads.studies.capability_paper import damage, scale, stages
from lens_heads.studies.capability_paper.capabilities import chance
from lens_heads.studies.capability_paper.claims import Evidence, claims
from lens_heads.studies.capability_paper.finding import CapabilityFinding
from lens_heads.studies.capability_paper.page import page
from lens_heads.studies.capability_paper.presets import PASS, PRESETS, Preset, of_capabilities
from lens_heads.studies.capability_paper.stages import Rankings
from lens_heads.studies.runner import MODELS, Models, StageRun, Study, named_preset, records, run_study
from lens_heads.trials.trial import Trial


def capability(
    models: Models = MODELS,
    capabilities: Sequence[str] | None = None,
    preset: str | Preset = "packaged",
    out: str | Path = "runs/capability",
    words: str | Path | None = None,
    allow_code_execution: bool = False,
    command: str | None = None,
    **loading: Any,
) -> list[CapabilityFinding]:
    """Which few heads carry a capability, and what else do they serve?   (Compressed Sensing for Capability Localization)

    Args:
        models: names as `load_model` takes them, or loaded models; of several the last part sets them beside each other.
        capabilities: some of the preset's, by name; None for all (with "paper", those that have what they need).
        preset: "packaged" (offline, small models), "quick", "paper", or a `Preset` of your own.
        out: the run folder: a folder per model (masks, scores, curves, Parquet tables), `report.html` and
            `study_capability.json`. The same call continues it; other settings are refused.
        words: a list of swear words, which the paper's capability "swearing" needs.
        allow_code_execution: generated programs may be run, in a sandbox, which the paper's capability "mbpp" needs.
        command: what the page says it was made by; default: the running command.
        **loading: how models given by name are loaded: device, dtype, ... of `load_model`.

    Returns a finding per model; prints the table of claims as it goes.

    Raises ValueError for an unknown preset or capability, no models, or a folder of other settings.
    """
    given = {"words": None if words is None else str(words), "allow_code_execution": allow_code_execution}
    plan, name = named_preset(preset, PRESETS)
    study = CapabilityStudy(of_capabilities(plan, capabilities, **given), name)
    return run_study(study, models, out, command, loading)[0]


@dataclass(frozen=True)
class _Asked:
    """The trials by capability: to find heads, to ablate them on, of other data."""

    selection: Mapping[str, list[Trial]]
    evaluation: Mapping[str, list[Trial]]
    kin: Mapping[str, list[Trial]]


class CapabilityStudy(Study[Preset, CapabilityFinding]):
    """Presets, stages, claims and page of the study of capabilities."""

    name = "capability"

    @cached_property
    def asked(self) -> _Asked:
        """The trials, the same for all models."""
        return _Asked(self.plan.selection(), self.plan.evaluation(), self.plan.kin())

    def check(self, model: Model) -> None:
        """Refuse processed weights, and trials that do not fit or both find and test heads."""
        require_raw_weights(model)
        stages.check_trials(model, self.asked.selection, self.asked.evaluation, self.asked.kin, self.plan)

    def one(self, model: Model, run: StageRun) -> CapabilityFinding:
        """The study of one model."""
        plan, asked, folder = self.plan, self.asked, run.folder
        scores, reasons = _localized(model, asked, plan, run)
        if plan.compared not in scores:
            plan = replace(plan, compared=next(iter(scores)))
        universal = stages.shared(scores, plan)
        general = run.stage(
            "generality", stages.everywhere, model, scores, universal, asked.evaluation, asked.kin, plan, folder
        )
        curves = run.stage("curves", stages.curves, model, scores, asked.evaluation, plan, folder)
        methods, compared = _compared(model, scores, asked, plan, run)
        finding = CapabilityFinding(
            model=geometry(model).name,
            settings=run.settings,
            frames={},
            seconds=run.seconds,
            plan=plan,
            parameters=sum(weights.numel() for weights in model.parameters()),
            scores=scores,
            reasons=reasons,
            universal=universal,
            generality=general,
            curves=curves,
            methods=methods,
            compared=compared,
        )
        return replace(finding, frames=_frames(finding, asked))

    def page(self, findings: Sequence[CapabilityFinding], pairs: Sequence[Any]) -> report.Page:
        """The page of what there is so far."""
        return page(findings)

    def beside(self, findings: Sequence[CapabilityFinding], pairs: Sequence[Any]) -> dict[str, Any]:
        """How models compare."""
        depths = scale.depths(findings, findings[0].plan.k)
        return {"scale": records(scale.beside(findings)), "depths": records(depths)}


def _localized(model: Model, asked: _Asked, plan: Preset, run: StageRun) -> tuple[Rankings, dict[str, str]]:
    """The heads of every capability, and why some have none. ValueError where none has any."""
    found = {
        name: run.stage(f"heads of {name}", stages.localized, model, name, trials, plan, run.folder)
        for name, trials in asked.selection.items()
    }
    scores = {name: one for name, one in found.items() if isinstance(one, HeadScores)}
    reasons = {name: one for name, one in found.items() if isinstance(one, str)}
    if not scores:
        raise ValueError(f"{geometry(model).name} has heads for no capability: {' '.join(reasons.values())}")
    return scores, reasons


def _compared(
    model: Model, scores: Rankings, asked: _Asked, plan: Preset, run: StageRun
) -> tuple[Rankings, Generality]:
    """The heads of one capability by every method, and what ablating them costs it and the others."""
    shape, trials, folder = geometry(model), asked.selection[plan.compared], run.folder
    methods = stages.affordable(plan, shape.n_layers * shape.n_heads, all(trial.needle for trial in trials))
    lead = scores[plan.compared]
    found = run.stage("methods", stages.by_method, model, trials, lead, methods, plan, folder)
    if PASS in methods:
        found[PASS] = run.stage(PASS, stages.by_pass, model, trials, plan, folder)
    heads = {method: ranking.top(plan.k) for method, ranking in found.items()}
    asks = {task: task for task in asked.evaluation}
    ablated = run.stage(
        "methods, ablated", stages.ablated, model, heads, asked.evaluation, asks, plan, folder / "methods"
    )
    return found, ablated


def _frames(found: CapabilityFinding, asked: _Asked) -> dict[str, pd.DataFrame]:
    """Every table of a model."""
    plan = found.plan
    chances = {name: chance(trials, plan.capabilities[name].right) for name, trials in asked.evaluation.items()}
    lead = found.scores[plan.compared]
    evaluations = {method: int(scores.meta.get("evaluations", 1)) for method, scores in found.methods.items()}
    curves = [curve.frame.assign(task=name) for name, curve in found.curves.items()]
    frames = {
        "fits": stages.fits(found.scores),
        "best_heads": stages.best_heads(found.scores, plan.k),
        "shared_heads": stages.overlaps(found.scores, plan.k),
        "spread": damage.spread(found.generality, plan),
        "everywhere": found.generality.frame,
        "right_answers": damage.right_answers(found.curves, plan, chances),
        "curves": pd.concat(curves, ignore_index=True),
        "methods": damage.methods(found.compared, evaluations, plan),
    }
    luck = float("nan")
    if found.universal is not None:
        frames["universal"] = found.universal.frame
        luck = stages.by_luck(found.universal, lead.values.numel())
    evidence = Evidence(
        k=plan.k,
        spread=frames["spread"],
        right_answers=frames["right_answers"],
        everywhere=found.generality,
        right={name: one.right for name, one in plan.capabilities.items()},
        methods=found.compared,
        compared=plan.compared,
        evaluations=evaluations,
        chances=chances,
        universal=found.universal,
        luck=luck,
        reasons=found.reasons,
    )
    return {"claims": claims(evidence), **frames}
