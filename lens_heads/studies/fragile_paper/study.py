"""Different heads, same fragile tasks? Detection, transfer and recovery in each model, a comparison of each pair, the page.

`fragile_tasks` runs it. Stages are functions whose results are stored.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Unpack

import pandas as pd

from lens_heads import compare, plots, report
from lens_heads.evidence.correlation import correlate
from lens_heads.evidence.correlation_results import Correlation
from lens_heads.evidence.curve import ablation_curve
from lens_heads.evidence.curve_results import AblationCurve
from lens_heads.evidence.recovery import recovery
from lens_heads.evidence.recovery_results import NothingFlipped
from lens_heads.evidence.transfer import transfer_matrix
from lens_heads.evidence.transfer_results import TransferMatrix
from lens_heads.evidence.validation import MatchValidation, validate_match
from lens_heads.heads.controls import Controls
from lens_heads.heads.geometry import HeadGeometry
from lens_heads.heads.matching import HeadMatch
from lens_heads.heads.scores import HeadScores
from lens_heads.model.geometry import Model, head_geometry
from lens_heads.ranking.one_pass.common_texts import common_texts
from lens_heads.ranking.one_pass.score_heads import score_heads
from lens_heads.report import tables
from lens_heads.runs.digests import digest
from lens_heads.runs.typed import typed
from lens_heads.sanity.answers import permuted_answers
from lens_heads.stats.intervals import NOTHING
from lens_heads.studies.claims import Claim, published
from lens_heads.studies.finding import ASKED, asked, meaning
from lens_heads.studies.fragile_paper.claims import (
    ALL,
    FORMATS,
    METRIC,
    OTHERS,
    PRESETS,
    SUBJECTS,
    FragileFinding,
    Pair,
    Preset,
    TaskRankings,
    by_metric,
    claims_of_pair,
    judged,
    on_reports,
    split_by_task,
    words,
)
from lens_heads.studies.pages import Shown, bars, claims_table, counted, table
from lens_heads.studies.presets import described, in_turn, sized
from lens_heads.studies.runner import MODELS, Models, PresetOf, StageRun, Study, StudyOptions, conduct
from lens_heads.studies.seen import Seen
from lens_heads.tasks.sec10k import sec10k, sec10k_documents
from lens_heads.trials.checked_tokens import encode_all
from lens_heads.trials.documents import DocumentTrial
from lens_heads.trials.exchanges import exchanged_needles
from lens_heads.trials.trial import AnyTrial, Trial

RESTORED = ("random", "random_like")
"""The controls of recovery."""


@dataclass(frozen=True, eq=False)
class FragileSetup:
    """What the stages share: the model, the preset, the trials by task, and the model's folder."""

    model: Model
    plan: Preset
    documents: Mapping[str, Sequence[DocumentTrial]]
    tests: Mapping[str, Sequence[AnyTrial]]
    out: Path

    @property
    def sizes(self) -> dict[int, int]:
        """Numbers of heads in this model, with the k of the preset that each stands for."""
        return self.plan.sizes(self.heads)

    @property
    def headline(self) -> int:
        """The number of heads that claims are judged at."""
        return self.plan.size(self.plan.headline_k, self.heads)

    @property
    def heads(self) -> int:
        """How many heads the model has."""
        shape = head_geometry(self.model)
        return shape.n_layers * shape.n_heads

    @property
    def mixed(self) -> list[AnyTrial]:
        """The trials of all tasks in turn, so that the first few have as many of every task."""
        return in_turn(self.tests)

    @property
    def ablating(self) -> dict[str, Any]:
        """Options that every ablation of all trials has."""
        plan = self.plan
        names = ("kind", "generate", "max_new_tokens", "batch_size")
        return {name: getattr(plan, name) for name in names}


def detect(setup: FragileSetup) -> TaskRankings:
    """Score every head by every method, on each task's documents and on all of them."""
    methods = setup.plan.methods
    by_task = {
        task: score_heads(setup.model, trials, methods, out=setup.out / "scores" / task)
        for task, trials in setup.documents.items()
    }
    found = {method: {task: scores[method] for task, scores in by_task.items()} for method in methods}
    return {method: {**scores, ALL: compare.pool_scores(scores)} for method, scores in found.items()}


def of_tasks(scores: Mapping[str, HeadScores]) -> dict[str, HeadScores]:
    """The scores of single tasks."""
    return {task: found for task, found in scores.items() if task != ALL}


def transfer(setup: FragileSetup, scores: Mapping[str, HeadScores]) -> TransferMatrix:
    """Ablate every task's heads on every task. The matrix names numbers of heads by the k that they stand for."""
    sizes = setup.sizes
    found = transfer_matrix(
        setup.model,
        setup.tests,
        of_tasks(scores),
        ks=list(sizes),
        controls=Controls("random", setup.plan.random_draws),
        metric=METRIC,
        out=setup.out / "transfer",
        **setup.ablating,
    )
    assert found.per_trial is not None
    rows = found.per_trial.assign(k=found.per_trial["k"].map({0: 0, **sizes}))
    ablated = {str(k): size for size, k in sizes.items()}
    return replace(
        found, per_trial=rows, meta=found.meta | {"model": head_geometry(setup.model).name, "heads_ablated": ablated}
    )


def headline(setup: FragileSetup, scores: TaskRankings) -> AblationCurve:
    """Ablate the heads of the pooled and of the foreign ranking, and many random sets, on the trials of all tasks."""
    plan, trials = setup.plan, setup.mixed
    rankings = {ALL: scores[plan.lead][ALL]} | {f"{name}, {ALL}": scores[name][ALL] for name in plan.foreign}
    return ablation_curve(
        setup.model,
        {ALL: trials},
        rankings,
        ks=[setup.headline],
        controls=Controls(
            ("random", "random_like") if plan.layer_matched else ("random",),
            draws=plan.random_sets,
            trials=plan.random_trials,
        ),
        precision=plan.stops(len(trials)),
        out=setup.out / "headline",
        **setup.ablating,
    )


def mended(setup: FragileSetup, scores: Mapping[str, HeadScores]) -> pd.DataFrame:
    """Recovery of each task's own heads: `Recovery.per_trial` of every k and task with a trial to restore, by k and task."""
    plan, rows = setup.plan, []
    room = {"max_new_tokens": plan.max_new_tokens} if plan.flipped else {}
    how = {"fair": plan.fair, "flipped": plan.flipped, "kind": plan.kind, **room}
    for size, k in setup.sizes.items():
        for task, trials in setup.tests.items():
            heads, folder = scores[task].top(size), setup.out / "recovery" / f"{task}-{size}"
            controls, few = Controls(RESTORED, plan.recovery_draws), trials[: plan.recovery_trials]
            options = {"controls": controls, "ranking": scores[task], "out": folder, **how}
            try:
                found = recovery(setup.model, few, heads, heads, **options)
            except NothingFlipped:
                continue
            rows.append(found.per_trial.assign(k=k, task=task))
    return pd.concat(rows, ignore_index=True) if rows else pd.DataFrame({"k": [], "task": [], "set": []})


def about_tasks(setup: FragileSetup, matrix: TransferMatrix) -> pd.DataFrame:
    """One row per task: answer format, subject, log-probability without ablation, and tokens of its answers (mean)."""
    shape, rows = head_geometry(setup.model), []
    for task, base in zip(matrix.targets, matrix.cells.base, strict=True):
        encoded = encode_all(setup.tests[task], setup.model.tokenizer, shape.n_ctx)
        length = sum(len(trial.answer_tokens) for trial in encoded) / len(encoded)
        row = {"task": task, "format": FORMATS[task], "subject": SUBJECTS[task], "unablated": float(base)}
        rows.append(row | {"answer_tokens": length})
    return pd.DataFrame(rows)


def shared_heads(setup: FragileSetup, scores: Mapping[str, HeadScores]) -> pd.DataFrame:
    """How many top heads every two tasks share, compared with chance, at every k."""
    rankings = of_tasks(scores)
    frames = [compare.head_overlaps(rankings, k=size).assign(for_k=k) for size, k in setup.sizes.items() if size > 1]
    return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame({"for_k": []})


JUDGED = ("fragility beyond random", "disruptivity beyond random")
"""The correlations that claims are about; the raw ones stand beside them."""
DRAWS = 3
"""Random sets of heads in the validation of a match."""
COVARIATES = {"log-probability without ablation": "unablated", "answer length": "answer_tokens"}


def correlation_tables(correlations: dict[str, Correlation]) -> dict[str, pd.DataFrame]:
    """Every way to correlate each statistic, one row each; and the points behind every correlation.

    R² has an interval over items, and a noise ceiling, where tasks count alike; not where a statistic of both matrices is needed.
    """
    rows, points = [pd.DataFrame({"statistic": []})], [pd.DataFrame({"statistic": []})]
    for label, found in correlations.items():
        _, low, high = found.interval or NOTHING
        ceiling = math.nan if found.noise_ceiling_r2 is None else found.noise_ceiling_r2
        alike = {"low": low, "high": high, "noise_ceiling_r2": ceiling}
        frame = found.frame
        frame.insert(0, "statistic", label)
        for name, value in alike.items():
            frame[name] = [value if how == "tasks alike" else math.nan for how in frame["how"]]
        rows.append(frame)
        points.append(found.points.assign(statistic=label))
    return {
        name: pd.concat(each[1:] or each, ignore_index=True)
        for name, each in (("correlations", rows), ("points", points))
    }


def correlated(a: FragileFinding, b: FragileFinding, plan: Preset) -> tuple[dict[str, Correlation], dict[str, str]]:
    """Correlations across models by metric and statistic ("logprob: fragility"), and why others could not be computed.

    Tasks are permuted inside answer formats. Items that both models were asked are resampled together.
    """
    found, reasons = {}, {}
    # What could make tasks fragile in both models besides their heads.
    of_a, of_b = (each.frames["tasks"].set_index("task") for each in (a, b))
    covariates = {name: (of_a[column], of_b[column]) for name, column in COVARIATES.items()}
    theirs = by_metric(b.matrix, plan)
    for metric, mine in by_metric(a.matrix, plan).items():
        other = theirs[metric]
        same = all(mine.items(task) == other.items(task) for task in mine.targets if task in other.targets)
        options = {"strata": FORMATS, "covariates": covariates, "names": (a.model, b.model)}
        of_matrices = {**options, "paired_items": same}
        frames = [_disruptivity_beyond_random(each) for each in (mine, other)]
        ways = {
            JUDGED[0]: (mine, other, "beyond_random", of_matrices),
            JUDGED[1]: (*frames, JUDGED[1], options),
            "fragility": (mine, other, "fragility", of_matrices),
            "disruptivity": (mine, other, "disruptivity", of_matrices),
        }
        for label, (x, y, name, how) in ways.items():
            try:
                found[f"{metric}: {label}"] = correlate(x, y, statistic=name, **how)
            except ValueError as error:
                reasons[f"{metric}: {label}"] = str(error)
    return found, reasons


def _disruptivity_beyond_random(matrix: TransferMatrix) -> pd.DataFrame:
    """What a task's heads cost the other tasks, less what random heads cost those."""
    disruptivity, random = matrix.disruptivity(), matrix.statistic("random")
    others = random[disruptivity.columns].rsub(random.sum(axis=1), axis=0) / (len(random.columns) - 1)
    return disruptivity - others


def scores_digest(each: FragileFinding) -> str:
    """A short hash of all scores."""
    return digest(
        [[method, task, found.values.tolist()] for method, t in each.scores.items() for task, found in t.items()]
    )


def by_name(each: FragileFinding) -> dict[str, HeadScores]:
    """The scores by method and task."""
    return {
        f"{method} {task}": found
        for method, by_task in each.scores.items()
        for task, found in of_tasks(by_task).items()
    }


def matched(
    models: tuple[Model, Model],
    scores: tuple[dict[str, HeadScores], dict[str, HeadScores]] | None,
    plan: Preset,
    folder: Path,
) -> HeadMatch:
    """Match heads by all features, or without scores; computed once per folder."""
    if (folder / "match.json").exists():
        return HeadMatch.load(folder)
    texts = common_texts(n=plan.match_texts)
    match = compare.match_heads(*models, rankings=scores, texts=texts, resamples=50, permutations=200)
    match.save(folder)
    return match


def validated(
    match: HeadMatch,
    models: tuple[Model, Model],
    a: FragileFinding,
    tests: Mapping[str, Sequence[AnyTrial]],
    plan: Preset,
    folder: Path,
) -> MatchValidation:
    """Ablate a's top heads over all tasks, and their partners in b."""
    groups, controls = {f"{plan.lead}, {ALL}": a.scores[plan.lead][ALL]}, Controls("random_like", DRAWS)
    how: dict[str, Any] = {"kind": plan.kind, "controls": controls, "batch_size": plan.batch_size}
    return validate_match(match, *models, tests, groups=groups, k=a.headline, out=folder / "validation", **how)


def depth(a: FragileFinding, b: FragileFinding, plan: Preset) -> pd.DataFrame:
    """Whether the top heads of each task sit at the same relative depth in both models."""
    rows = []
    bins = min(10, *(each.scores[plan.lead][ALL].n_layers for each in (a, b)))
    k_a, k_b = a.headline, b.headline
    for task, mine in a.scores[plan.lead].items():
        found = compare.overlap_by_depth(mine, b.scores[plan.lead][task], k=k_a, k_b=k_b, bins=bins)
        row = {"task": task, "k_a": found.k_a, "k_b": found.k_b, "overlap": found.overlap, "expected": found.expected}
        rows.append(row | {"p_value": found.p_value, "spearman": found.spearman})
    return pd.DataFrame(rows)


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
        """Trials of the companies that heads are detected on, of every task in turn: do they need their question?"""
        by_task = self.plan.by_task(sec10k, self.plan.trials, "select")
        return in_turn(by_task)[:ASKED]

    def claims(self) -> list[Claim]:
        whole = published(__name__)
        return [*whole["model"], *whole["pair"]]

    def words(self) -> dict[str, Any]:
        return {"plan": self.plan, **words(self.plan)}

    def costs(self, shape: HeadGeometry) -> dict[str, int]:
        """As the runner asks; sets of heads that agree by chance run once. `validation` is of a pair's second model."""
        plan, tasks = self.plan, len(self.plan.tasks)
        trials, sizes = sum(map(len, self.tests.values())), len(plan.sizes(shape.n_layers * shape.n_heads))
        recovered = sum(len(each[: plan.recovery_trials]) for each in self.tests.values())
        random = (1 + plan.layer_matched) * plan.random_sets * min(plan.random_trials, trials)
        controls = len(RESTORED) * plan.recovery_draws if plan.fair else 0
        return {
            "detection": sum(map(len, self.documents.values())),
            "question": 3 * len(self.selected),
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
        scores = run.stage("detection", detect, setup)
        lead = scores[plan.lead]
        question = run.stage("question", asked, model, self.selected, run.folder / "question")
        tables.show(tables.plain(f"{name}: {meaning(question)}"))
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
            "question": " ".join(f"{each.model}: {meaning(each.question)}" for each in findings),
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
