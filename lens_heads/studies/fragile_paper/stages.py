"""The stages of the study of fragile tasks: what is measured in a model, and of two models together."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd

from lens_heads import compare
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
from lens_heads.heads.matching import HeadMatch
from lens_heads.heads.scores import HeadScores
from lens_heads.model.geometry import Model, head_geometry
from lens_heads.ranking.one_pass.common_texts import common_texts
from lens_heads.ranking.one_pass.score_heads import score_heads
from lens_heads.runs.digests import digest
from lens_heads.stats.intervals import NOTHING
from lens_heads.studies.fragile_paper.claims import (
    FragileFinding,
    Preset,
    TaskRankings,
    by_metric,
)
from lens_heads.studies.fragile_paper.sources import ALL, FORMATS, METRIC, SUBJECTS
from lens_heads.studies.presets import in_turn
from lens_heads.trials.checked_tokens import encode_all
from lens_heads.trials.documents import DocumentTrial
from lens_heads.trials.trial import AnyTrial

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
        return shape.size

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
