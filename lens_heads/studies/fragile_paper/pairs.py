"""The stages on two models: do the same tasks break, and which head of one is which of the other?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pandas as pd

from lens_heads import compare
from lens_heads.heads.scores import HeadScores
from lens_heads.model.geometry import Model
from lens_heads.runs.store import digest
from lens_heads.studies.fragile_paper.finding import ALL, FragileFinding, correlation_frame
from lens_heads.studies.fragile_paper.presets import Preset
from lens_heads.studies.fragile_paper.stages import by_metric, correlations
from lens_heads.trials.trial import Trial


def frames(
    names: tuple[str, str],
    found: dict[str, compare.Correlation],
    match: compare.HeadMatch,
    validation: compare.MatchValidation,
) -> dict[str, pd.DataFrame]:
    """Every number as a table."""
    points = [one.points.assign(statistic=label) for label, one in found.items()]
    return {
        "correlations": correlation_frame(found),
        "points": pd.concat(points, ignore_index=True) if points else pd.DataFrame({"statistic": []}),
        "matched_heads": match.pairs,
        "validation": validation.frame,
        "validation_correlation": validation.correlation,
    }


def correlated(
    a: FragileFinding, b: FragileFinding, plan: Preset
) -> tuple[dict[str, compare.Correlation], dict[str, str]]:
    """In every metric: "logprob: fragility", ..."""
    found: dict[str, compare.Correlation] = {}
    reasons: dict[str, str] = {}
    theirs = by_metric(b.matrix, plan)
    for metric, mine in by_metric(a.matrix, plan).items():
        done, failed = correlations(mine, theirs[metric])
        found |= {f"{metric}: {label}": each for label, each in done.items()}
        reasons |= {f"{metric}: {label}": reason for label, reason in failed.items()}
    return found, reasons


def chosen(each: FragileFinding) -> str:
    """What the scores are, in short."""
    return digest(
        [[method, task, found.values.tolist()] for method, t in each.scores.items() for task, found in t.items()]
    )


def named(a: FragileFinding, b: FragileFinding) -> tuple[dict[str, HeadScores], dict[str, HeadScores]]:
    """The scores of both by method and task."""
    mine, other = (
        {
            f"{method} {task}": found
            for method, by_task in each.scores.items()
            for task, found in by_task.items()
            if task != ALL
        }
        for each in (a, b)
    )
    return mine, other


def matched(
    models: tuple[Model, Model],
    scores: tuple[dict[str, HeadScores], dict[str, HeadScores]] | None,
    plan: Preset,
    folder: Path,
) -> compare.HeadMatch:
    """By everything there is, or all but scores; read from the folder when it is there."""
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
    """The best heads of all tasks in a, and their partners in b."""
    size = next((size for size, k in a.sizes.items() if k >= plan.matched_k), max(a.sizes))
    groups = {f"{plan.lead}, {ALL}": a.scores[plan.lead][ALL]}
    options = {"k": size, "kind": plan.kind, "batch_size": plan.batch_size, "out": folder / "validation"}
    return compare.validate_match(match, *models, tests, groups=groups, **options)  # type: ignore[arg-type]  # run options


def depth(a: FragileFinding, b: FragileFinding, plan: Preset) -> pd.DataFrame:
    """Where the best heads of every task sit in either model, by relative depth."""
    rows = []
    bins = min(10, *(each.scores[plan.lead][ALL].n_layers for each in (a, b)))
    tops = [next((size for size, k in each.sizes.items() if k >= plan.matched_k), max(each.sizes)) for each in (a, b)]
    for task, mine in a.scores[plan.lead].items():
        found = compare.overlap_by_depth(mine, b.scores[plan.lead][task], tops[0], k_b=tops[1], bins=bins)
        row = {"task": task, "k_a": found.k_a, "k_b": found.k_b, "overlap": found.overlap, "expected": found.expected}
        rows.append(row | {"p_value": found.p_value, "spearman": found.spearman})
    return pd.DataFrame(rows)
