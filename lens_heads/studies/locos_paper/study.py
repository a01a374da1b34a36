"""The LOCOS study, end to end: detection, ablation, judged texts, causal evidence, what the heads read, and claims.

`locos` runs it. `lens-heads demo` runs its smallest presets.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from lens_heads import report
from lens_heads.model.geometry import Model, geometry
from lens_heads.report import tables
from lens_heads.studies.locos_paper import stages
from lens_heads.studies.locos_paper.claims import claims
from lens_heads.studies.locos_paper.finding import LEAD, LocosFinding, ranked
from lens_heads.studies.locos_paper.page import page
from lens_heads.studies.locos_paper.presets import PRESETS, Preset
from lens_heads.studies.runner import MODELS, Models, StageRun, Study, named_preset, run_study, several


def locos(
    models: Models = MODELS,
    preset: str | Preset = "packaged",
    out: str | Path = "runs/locos",
    tuned_lens: str | Path | None = None,
    command: str | None = None,
    **loading: Any,
) -> list[LocosFinding]:
    """Re-run the LOCOS paper (Gema et al., arXiv 2607.01002) on one or more models.

    Args:
        models: names as `load_model` takes them, or loaded models.
        preset: "packaged" (offline, small models), "quick", "paper", "scripts", "demo", "demo-quick", "demo-full", or your own
            `Preset`.
        out: the run folder. It gets a folder per model (Parquet tables, scores, curves), `report.html` and `study_locos.json`.
            The same call continues it; other settings are refused.
        tuned_lens: a safetensors file as `score_heads(direction=...)` takes it, for a single model.
        command: shown on the page; default: the running command.
        **loading: options of `load_model` (device, dtype, ...) for models given by name.

    Returns one finding per model, and prints the claims of each.

    Raises ValueError for an unknown preset, no models, or a folder with other settings.
    """
    plan, name = named_preset(preset, PRESETS)
    models = several(models)
    if tuned_lens is not None and len(models) > 1:
        raise ValueError("a tuned lens belongs to one model: run the study on that model alone")
    study = LocosStudy(plan, name, {"tuned_lens": str(tuned_lens) if tuned_lens else None})
    return run_study(study, models, out, command, loading)[0]


class LocosStudy(Study[Preset, LocosFinding]):
    """The LOCOS study for the runner."""

    name = "locos"

    def one(self, model: Model, run: StageRun) -> LocosFinding:
        plan, shape, folder = self.plan, geometry(model), run.folder
        k = plan.headline_k(shape.n_layers * shape.n_heads)
        select, test = plan.trials(plan.select), plan.trials(plan.test)
        scores = run.stage("detection", stages.detect, model, select, plan, folder, self.extra["tuned_lens"])
        tables.show(tables.top_heads(scores, 3, f"{shape.name}: top heads by method"))
        reference = run.stage("means", stages.means, model, select, plan, folder)
        bench = stages.Bench(model, plan, k, reference, folder)
        curve = run.stage("ablation", stages.curve, bench, test, scores)
        for task in curve.per_trial["task"].unique():
            tables.show(tables.curve(curve, "logprob", task))
        baseline = stages.best_baseline(curve, k)
        texts = run.stage("texts", stages.judged_texts, bench, test, scores, baseline)
        cri = run.stage("patching", stages.patched, bench, test, texts) if plan.cri_trials else None
        mended = run.stage("recovery", stages.mended, bench, test, scores[LEAD]) if plan.recovery_trials else None
        read, literal = run.stage("reading", stages.read, bench, select, scores) if plan.read_heads else ({}, None)
        frames = {
            **stages.agreement(model, scores, cri, k),
            "ablation": curve.frame,
            "texts": texts.frame,
            "differences": curve.differences("logprob", lead=LEAD),
            **{f"dissociation_{task}": curve.dissociation(task, "logprob") for task in plan.spared},
            **read,
        }
        trials = {"ablation_trials": curve.per_trial, "texts_trials": texts.per_trial}
        if mended is not None and not isinstance(mended, str):
            frames["recovery"], trials["recovery_examples"] = (mended.frame, mended.per_example)
        found = LocosFinding(
            model=shape.name,
            frames=frames,
            trials=trials,
            k=k,
            baseline=baseline,
            scores=scores,
            curve=curve,
            texts=texts,
            questions={trial.id: trial.question for trial in test},
            cri=cri,
            literal=literal,
            recovered=mended,
        )
        frames["claims"] = claims(found, plan.described())
        every_head = [ranked(name, one).assign(method=name) for name, one in found.ranked.items()]
        trials["scores"] = pd.concat(every_head, ignore_index=True)
        return found

    def page(self, findings: Sequence[LocosFinding], pairs: Sequence[Any]) -> report.Page:
        return page(findings, self.plan)
