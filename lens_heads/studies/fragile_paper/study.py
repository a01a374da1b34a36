"""Different heads, same fragile tasks? Detection, transfer and recovery in each model, then a comparison of each pair.

`fragile_tasks` runs it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from itertools import zip_longest
from pathlib import Path
from typing import Any, Unpack

import pandas as pd

from lens_heads import report
from lens_heads.model.geometry import Model, head_geometry
from lens_heads.report import tables
from lens_heads.runs.typed import typed
from lens_heads.sanity.answers import permuted_answers
from lens_heads.studies.asked import ASKED, asked, meaning
from lens_heads.studies.fragile_paper import stages
from lens_heads.studies.fragile_paper.claims import by_metric, claims_of_pair, judged, registered
from lens_heads.studies.fragile_paper.finding import ALL, FragileFinding, Pair
from lens_heads.studies.fragile_paper.page import page
from lens_heads.studies.fragile_paper.presets import PRESETS, Preset, on_reports, split_by_task
from lens_heads.studies.presets import named_preset, resized
from lens_heads.studies.runner import MODELS, Models, PresetOf, StageRun, Study, StudyOptions, conduct
from lens_heads.studies.seen import Seen
from lens_heads.tasks.sec10k import sec10k, sec10k_documents
from lens_heads.trials.documents import DocumentTrial
from lens_heads.trials.needle_swaps import exchanged_needles
from lens_heads.trials.trial import AnyTrial, Trial


@typed
def fragile_tasks(
    models: Models = MODELS,
    preset: PresetOf[Preset] = "packaged",
    out: str | Path = "runs/fragile-tasks",
    path: str | Path | None = None,
    command: str | None = None,
    precision: float | None = None,
    max_trials: int | None = None,
    plan: bool = False,
    **loading: Unpack[StudyOptions],
) -> tuple[list[FragileFinding], list[Pair]]:
    """Ask any models: do tasks share heads within a model, and do models share heads or fragile tasks?

    Args:
        models: names as `load_model` takes them, or loaded models. Every two are compared.
        preset: "packaged" (offline, small models), "thorough" (hours), "quick", "paper", "negative-model", "negative-needles", or
            your own `Preset`.
        out: the run folder. It gets a folder per model and per pair (Parquet tables, scores, matrices, matches), `report.html`
            and `study_fragile_tasks.json`. The same call continues it; other settings are refused.
        path: real reports (a folder or .zip of edgar-crawler's JSON files), instead of the packaged ones.
        command: shown on the page; default: the running command.
        precision, max_trials: in place of the preset's, where headline claims are evaluated: the half-width, in nats, at which no
            more test trials are run, and the most of them.
        plan: only print what it would cost, from the preset and one measured block, and return nothing.
        **loading: options of `load_model` (device, dtype, ...) for models given by name, and `workers` and `num_gpus` as in
            `lh.worker_pool`.

    Returns one finding per model and one per pair, and prints the claims of each. At most two models are loaded at a time.

    Raises ValueError for an unknown preset, no models, or a folder with other settings.
    """
    size, name = named_preset(preset, PRESETS)
    size = resized(on_reports(size, name, None if path is None else str(path)), precision, max_trials)
    study = FragileStudy(size, name)
    if path is not None:  # Faulty reports show before a model is loaded.
        _ = study.documents, study.tests
    return conduct(study, models, out, command, plan, loading)


class FragileStudy(Study[Preset, FragileFinding]):
    """The study of fragile tasks for the runner."""

    name = "fragile_tasks"

    @cached_property
    def documents(self) -> dict[str, list[DocumentTrial]]:
        """The documents that heads are detected on, by task."""
        return self.plan.by_task(sec10k_documents, self.plan.documents, "select")

    @cached_property
    def tests(self) -> dict[str, list[AnyTrial]]:
        """The trials of other companies that heads are ablated on, by task, after a negative control of trials."""
        found = self.plan.by_task(sec10k, self.plan.trials, "test")
        if self.plan.control == "exchanged_needles":  # Between tasks: all trials of a task ask the same question.
            return split_by_task(
                exchanged_needles(trial for trials in found.values() for trial in trials), self.plan.tasks
            )
        permuted = self.plan.control == "permuted_answers"
        return {task: permuted_answers(trials) for task, trials in found.items()} if permuted else found

    @cached_property
    def selected(self) -> list[Trial]:
        """Trials of the companies that heads are detected on, of every task in turn: do they need their question?"""
        by_task = self.plan.by_task(sec10k, self.plan.trials, "select")
        return [trial for row in zip_longest(*by_task.values()) for trial in row if trial is not None][:ASKED]

    def registered(self) -> pd.DataFrame:
        return registered(self.plan)

    def costs(self, model: Model) -> dict[str, int]:
        """As the runner asks; sets of heads that agree by chance run once. `validation` is of a pair's second model."""
        plan, tasks = self.plan, len(self.plan.tasks)
        trials, setup = sum(map(len, self.tests.values())), stages.FragileSetup(model, plan, {}, {}, Path())
        recovered = sum(len(each[: plan.recovery_trials]) for each in self.tests.values())
        random = (1 + plan.layer_matched) * plan.random_sets * min(plan.random_trials, trials)
        controls = len(stages.RESTORED) * plan.recovery_draws if plan.fair else 0
        return {
            "detection": sum(map(len, self.documents.values())),
            "question": 3 * len(self.selected),
            "transfer": trials * (1 + len(setup.sizes) * (tasks + plan.random_draws)),
            "headline": min(trials, plan.max_trials or trials) * (2 + len(plan.foreign)) + random,
            "recovery": recovered * len(setup.sizes) * (2 + controls),
            "validation": trials * (2 + stages.DRAWS),
        }

    def probe(self) -> list[Trial]:
        return [trial for trials in self.tests.values() for trial in trials[:1] if isinstance(trial, Trial)]

    def one(self, model: Model, run: StageRun) -> FragileFinding:
        plan, name = self.plan, head_geometry(model).name
        setup = stages.FragileSetup(model, plan, self.documents, self.tests, run.folder)
        scores = run.stage("detection", stages.detect, setup)
        lead = scores[plan.lead]
        question = run.stage("question", asked, model, self.selected, run.folder / "question")
        tables.show(tables.plain(f"{name}: {meaning(question)}"))
        matrix = run.stage("transfer", stages.transfer, setup, lead)
        curve = run.stage("headline", stages.headline, setup, scores)
        restored = run.stage("recovery", stages.mended, setup, lead)
        metrics, k = by_metric(matrix, plan), setup.sizes[setup.headline]
        cells = [
            one.accuracy().rename(columns={"accuracy": "mean"}).assign(metric=metric) for metric, one in metrics.items()
        ]
        best = [
            found.frame.head(16).assign(method=method, task=task)
            for method, by_task in scores.items()
            for task, found in by_task.items()
        ]
        frames = {
            **judged(name, matrix, curve, restored, plan, k),
            "tasks": stages.about_tasks(setup, matrix),
            "cells": pd.concat(cells),
            "shared_heads": stages.shared_heads(setup, lead),
            "best_heads": pd.concat(best, ignore_index=True),
        }
        items = matrix.per_item
        assert items is not None
        first = ", ".join(map(str, lead[ALL].ranking()[:5]))
        base = ", ".join(f"{metric} {one.cells.base.mean():.2f}" for metric, one in metrics.items())
        run.console.print(f"Top heads of {plan.lead} over all tasks: {first}. Without ablation: {base}.")
        return FragileFinding(
            model=name,
            frames=frames,
            trials={"matrix_trials": items, "headline_trials": curve.per_trial, "recovery_examples": restored},
            scores=scores,
            matrix=matrix,
            curve=curve,
            sizes=setup.sizes,
            headline=setup.headline,
            question=question,
        )

    def seen(self, found: FragileFinding) -> Seen:
        pooled = {method: by_task[ALL] for method, by_task in found.scores.items()}
        lead = {self.plan.lead: pooled[self.plan.lead]}
        return Seen([trials[0] for trials in self.tests.values()], {**lead, **pooled}, found.curve)

    def pair_settings(self, a: FragileFinding, b: FragileFinding) -> dict[str, Any]:
        """The weights and scores of both models."""
        settings = {each.model: [each.settings["weights"], stages.scores_digest(each)] for each in (a, b)}
        return {"models": settings, "preset": a.settings["preset"]}

    def two(self, models: tuple[Model, Model], a: FragileFinding, b: FragileFinding, run: StageRun) -> Pair:
        """Compare two models: what breaks, which heads correspond, and whether corresponding heads break the same tasks."""
        plan, folder, names = self.plan, run.folder, (a.model, b.model)
        scores = (stages.by_name(a), stages.by_name(b))
        found, reasons = run.stage("correlation", stages.correlated, a, b, plan)
        match = run.stage("correspondence", stages.matched, models, scores, plan, folder / "match")
        blind = run.stage("correspondence without scores", stages.matched, models, None, plan, folder / "blind")
        validation = run.stage("validation", stages.validated, blind, models, a, self.tests, plan, folder)
        frames = {
            "claims": claims_of_pair(names, plan, found, [each.frames["answered"] for each in (a, b)]),
            **stages.correlation_tables(found),
            "matched_heads": match.pairs,
            "validation": validation.frame,
            "validation_correlation": validation.correlation,
            "depth": stages.depth(a, b, plan),
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
