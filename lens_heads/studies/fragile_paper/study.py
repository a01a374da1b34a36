"""Different heads, same fragile tasks? Detection, transfer and recovery in each model, then a comparison of each pair.

`fragile_tasks` runs it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from lens_heads import report
from lens_heads.model.geometry import Model, geometry
from lens_heads.studies.fragile_paper import pairs, stages
from lens_heads.studies.fragile_paper.claims import claims_of_model, claims_of_pair
from lens_heads.studies.fragile_paper.finding import ALL, FragileFinding, Pair
from lens_heads.studies.fragile_paper.page import page
from lens_heads.studies.fragile_paper.presets import PRESETS, Preset, on_reports
from lens_heads.studies.runner import MODELS, Models, StageRun, Study, named_preset, run_study
from lens_heads.tasks.sec10k import sec10k, sec10k_documents
from lens_heads.trials.documents import DocumentTrial
from lens_heads.trials.trial import Trial


def fragile_tasks(
    models: Models = MODELS,
    preset: str | Preset = "packaged",
    out: str | Path = "runs/fragile-tasks",
    path: str | Path | None = None,
    command: str | None = None,
    **loading: Any,
) -> tuple[list[FragileFinding], list[Pair]]:
    """Ask any models: do tasks share heads within a model, and do models share heads or fragile tasks?

    Args:
        models: names as `load_model` takes them, or loaded models. Every two are compared.
        preset: "packaged" (offline, small models), "quick", "paper", or your own `Preset`.
        out: the run folder. It gets a folder per model and per pair (Parquet tables, scores, matrices, matches), `report.html`
            and `study_fragile_tasks.json`. The same call continues it; other settings are refused.
        path: real reports (a folder or .zip of edgar-crawler's JSON files), instead of the packaged ones.
        command: shown on the page; default: the running command.
        **loading: options of `load_model` (device, dtype, ...) for models given by name.

    Returns one finding per model and one per pair, and prints the claims of each. At most two models are loaded at a time.

    Raises ValueError for an unknown preset, no models, or a folder with other settings.
    """
    plan, name = named_preset(preset, PRESETS)
    study = FragileStudy(on_reports(plan, name, None if path is None else str(path)), name)
    return run_study(study, models, out, command, loading)


class FragileStudy(Study[Preset, FragileFinding]):
    """The study of fragile tasks for the runner."""

    name = "fragile_tasks"

    @cached_property
    def documents(self) -> dict[str, list[DocumentTrial]]:
        """The documents that heads are detected on, by task."""
        return self.plan.by_task(sec10k_documents, self.plan.documents, "select")

    @cached_property
    def tests(self) -> dict[str, list[Trial]]:
        """The trials of other companies that heads are ablated on, by task."""
        return self.plan.by_task(sec10k, self.plan.trials, "test")

    def one(self, model: Model, run: StageRun) -> FragileFinding:
        plan, name = self.plan, geometry(model).name
        bench = stages.Bench(model, plan, self.documents, self.tests, run.folder)
        scores = run.stage("detection", stages.detect, bench)
        lead = scores[plan.lead]
        matrix = run.stage("transfer", stages.transfer, bench, lead)
        mended = run.stage("recovery", stages.mended, bench, lead, matrix)
        metrics = stages.by_metric(matrix, plan)
        statistics = pd.concat([stages.statistics(one) for one in metrics.values()], ignore_index=True)
        cells = [
            one.accuracy().rename(columns={"accuracy": "mean"}).assign(metric=metric) for metric, one in metrics.items()
        ]
        best = [
            found.to_frame().head(16).assign(method=method, task=task)
            for method, by_task in scores.items()
            for task, found in by_task.items()
        ]
        frames = {
            "claims": claims_of_model(name, matrix.metric, statistics),
            "statistics": statistics,
            "cells": pd.concat(cells),
            "recovery": mended,
            "shared_heads": stages.shared_heads(bench, lead),
            "best_heads": pd.concat(best, ignore_index=True),
        }
        first = ", ".join(map(str, lead[ALL].ranking()[:5]))
        base = ", ".join(f"{metric} {one.cells.base.mean():.2f}" for metric, one in metrics.items())
        run.console.print(f"Top heads of {plan.lead} over all tasks: {first}. Without ablation: {base}.")
        return FragileFinding(
            model=name,
            frames=frames,
            scores=scores,
            matrix=matrix,
            sizes=bench.sizes,
        )

    def pair_settings(self, a: FragileFinding, b: FragileFinding) -> dict[str, Any]:
        """The weights and scores of both models."""
        settings = {each.model: [each.settings["weights"], pairs.scores_digest(each)] for each in (a, b)}
        return {"models": settings, "preset": a.settings["preset"]}

    def two(self, models: tuple[Model, Model], a: FragileFinding, b: FragileFinding, run: StageRun) -> Pair:
        """Compare two models: what breaks, which heads correspond, and whether corresponding heads break the same tasks."""
        plan, folder, names = self.plan, run.folder, (a.model, b.model)
        scores = (pairs.by_name(a), pairs.by_name(b))
        found, reasons = run.stage("correlation", pairs.correlated, a, b, plan)
        match = run.stage("correspondence", pairs.matched, models, scores, plan, folder / "match")
        blind = run.stage("correspondence without scores", pairs.matched, models, None, plan, folder / "blind")
        validation = run.stage("validation", pairs.validated, blind, models, a, self.tests, plan, folder)
        frames = {
            "claims": claims_of_pair(names, found),
            **pairs.correlation_tables(found),
            "matched_heads": match.pairs,
            "validation": validation.frame,
            "validation_correlation": validation.correlation,
            "depth": pairs.depth(a, b, plan),
        }
        return Pair(
            model=" and ".join(names),
            frames=frames,
            names=names,
            correlations=found,
            reasons=reasons,
            match=match,
            blind=blind,
            validation=validation,
        )

    def page(self, findings: Sequence[FragileFinding], pairs: Sequence[Pair]) -> report.Page:
        return page(findings, pairs, self.plan)
