"""The study, end to end: heads of every capability, what they cost it and others, curves, methods, models beside each other.

`capability` runs it; every stage keeps its own folder, so that the same call continues where it stopped.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
from rich.console import Console

from lens_heads.ablation.curves import AblationCurve
from lens_heads.heads.scores import HeadScores
from lens_heads.localize import Generality, Universal
from lens_heads.model.geometry import Model, geometry, require_raw_weights
from lens_heads.model.identity import fingerprint
from lens_heads.report import tables
from lens_heads.runs.store import RunFolder, running_command, versions, write_atomic
from lens_heads.studies.capability_paper import damage, scale, stages
from lens_heads.studies.capability_paper.capabilities import chance
from lens_heads.studies.capability_paper.claims import Evidence, claims
from lens_heads.studies.capability_paper.presets import PASS, Preset, preset
from lens_heads.studies.capability_paper.stages import Rankings
from lens_heads.studies.running import Clock, Models, loaded, records, save_tables, several
from lens_heads.trials.trial import Trial

MODELS = ("gemma-3-270m", "smollm2-135m-instruct")


@dataclass(frozen=True, eq=False)
class Finding:
    """What the study found in one model.

    `plan`: the preset, its methods compared on a capability that has heads. `scores` by capability, `methods` by method on
    that one, `compared` their ablations. `reasons`: why a capability has no heads. `frames`: every table by name. `seconds` by
    stage.
    """

    model: str
    plan: Preset
    parameters: int
    scores: Rankings
    reasons: dict[str, str]
    universal: Universal | None
    generality: Generality
    curves: dict[str, AblationCurve]
    methods: Rankings
    compared: Generality
    frames: dict[str, pd.DataFrame]
    settings: dict[str, Any]
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return Path(self.model).name


def capability(
    models: Models = MODELS,
    capabilities: Sequence[str] | None = None,
    preset: str | Preset = "packaged",
    out: str | Path = "runs/capability",
    words: str | Path | None = None,
    allow_code_execution: bool = False,
    command: str | None = None,
    **loading: Any,
) -> list[Finding]:
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

    Returns a `Finding` per model; prints the table of claims as it goes.

    Raises ValueError for an unknown preset or capability, no models, or a folder of other settings.
    """
    from lens_heads.studies.capability_paper.page import write_page

    given = {"words": None if words is None else str(words), "allow_code_execution": allow_code_execution}
    plan, out, console = _preset(preset, capabilities, **given), Path(out), Console()
    command, name = command or running_command(), preset if isinstance(preset, str) else "own"
    listed = several(models)
    asked = _Asked(plan.selection(), plan.evaluation(), plan.kin())
    findings: list[Finding] = []
    for one in listed:
        findings.append(_one(loaded(one, loading), asked, plan, out, console))
        # After every model, so that one that fails takes nothing away from those before it.
        write_page(findings, name, out / "report.html", command)
        text = json.dumps(summary(findings, command), indent=1, default=str)
        write_atomic(out / "study_capability.json", text + "\n")
    total = sum(sum(each.seconds.values()) for each in findings)
    console.print(f"\nThe page with every figure: [bold]{out / 'report.html'}[/]   ({total / 60:.1f} minutes)")
    return findings


_preset = preset  # The argument of the same name hides it.


@dataclass(frozen=True)
class _Asked:
    """The trials by capability: to find heads, to ablate them on, of other data."""

    selection: Mapping[str, list[Trial]]
    evaluation: Mapping[str, list[Trial]]
    kin: Mapping[str, list[Trial]]


def _one(model: Model, asked: _Asked, plan: Preset, out: Path, console: Console) -> Finding:
    """The study of one model."""
    shape = geometry(model)
    console.rule(shape.name)
    folder = out / Path(shape.name).name
    settings = {"model": shape.name, "weights": fingerprint(model), "preset": asdict(plan)}
    require_raw_weights(model)
    stages.check_trials(model, asked.selection, asked.evaluation, asked.kin, plan)
    RunFolder(folder, settings)
    clock = Clock(console, folder)
    scores, reasons = _localized(model, asked, plan, folder, clock)
    if plan.compared not in scores:
        plan = replace(plan, compared=next(iter(scores)))
    universal = stages.shared(scores, plan)
    general = clock(
        "generality", lambda: stages.everywhere(model, scores, universal, asked.evaluation, asked.kin, plan, folder)
    )
    curves = clock("curves", lambda: stages.curves(model, scores, asked.evaluation, plan, folder))
    methods, compared = _compared(model, scores, asked, plan, folder, clock)
    finding = Finding(
        model=shape.name,
        plan=plan,
        parameters=sum(weights.numel() for weights in model.parameters()),
        scores=scores,
        reasons=reasons,
        universal=universal,
        generality=general,
        curves=curves,
        methods=methods,
        compared=compared,
        frames={},
        settings=settings,
        seconds=clock.spent,
    )
    finding = replace(finding, frames=_frames(finding, asked))
    save_tables(finding.frames, folder / "tables")
    tables.show(tables.claims(finding.frames["claims"], f"{shape.name}: the paper's claims, k = {plan.k}"))
    return finding


def _stage(name: str) -> str:
    return f"heads of {name}"


def _localized(
    model: Model, asked: _Asked, plan: Preset, folder: Path, clock: Clock
) -> tuple[Rankings, dict[str, str]]:
    """The heads of every capability, and why some have none. ValueError where none has any."""
    found = {
        name: clock(_stage(name), partial(stages.localized, model, name, trials, plan, folder))
        for name, trials in asked.selection.items()
    }
    scores = {name: one for name, one in found.items() if isinstance(one, HeadScores)}
    reasons = {name: one for name, one in found.items() if isinstance(one, str)}
    if not scores:
        raise ValueError(f"{geometry(model).name} has heads for no capability: {' '.join(reasons.values())}")
    return scores, reasons


def _compared(
    model: Model, scores: Rankings, asked: _Asked, plan: Preset, folder: Path, clock: Clock
) -> tuple[Rankings, Generality]:
    """The heads of one capability by every method, and what ablating them costs it and the others."""
    shape, trials = geometry(model), asked.selection[plan.compared]
    methods = stages.affordable(plan, shape.n_layers * shape.n_heads, all(trial.needle for trial in trials))
    lead = scores[plan.compared]
    found = clock("methods", lambda: stages.by_method(model, trials, lead, methods, plan, folder))
    if PASS in methods:
        found[PASS] = clock(PASS, lambda: stages.by_pass(model, trials, plan, folder))
    heads = {method: ranking.top(plan.k) for method, ranking in found.items()}
    asks = {task: task for task in asked.evaluation}
    ablated = clock(
        "methods, ablated", lambda: stages.ablated(model, heads, asked.evaluation, asks, plan, folder / "methods")
    )
    return found, ablated


def _frames(found: Finding, asked: _Asked) -> dict[str, pd.DataFrame]:
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


def summary(findings: Sequence[Finding], command: str) -> dict[str, Any]:
    """The numbers of all models in one JSON; values of single trials stay in the run folder."""
    return {
        "command": command,
        "versions": versions(),
        "models": {
            each.model: {
                "parameters": each.parameters,
                "settings": each.settings,
                "seconds": {stage: round(spent, 1) for stage, spent in each.seconds.items()},
                "reasons": each.reasons,
                **{name: records(frame) for name, frame in each.frames.items()},
            }
            for each in findings
        },
        "scale": records(scale.beside(findings)),
        "depths": records(scale.depths(findings, findings[0].plan.k)),
    }
