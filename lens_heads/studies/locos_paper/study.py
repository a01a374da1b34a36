"""The LOCOS study, end to end: detection, ablation, judged texts, causal evidence, what the heads read, and claims.

`locos` runs it. `lens-heads demo` runs its smallest presets.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Unpack

import pandas as pd

from lens_heads import report
from lens_heads.evidence.head_sets import capped
from lens_heads.evidence.verdicts import smallest_k
from lens_heads.heads.geometry import HeadGeometry
from lens_heads.model.directions import check_direction
from lens_heads.model.geometry import Model, head_geometry
from lens_heads.report import tables
from lens_heads.runs.typed import typed
from lens_heads.studies.asked import ASKED, asked, meaning
from lens_heads.studies.locos_paper import stages
from lens_heads.studies.locos_paper.claims import best_baseline, claims, registered
from lens_heads.studies.locos_paper.finding import LEAD, LocosFinding, measured, ranked
from lens_heads.studies.locos_paper.page import page
from lens_heads.studies.locos_paper.presets import ATTENTION, HEADLINE_METHODS, PRESETS, RIVALS, TASK, Preset
from lens_heads.studies.presets import named_preset, resized
from lens_heads.studies.runner import MODELS, Models, PresetOf, StageRun, Study, StudyOptions, conduct, several
from lens_heads.studies.seen import Seen
from lens_heads.trials.trial import Trial


def costs(plan: Preset, shape: HeadGeometry) -> dict[str, int]:
    """Trial-passes by stage: one trial under one set of heads each. At most, where precision may stop a stage earlier.

    Patching and recovery count a pass per head (or set) and trial, though several heads share one.
    """
    heads, tests = shape.n_layers * shape.n_heads, len(plan.tested())
    sizes, others = len(capped(plan.ks, shape.n_layers * shape.n_heads)), {**plan.spared, **plan.downstream}
    counts = {task: len(plan.trials(call)) for task, call in others.items()}
    few = plan.draws * min(plan.few, tests)
    rivals = len(RIVALS) * bool(plan.rivals)
    methods = len({name for name in HEADLINE_METHODS if name in plan.methods}) + 1 + rivals
    controls = sum({"bottom": 1, "random": plan.seeds, "random_like": plan.seeds}[name] for name in plan.controls)
    selected = len(plan.trials(plan.select))
    return {
        "detection": selected,
        "question": 3 * min(ASKED, selected),
        "choice": min(plan.choose, selected) * (2 + (1 + len(ATTENTION)) * sizes),
        "rivals": min(plan.rivals, selected) * 2 * heads,
        "headline": min(plan.max_trials, tests) * (2 + methods) + 2 * few,
        "other tasks": sum(2 * n + plan.draws * min(plan.few_others, n) for n in counts.values()),
        "ablation": min(plan.curve_trials, tests) * (1 + (len(plan.ablated) + 1 + rivals + controls) * (sizes + 1)),
        "texts": sum(2 * min(plan.text_trials, n) for n in (tests, *counts.values())),
        "patching": min(plan.cri_trials, tests) * heads,
        "recovery": min(plan.recovery_trials, tests) * (2 + 3 * plan.recovery_draws),
        "reading": 3 * selected if plan.read_heads else 0,
    }


@typed
def locos(
    models: Models = MODELS,
    preset: PresetOf[Preset] = "packaged",
    out: str | Path = "runs/locos",
    tuned_lens: str | Path | None = None,
    command: str | None = None,
    precision: float | None = None,
    max_trials: int | None = None,
    plan: bool = False,
    **loading: Unpack[StudyOptions],
) -> list[LocosFinding]:
    """Re-run the LOCOS paper (Gema et al., arXiv 2607.01002) on one or more models.

    Args:
        models: names as `load_model` takes them, or loaded models.
        preset: "packaged" (offline, small models), "thorough" (hours), "quick", "paper", "scripts", "negative-model",
            "negative-needles", "demo", "demo-quick", "demo-full", or your own `Preset`.
        out: the run folder. It gets a folder per model (Parquet tables, scores, curves), `report.html` and `study_locos.json`.
            The same call continues it; other settings are refused.
        tuned_lens: a safetensors file as `score_heads(direction=...)` takes it, for a single model.
        command: shown on the page; default: the running command.
        precision, max_trials: in place of the preset's: the half-width, in nats, at which no more test trials are run, and the
            most of them (up to as many as the preset's `test` has).
        plan: only print what it would cost, from the preset and one measured block, and return nothing.
        **loading: options of `load_model` (device, dtype, ...) for models given by name, and `workers` and `num_gpus` as in
            `lh.worker_pool`.

    Returns one finding per model, and prints the claims of each.

    Raises ValueError for an unknown preset, no models, or a folder with other settings.

    Example:
        >>> lh.studies.locos(model, preset="quick", plan=True)
        locos: what it would cost ...
        []
    """
    size, name = named_preset(preset, PRESETS)
    models = several(models)
    if tuned_lens is not None and len(models) > 1:
        raise ValueError("a tuned lens belongs to one model: run the study on that model alone")
    if tuned_lens is not None:
        check_direction(tuned_lens)
    size = resized(size, precision, max_trials)
    study = LocosStudy(size, name, {"tuned_lens": str(tuned_lens) if tuned_lens else None})
    return conduct(study, models, out, command, plan, loading)[0]


class LocosStudy(Study[Preset, LocosFinding]):
    """The LOCOS study for the runner."""

    name = "locos"

    def one(self, model: Model, run: StageRun) -> LocosFinding:
        plan, shape, folder = self.plan, head_geometry(model), run.folder
        select, test = plan.trials(plan.select), plan.tested()
        scores = run.stage("detection", stages.detect, model, select, plan, folder, self.extra["tuned_lens"])
        tables.show(tables.top_heads(scores, 3, f"{shape.name}: top heads by method"))
        setup = stages.LocosSetup(model, plan, select, test, folder)
        question = run.stage("question", asked, model, select, folder / "question")
        choice = run.stage("choice", stages.chosen, setup, scores)
        k = plan.fixed_k(shape.n_layers * shape.n_heads) or smallest_k(choice, LEAD)
        baseline = best_baseline(choice, k)
        scores |= run.stage("rivals", stages.rivals, setup, scores) if plan.rivals else {}
        headline = run.stage("headline", stages.headline, setup, scores, k, baseline)
        curve = run.stage("ablation", stages.curve, setup, scores, k)
        tables.show(tables.curve(curve, "logprob"))
        texts = run.stage("texts", stages.judged_texts, setup, scores, k)
        cri = run.stage("patching", stages.patched, setup, texts[TASK]) if plan.cri_trials else None
        mended = run.stage("recovery", stages.mended, setup, scores[LEAD], k) if plan.recovery_trials else None
        read, literal = run.stage("reading", stages.read, setup, scores) if plan.read_heads else ({}, None)
        frames = {
            **stages.agreement(model, scores, measured(cri), k),
            "choice": choice.frame,
            "headline": together({task: one.frame for task, one in headline.items()}),
            "ablation": curve.frame,
            "texts": together({task: one.frame for task, one in texts.items()}),
            "differences": curve.differences("logprob", lead=LEAD),
            **read,
        }
        trials = {"ablation_trials": curve.per_trial, "choice_trials": choice.per_trial}
        trials["headline_trials"] = together({task: one.per_trial for task, one in headline.items()})
        trials["texts_trials"] = together({task: one.per_trial for task, one in texts.items()})
        if mended is not None and not isinstance(mended, str):
            frames["recovery"], trials["recovery_examples"] = (mended.frame, mended.per_example)
        found = LocosFinding(
            model=shape.name,
            frames=frames,
            trials=trials,
            k=k,
            baseline=baseline,
            scores=scores,
            headline=headline,
            curve=curve,
            texts=texts,
            questions={trial.id: trial.question for trial in test},
            question=question,
            cri=cri,
            literal=literal,
            recovered=mended,
        )
        if not isinstance(question, str):
            frames["question"] = question.frame
        tables.show(tables.plain(f"{shape.name}: {meaning(found.question)}"))
        frames["claims"] = claims(found, plan.described())
        every_head = [ranked(name, one).assign(method=name) for name, one in found.ranked.items()]
        trials["scores"] = pd.concat(every_head, ignore_index=True)
        return found

    def seen(self, found: LocosFinding) -> Seen:
        names = dict.fromkeys((LEAD, f"{LEAD}_exact", found.baseline, "attention_spatial"))
        return Seen(
            self.plan.tested(), {name: found.scores[name] for name in names if name in found.scores}, found.curve
        )

    def registered(self) -> pd.DataFrame:
        return registered(self.plan)

    def costs(self, model: Model) -> dict[str, int]:
        return costs(self.plan, head_geometry(model))

    def probe(self) -> list[Trial]:
        return self.plan.trials(self.plan.test)[:4]

    def page(self, findings: Sequence[LocosFinding], pairs: Sequence[Any]) -> report.Page:
        return page(findings, self.plan)


def together(frames: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """The tables of all tasks as one, each of which names its task."""
    return pd.concat(frames.values(), ignore_index=True)
