"""Which few heads carry a capability? Heads, what they cost it and other tasks, curves, methods, and models compared.

`capability` runs it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from lens_heads import report
from lens_heads.compare import head_overlaps
from lens_heads.heads.scores import HeadScores
from lens_heads.localize import Generality, universal_heads
from lens_heads.model.geometry import Model, geometry, require_raw_weights
from lens_heads.studies.capability_paper import damage, stages
from lens_heads.studies.capability_paper.capabilities import chance
from lens_heads.studies.capability_paper.claims import claims
from lens_heads.studies.capability_paper.finding import CapabilityFinding, beside, depths
from lens_heads.studies.capability_paper.page import page
from lens_heads.studies.capability_paper.presets import PASS, PRESETS, Preset, of_capabilities
from lens_heads.studies.capability_paper.stages import Asked, Bench, Rankings
from lens_heads.studies.runner import MODELS, Models, StageRun, Study, named_preset, records, run_study
from lens_heads.trials.sandbox import permission


def capability(
    models: Models = MODELS,
    capabilities: Sequence[str] | None = None,
    preset: str | Preset = "packaged",
    out: str | Path = "runs/capability",
    words: str | Path | None = None,
    allow_code_execution: bool | str = False,
    command: str | None = None,
    **loading: Any,
) -> list[CapabilityFinding]:
    """Find the few heads that carry each capability, and what else they serve   (Compressed Sensing for Capability Localization)

    Args:
        models: names as `load_model` takes them, or loaded models. Several are compared at the end.
        capabilities: some of the preset's, by name; None for all (with "paper", all whose arguments are given).
        preset: "packaged" (offline, small models), "quick", "paper", or your own `Preset`.
        out: the run folder. It gets a folder per model (masks, scores, curves, Parquet tables), `report.html` and
            `study_capability.json`. The same call continues it; other settings are refused.
        words: a list of swear words, required by the paper's capability "swearing".
        allow_code_execution: True permits running generated programs, confined (`trials.sandbox`), "unsafe" on a disposable
            machine also unconfined; required by the paper's capability "mbpp".
        command: shown on the page; default: the running command.
        **loading: options of `load_model` (device, dtype, ...) for models given by name.

    Returns one finding per model, and prints the claims of each.

    Raises ValueError for an unknown preset or capability, no models, or a folder with other settings, OSError where generated
    programs cannot be confined.
    """
    allowed = permission("allow_code_execution", allow_code_execution)
    given = {"words": None if words is None else str(words), "allow_code_execution": allowed}
    plan, name = named_preset(preset, PRESETS)
    study = CapabilityStudy(of_capabilities(plan, capabilities, **given), name)
    return run_study(study, models, out, command, loading)[0]


class CapabilityStudy(Study[Preset, CapabilityFinding]):
    """The study of capabilities for the runner."""

    name = "capability"

    @cached_property
    def asked(self) -> Asked:
        """The trials, the same for all models."""
        return Asked.of(self.plan)

    def check(self, model: Model) -> None:
        """Refuse processed weights, prompts that exceed the context, and trials that both find and test heads."""
        require_raw_weights(model)
        stages.check_trials(Bench(model, self.plan, self.asked, Path()))

    def one(self, model: Model, run: StageRun) -> CapabilityFinding:
        bench = Bench(model, self.plan, self.asked, run.folder)
        scores, reasons = _localized(bench, run)
        if self.plan.compared not in scores:
            bench = replace(bench, plan=replace(self.plan, compared=next(iter(scores))))
        plan = bench.plan
        universal = universal_heads(scores, plan.k, plan.at_least) if len(scores) >= plan.at_least else None
        general = run.stage("generality", stages.everywhere, bench, scores, universal)
        curves = run.stage("curves", stages.curves, bench, scores)
        methods, compared = _compared(bench, scores, run)
        finding = CapabilityFinding(
            model=geometry(model).name,
            frames={},
            plan=plan,
            parameters=sum(weights.numel() for weights in model.parameters()),
            scores=scores,
            reasons=reasons,
            universal=universal,
            generality=general,
            curves=curves,
            methods=methods,
            compared=compared,
            chances={name: chance(made, plan.capabilities[name].right) for name, made in self.asked.evaluation.items()},
            luck=math.nan if universal is None else stages.by_luck(universal, universal.n_heads),
        )
        finding.frames.update(_frames(finding))
        finding.frames["claims"] = claims(finding)
        return finding

    def page(self, findings: Sequence[CapabilityFinding], pairs: Sequence[Any]) -> report.Page:
        return page(findings)

    def beside(self, findings: Sequence[CapabilityFinding]) -> dict[str, Any]:
        return {"scale": records(beside(findings)), "depths": records(depths(findings, self.plan.k))}


def _localized(bench: Bench, run: StageRun) -> tuple[Rankings, dict[str, str]]:
    """The heads of every capability, and why some have none. Raises ValueError if none has any."""
    found = {name: run.stage(f"heads of {name}", stages.localized, bench, name) for name in bench.asked.selection}
    scores = {name: one for name, one in found.items() if isinstance(one, HeadScores)}
    reasons = {name: one for name, one in found.items() if isinstance(one, str)}
    if not scores:
        raise ValueError(f"{geometry(bench.model).name}: no capability has heads: {' '.join(reasons.values())}")
    return scores, reasons


def _compared(bench: Bench, scores: Rankings, run: StageRun) -> tuple[Rankings, Generality]:
    """The heads of one capability by every method, and the damage that ablating them does."""
    plan, lead = bench.plan, scores[bench.plan.compared]
    needles = all(trial.needle for trial in bench.asked.selection[plan.compared])
    methods = stages.affordable(plan, lead.values.numel(), needles)
    found = run.stage("methods", stages.by_method, bench, lead, methods)
    if PASS in methods:
        found[PASS] = run.stage(PASS, stages.by_pass, bench)
    heads = {method: ranking.top(plan.k) for method, ranking in found.items()}
    return found, run.stage("methods, ablated", stages.ablated, bench, heads, bench.asked.evaluation, "methods")


def _frames(found: CapabilityFinding) -> dict[str, pd.DataFrame]:
    """Every table of a model but its claims."""
    plan, universal = found.plan, found.universal
    evaluations = {method: int(scores.meta.get("evaluations", 1)) for method, scores in found.methods.items()}
    curves = [curve.frame.assign(task=name) for name, curve in found.curves.items()]
    return {
        "fits": stages.fits(found.scores),
        "best_heads": stages.best_heads(found.scores, plan.k),
        "shared_heads": head_overlaps(found.scores, plan.k)
        if len(found.scores) > 1
        else pd.DataFrame({"a": [], "b": []}),
        "spread": damage.spread(found.generality, plan),
        "everywhere": found.generality.frame,
        "right_answers": damage.right_answers(found.curves, plan, found.chances),
        "curves": pd.concat(curves, ignore_index=True),
        "methods": damage.methods(found.compared, evaluations, plan),
        **({} if universal is None else {"universal": universal.frame}),
    }
