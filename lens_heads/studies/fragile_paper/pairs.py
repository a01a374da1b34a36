"""The stages of the study of fragile tasks on two models: do the same tasks break, and which heads correspond?"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from lens_heads import compare
from lens_heads.heads.scores import HeadScores
from lens_heads.model.geometry import Model
from lens_heads.runs.digests import digest
from lens_heads.studies.fragile_paper.finding import ALL, FragileFinding
from lens_heads.studies.fragile_paper.presets import Preset
from lens_heads.studies.fragile_paper.stages import by_metric, of_tasks
from lens_heads.trials.trial import Trial

CORRELATED: dict[str, tuple[str, dict[str, Any]]] = {
    "fragility": ("fragility", {}),
    "fragility, other tasks' heads": ("fragility", {"diagonal": False}),
    "fragility, relative": ("fragility", {"relative": True}),
    "disruptivity": ("disruptivity", {}),
    "disruptivity, relative": ("disruptivity", {"relative": True}),
}
"""Which statistics are correlated across models, and how they are computed."""


def correlation_tables(correlations: dict[str, compare.Correlation]) -> dict[str, pd.DataFrame]:
    """R² with its interval, p-values and noise ceiling, one row per statistic; and the points behind every correlation."""
    rows, points = [], []
    for label, found in correlations.items():
        low, high = found.interval or (math.nan, math.nan)
        row = {"statistic": label, "r2": found.r2, "low": low, "high": high, "r": found.r, "p": found.p}
        row |= {"naive_p": found.naive_p, "noise_ceiling_r2": found.noise_ceiling_r2, "points": len(found.points)}
        rows.append(row)
        points.append(found.points.assign(statistic=label))
    none = pd.DataFrame({"statistic": []})
    return {"correlations": pd.DataFrame(rows), "points": pd.concat(points or [none], ignore_index=True)}


def correlated(
    a: FragileFinding, b: FragileFinding, plan: Preset
) -> tuple[dict[str, compare.Correlation], dict[str, str]]:
    """Correlations across models by metric and statistic ("logprob: fragility"), and why others could not be computed.

    Items that both models were asked are resampled together.
    """
    found, reasons = {}, {}
    theirs = by_metric(b.matrix, plan)
    for metric, mine in by_metric(a.matrix, plan).items():
        other = theirs[metric]
        for label, (name, options) in CORRELATED.items():
            if options.get("relative") and metric == "logprob":
                continue
            try:
                same = all(mine.items(task) == other.items(task) for task in mine.targets if task in other.targets)
                correlation = compare.correlate(mine, other, statistic=name, paired_items=same, **options)
                found[f"{metric}: {label}"] = correlation
            except ValueError as error:
                reasons[f"{metric}: {label}"] = str(error)
    return found, reasons


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
) -> compare.HeadMatch:
    """Match heads by all features, or without scores; computed once per folder."""
    if (folder / "match.json").exists():
        return compare.HeadMatch.load(folder)
    texts = compare.common_texts(plan.match_texts)
    match = compare.match_heads(*models, scores=scores, texts=texts, resamples=50, permutations=200)
    match.save(folder)
    return match


def validated(
    match: compare.HeadMatch,
    models: tuple[Model, Model],
    a: FragileFinding,
    tests: Mapping[str, Sequence[Trial]],
    plan: Preset,
    folder: Path,
) -> compare.MatchValidation:
    """Ablate a's top heads over all tasks, and their partners in b."""
    groups = {f"{plan.lead}, {ALL}": a.scores[plan.lead][ALL]}
    k, out = a.size_for(plan.matched_k), folder / "validation"
    return compare.validate_match(
        match, *models, tests, groups=groups, k=k, kind=plan.kind, batch_size=plan.batch_size, out=out
    )


def depth(a: FragileFinding, b: FragileFinding, plan: Preset) -> pd.DataFrame:
    """Whether the top heads of each task sit at the same relative depth in both models."""
    rows = []
    bins = min(10, *(each.scores[plan.lead][ALL].n_layers for each in (a, b)))
    k_a, k_b = (each.size_for(plan.matched_k) for each in (a, b))
    for task, mine in a.scores[plan.lead].items():
        found = compare.overlap_by_depth(mine, b.scores[plan.lead][task], k_a, k_b=k_b, bins=bins)
        row = {"task": task, "k_a": found.k_a, "k_b": found.k_b, "overlap": found.overlap, "expected": found.expected}
        rows.append(row | {"p_value": found.p_value, "spearman": found.spearman})
    return pd.DataFrame(rows)
