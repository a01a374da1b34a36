"""Different heads, same fragile tasks? Detection, transfer and recovery in each model, a comparison of each pair, the page.

`fragile_tasks` runs it. Stages are functions whose results are stored.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Unpack

import pandas as pd

from lens_heads import plots, report
from lens_heads.evidence.correlation_results import Correlation
from lens_heads.heads.geometry import HeadGeometry
from lens_heads.model.geometry import Model, head_geometry
from lens_heads.report import tables
from lens_heads.runs.typed import typed
from lens_heads.sanity.answers import permuted_answers
from lens_heads.studies.claims import Claim, published
from lens_heads.studies.finding import ABLE, ASKED, asked, can_choose, meaning
from lens_heads.studies.fragile_paper.claims import (
    ALL,
    METRIC,
    PRESETS,
    FragileFinding,
    Pair,
    Preset,
    by_metric,
    claims_of_pair,
    judged,
    on_reports,
    split_by_task,
    words,
)
from lens_heads.studies.fragile_paper.sources import OTHERS
from lens_heads.studies.fragile_paper.stages import (
    DRAWS,
    JUDGED,
    RESTORED,
    FragileSetup,
    about_tasks,
    by_name,
    correlated,
    correlation_tables,
    depth,
    detect,
    headline,
    matched,
    mended,
    scores_digest,
    shared_heads,
    transfer,
    validated,
)
from lens_heads.studies.pages import Shown, bars, claims_table, counted, table
from lens_heads.studies.presets import described, in_turn, sized
from lens_heads.studies.runner import MODELS, Models, PresetOf, StageRun, Study, StudyOptions, conduct
from lens_heads.studies.seen import Seen
from lens_heads.tasks.sec10k import sec10k, sec10k_documents
from lens_heads.trials.documents import DocumentTrial
from lens_heads.trials.exchanges import exchanged_needles
from lens_heads.trials.trial import AnyTrial, Trial


def _call(arguments: dict[str, Any]) -> str:
    """What a preset asks of the task, in short."""
    return described(("sec10k", {**({} if "path" in arguments else {"source": "packaged"}), **arguments}))


def _judged(each: Pair) -> dict[str, Correlation]:
    """The correlations that claims are about, as far as they could be computed."""
    return {name: each.correlations[f"{METRIC}: {name}"] for name in JUDGED if f"{METRIC}: {name}" in each.correlations}


def _answer(each: Pair) -> str:
    """The answer for two models: whether they share fragile tasks, and tasks with disruptive heads."""
    shown = [
        f"{name}: {one.verdict()} (r = {one.within.r:.2f} inside answer formats, p = {one.within.p:.2g})"
        for name, one in _judged(each).items()
        if one.within is not None
    ]
    return f"{' and '.join(each.names)}: {'; '.join(shown) or 'no correlation could be computed'}."


def _harm(each: FragileFinding) -> str:
    """The answer for a single model: how much other tasks' heads cost a task, beyond random heads."""
    found = each.frames["sources"]
    (row,) = found[(found["source"] == OTHERS) & (found["task"] == ALL)].to_dict("records")
    beyond = f"{row['beyond']:.2f} [{row['beyond_low']:.2f}, {row['beyond_high']:.2f}] beyond random heads"
    return f"{each.model}: heads of other tasks cost {row['drop']:.2f} nats per answer token, {beyond}."


@typed
def fragile_tasks(
    models: Models = MODELS,
    preset: PresetOf[Preset] = "packaged",
    out: str | Path = "runs/fragile-tasks",
    path: str | Path | None = None,
    **options: Unpack[StudyOptions],
) -> tuple[list[FragileFinding], list[Pair]]:
    """Ask any models: do tasks share heads within a model, and do models share heads or fragile tasks?

    Args:
        models: names as `load_model` takes them, or loaded models. Every two are compared.
        preset: "packaged" (offline, small models), "thorough" (hours), "quick", "paper", "negative-model", "negative-needles", or
            your own `Preset`.
        out: the run folder. It gets a folder per model and per pair (Parquet tables, scores, matrices, matches), `report.html`
            and `study_fragile_tasks.json`. The same call continues it; other settings are refused.
        path: real reports (a folder or .zip of edgar-crawler's JSON files), instead of the packaged ones.
        precision, max_trials: in place of the preset's, where headline claims are evaluated: the half-width, in nats, at which no
            more test trials are run, and the most of them.
        **options: those of `load_model` (device, dtype, ...) for models given by name; `workers` and `num_gpus` as in
            `lh.worker_pool`; `command`, shown on the page, by default the running command; `plan`: only print what it would
            cost, from the preset and one measured block, and return nothing.

    Returns one finding per model and one per pair, and prints the claims of each. At most two models are loaded at a time.

    Raises ValueError for an unknown preset, no models, or a folder with other settings.
    """
    size, name = sized(preset, PRESETS, options)
    study = FragileStudy(on_reports(size, name, None if path is None else str(path)), name)
    if path is not None:  # Faulty reports show before a model is loaded.
        _ = study.documents, study.tests
    return conduct(study, models, out, options)


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
        """Trials of the companies that heads are detected on, of every task in turn: what can the model do?"""
        by_task = self.plan.by_task(sec10k, self.plan.trials, "select")
        return in_turn(by_task)[:ABLE]

    def claims(self) -> list[Claim]:
        whole = published(__name__)
        return [*whole["model"], *whole["pair"]]

    def words(self) -> dict[str, Any]:
        return {"plan": self.plan, **words(self.plan)}

    def costs(self, shape: HeadGeometry) -> dict[str, int]:
        """As the runner asks; sets of heads that agree by chance run once. `validation` is of a pair's second model."""
        plan, tasks = self.plan, len(self.plan.tasks)
        trials, sizes = sum(map(len, self.tests.values())), len(plan.sizes(shape.size))
        recovered = sum(len(each[: plan.recovery_trials]) for each in self.tests.values())
        random = (1 + plan.layer_matched) * plan.random_sets * min(plan.random_trials, trials)
        controls = len(RESTORED) * plan.recovery_draws if plan.fair else 0
        return {
            "detection": sum(map(len, self.documents.values())),
            "ability": 2 * len(self.selected),
            "question": 3 * len(self.selected[:ASKED]),
            "transfer": trials * (1 + sizes * (tasks + plan.random_draws)),
            "headline": min(trials, plan.max_trials or trials) * (2 + len(plan.foreign)) + random,
            "recovery": recovered * sizes * (2 + controls),
            "validation": trials * (2 + DRAWS),
        }

    def probe(self) -> list[Trial]:
        return [trial for trials in self.tests.values() for trial in trials[:1] if isinstance(trial, Trial)]

    def one(self, model: Model, run: StageRun) -> FragileFinding:
        plan, name = self.plan, head_geometry(model).name
        setup = FragileSetup(model, plan, self.documents, self.tests, run.folder)
        able = run.stage("ability", can_choose, model, self.selected, run.folder / "ability")
        question = run.stage("question", asked, model, self.selected[:ASKED], run.folder / "question")
        tables.show(tables.plain(f"{name}: {meaning(question, able)}"))
        scores = run.stage("detection", detect, setup)
        lead = scores[plan.lead]
        matrix = run.stage("transfer", transfer, setup, lead)
        curve = run.stage("headline", headline, setup, scores)
        restored = run.stage("recovery", mended, setup, lead)
        metrics, k = by_metric(matrix, plan), setup.sizes[setup.headline]
        cells = [one.frame for one in metrics.values()]
        best = [
            found.frame.head(16).assign(method=method, task=task)
            for method, by_task in scores.items()
            for task, found in by_task.items()
        ]
        frames = {
            **judged(name, matrix, curve, restored, plan, k),
            "tasks": about_tasks(setup, matrix),
            "cells": pd.concat(cells),
            "shared_heads": shared_heads(setup, lead),
            "best_heads": pd.concat(best, ignore_index=True),
        }
        items = matrix.per_trial
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
            able=able,
        )

    def seen(self, found: FragileFinding) -> Seen:
        pooled = {method: by_task[ALL] for method, by_task in found.scores.items()}
        lead = {self.plan.lead: pooled[self.plan.lead]}
        return Seen([trials[0] for trials in self.tests.values()], {**lead, **pooled}, found.curve)

    def pair_settings(self, a: FragileFinding, b: FragileFinding) -> dict[str, Any]:
        """The weights and scores of both models."""
        settings = {each.model: [each.settings["weights"], scores_digest(each)] for each in (a, b)}
        return {"models": settings, "preset": a.settings["preset"]}

    def two(self, models: tuple[Model, Model], a: FragileFinding, b: FragileFinding, run: StageRun) -> Pair:
        """Compare two models: what breaks, which heads correspond, and whether corresponding heads break the same tasks."""
        plan, folder, names = self.plan, run.folder, (a.model, b.model)
        scores = (by_name(a), by_name(b))
        found, reasons = run.stage("correlation", correlated, a, b, plan)
        match = run.stage("correspondence", matched, models, scores, plan, folder / "match")
        blind = run.stage("correspondence without scores", matched, models, None, plan, folder / "blind")
        validation = run.stage("validation", validated, blind, models, a, self.tests, plan, folder)
        frames = {
            "claims": claims_of_pair(names, plan, found, [each.frames["answered"] for each in (a, b)]),
            **correlation_tables(found),
            "matched_heads": match.pairs,
            "validation": validation.frame,
            "validation_correlation": validation.correlation,
            "depth": depth(a, b, plan),
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

    def shown(self, findings: Sequence[FragileFinding], pairs: Sequence[Pair]) -> Shown:
        claims = pd.concat([each.claims for each in [*findings, *pairs]], ignore_index=True)
        words = {
            "question": " ".join(f"{each.model}: {meaning(each.question, each.able)}" for each in findings),
            "documents": _call(self.plan.documents),
            "trials": _call(self.plan.trials),
            "claims": counted(claims),
            "sizes": "; ".join(f"{each.model}: {', '.join(map(str, each.sizes))}" for each in findings),
            "metric": plots.METRIC_LABELS[METRIC],
            "right": plots.METRIC_LABELS[self.plan.right],
        }
        correlated = [one for each in pairs for one in list(_judged(each).values())[:1]]
        return Shown(
            words,
            {"claims": claims_table(claims, more=("models", "metric", "k", "n", "p", "would_tell"))},
            heads=[
                f"{each.model} {head}" for each in findings for head in each.scores[self.plan.lead][ALL].ranking()[:3]
            ],
            verdict=" ".join(map(_answer, pairs) if pairs else map(_harm, findings)),
            first=[*(one.plot() for one in correlated), *(each.matrix.plot(title=each.model) for each in findings)],
        )

    def shown_pair(self, each: Pair) -> Shown:
        lost = " ".join(f"{label}: {reason}." for label, reason in each.reasons.items())
        words = {"names": " and ".join(each.names), "lost": f"Not computed: {lost}" if lost else ""}
        best = each.match.pairs.sort_values("distance").head(16)
        quality = pd.DataFrame([{"match": name, **row} for name, row in each.notes()["match"].items()])
        quality.columns = [
            str(name).replace("chance", "to heads at the same depth").replace("mean_", "mean ") for name in quality
        ]
        return Shown(
            words,
            {"quality": quality, "closest": best},
            {
                "scatters": [report.Figure(one.plot(), name) for name, one in _judged(each).items()],
                "match": each.match.plot(best["head_a"].tolist()),
                "validation": each.validation.plot(),
            },
        )

    def shown_model(self, each: FragileFinding) -> Shown:
        lead, found = each.scores[self.plan.lead][ALL], each.frames["sources"]
        kept = [name for name in ("drop", "beyond", "beyond_layers") if found[name].notna().any()]
        columns = ["source", *(f"{name}{end}" for name in kept for end in ("", "_low", "_high")), "p"]
        caption = "What each source costs the trials of all tasks, nats per answer token"
        tables = {
            "whole": table(found[found["task"] == ALL][columns], caption, *kept),
            "by_task": found[found["task"] != ALL].pivot(index="source", columns="task", values="drop").reset_index(),
        }
        figures = {
            "map": plots.head_map(lead, title=self.plan.lead),
            "agreement": plots.method_agreement({method: by_task[ALL] for method, by_task in each.scores.items()}),
            "matrices": [each.matrix.plot(k) for k in each.matrix.ks],
        }
        if not (recovery := each.frames["recovery"]).empty:
            whole = recovery[recovery["task"] == ALL]
            names = whole["set"] + whole["fair"].map({True: ", ablated too", False: ""})
            rows = bars(whole, "k = " + whole["k"].astype(str), names, "recovery").dropna(subset="value")
            if not rows.empty:
                title, axis = "Recovery by restoring heads", "recovery, share of the cost"
                figures["recovered"] = plots.drop_bars(rows, title=title, unit="", axis=axis)
        return Shown({"rule": lead.meta.get("rule", "none")}, tables, figures)
