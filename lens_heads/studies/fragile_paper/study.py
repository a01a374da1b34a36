"""Different heads, same fragile tasks? Detection, transfer, recovery in every model; then every two beside each other.

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
    """Ask of any models: do tasks share heads inside a model, and do models share heads, or fragile tasks?

    Args:
        models: names as `load_model` takes them, or loaded models; two or more to compare, one for its own part alone.
        preset: "packaged" (offline, small models), "quick", "paper", or a `Preset` of your own.
        out: the run folder: a folder per model and per two models (Parquet, scores, matrices, matches), `report.html` and
            `study_fragile_tasks.json`. The same call continues it; other settings are refused.
        path: real reports (a folder or .zip of edgar-crawler's JSON files) in place of the packaged ones.
        command: what the page says it was made by; default: the running command.
        **loading: how models given by name are loaded: device, dtype, ... of `load_model`.

    Two models are loaded at a time. Raises ValueError for an unknown preset, no models, or a folder of other settings.
    """
    plan, name = named_preset(preset, PRESETS)
    study = FragileStudy(on_reports(plan, name, None if path is None else str(path)), name)
    return run_study(study, models, out, command, loading)


class FragileStudy(Study[Preset, FragileFinding]):
    """Presets, stages, claims and page of the study of fragile tasks."""

    name = "fragile_tasks"

    @cached_property
    def documents(self) -> dict[str, list[DocumentTrial]]:
        """By task, the documents that heads are detected on."""
        return self.plan.detection()

    @cached_property
    def tests(self) -> dict[str, list[Trial]]:
        """By task, the trials that heads are ablated on."""
        return self.plan.evaluation()

    def one(self, model: Model, run: StageRun) -> FragileFinding:
        """The study of one model."""
        plan, shape, folder = self.plan, geometry(model), run.folder
        heads = shape.n_layers * shape.n_heads
        scores = run.stage("detection", stages.detect, model, self.documents, plan, folder)
        matrix = run.stage("transfer", stages.transfer, model, scores, self.tests, plan, folder)
        mended = run.stage("recovery", stages.mended, model, scores[plan.lead], matrix, self.tests, plan, folder)
        metrics = stages.by_metric(matrix, plan)
        statistics = pd.concat([stages.statistics(one) for one in metrics.values()], ignore_index=True)
        cells = [
            one.accuracy().rename(columns={"accuracy": "mean"}).assign(metric=name) for name, one in metrics.items()
        ]
        best = [
            found.to_frame().head(16).assign(method=method, task=task)
            for method, by_task in scores.items()
            for task, found in by_task.items()
        ]
        frames = {
            "claims": claims_of_model(shape.name, matrix.metric, statistics),
            "statistics": statistics,
            "cells": pd.concat(cells),
            "recovery": mended,
            "shared_heads": stages.shared_heads(scores, plan, heads),
            "best_heads": pd.concat(best, ignore_index=True),
        }
        first = ", ".join(f"{head}" for head in scores[plan.lead][ALL].top(min(5, heads)))
        base = ", ".join(f"{name} {one.cells.base.mean():.2f}" for name, one in metrics.items())
        run.console.print(f"{plan.lead}, all tasks: {first}; without ablation {base}")
        return FragileFinding(
            model=shape.name,
            settings=run.settings,
            frames=frames,
            seconds=run.seconds,
            scores=scores,
            matrix=matrix,
            sizes=plan.sizes(heads),
        )

    def pair_settings(self, a: FragileFinding, b: FragileFinding) -> dict[str, Any]:
        """Both models' weights and scores."""
        settings = {each.model: [each.settings["weights"], pairs.chosen(each)] for each in (a, b)}
        return {"models": settings, "preset": a.settings["preset"]}

    def two(self, models: tuple[Model, Model], a: FragileFinding, b: FragileFinding, run: StageRun) -> Pair:
        """Correlation of what breaks, correspondence of heads, and whether corresponding heads break the same tasks."""
        plan, folder = self.plan, run.folder
        found, reasons = run.stage("correlation", pairs.correlated, a, b, plan)
        match = run.stage("correspondence", pairs.matched, models, pairs.named(a, b), plan, folder / "match")
        blind = run.stage("correspondence without scores", pairs.matched, models, None, plan, folder / "blind")
        validation = run.stage("validation", pairs.validated, blind, models, a, self.tests, plan, folder)
        names = (a.model, b.model)
        frames = pairs.frames(names, found, match, validation) | {"depth": pairs.depth(a, b, plan)}
        return Pair(
            model=" and ".join(names),
            settings=run.settings,
            frames={"claims": claims_of_pair(names, found), **frames},
            seconds=run.seconds,
            names=names,
            correlations=found,
            reasons=reasons,
            match=match,
            blind=blind,
            validation=validation,
        )

    def page(self, findings: Sequence[FragileFinding], pairs: Sequence[Pair]) -> report.Page:
        """The page on what there is so far."""
        return page(findings, pairs, self.plan)
