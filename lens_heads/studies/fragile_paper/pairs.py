"""Two models beside each other: do the same tasks break, and which head of one is which of the other?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
from rich.console import Console

from lens_heads import compare
from lens_heads.heads.scores import HeadScores
from lens_heads.model.geometry import Model
from lens_heads.runs.store import RunFolder, digest
from lens_heads.studies.fragile_paper.presets import Preset
from lens_heads.studies.fragile_paper.stages import ALL, by_metric, correlations
from lens_heads.studies.running import Clock, records, save_tables
from lens_heads.trials.trial import Trial

if TYPE_CHECKING:
    from lens_heads.studies.fragile_paper.study import Finding


@dataclass(frozen=True, eq=False)
class Pair:
    """What the study found of two models.

    `correlations` by metric and statistic, of the tables that vary; `reasons` why others have none. `match`: a's heads to
    b's, by depth, patterns on common texts, scores of all tasks and CKA. `validation` ablates the best heads of a and their
    partners in b by a match that knows no scores (`blind`): by scores, partners of good heads would be good heads anyway.
    """

    names: tuple[str, str]
    correlations: dict[str, compare.Correlation]
    reasons: dict[str, str]
    match: compare.HeadMatch
    blind: compare.HeadMatch
    validation: compare.MatchValidation
    depth: pd.DataFrame
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def correlation_frame(self) -> pd.DataFrame:
        """One row per statistic: R^2 with its interval, permutation p, the naive p, noise ceiling."""
        rows = []
        for label, found in self.correlations.items():
            low, high = found.interval or (float("nan"), float("nan"))
            row = {"statistic": label, "r2": found.r2, "low": low, "high": high, "r": found.r, "p": found.p}
            row |= {"naive_p": found.naive_p, "noise_ceiling_r2": found.noise_ceiling_r2, "points": len(found.points)}
            rows.append(row)
        return pd.DataFrame(rows)

    def frames(self) -> dict[str, pd.DataFrame]:
        """Every number as a table."""
        points = [found.points.assign(statistic=label) for label, found in self.correlations.items()]
        return {
            "correlations": self.correlation_frame,
            "points": pd.concat(points, ignore_index=True) if points else pd.DataFrame({"statistic": []}),
            "matched_heads": self.match.pairs,
            "validation": self.validation.frame,
            "validation_correlation": self.validation.correlation,
            "depth": self.depth,
        }

    def summary(self) -> dict[str, Any]:
        """For JSON."""
        match = {
            name: {"mean_distance": one.mean_distance, "chance": one.chance, "p": one.p, "pairs": len(one.pairs)}
            | {"mean_stability": float(one.pairs["stability"].mean())}
            for name, one in (("with scores", self.match), ("without scores", self.blind))
        }
        frames = {name: records(frame) for name, frame in self.frames().items() if name != "points"}
        seconds = {stage: round(spent, 1) for stage, spent in self.seconds.items()}
        return {"models": self.names, "match": match, "reasons": self.reasons, "seconds": seconds, **frames}


def beside(
    model_a: Model,
    model_b: Model,
    a: Finding,
    b: Finding,
    tests: Mapping[str, Sequence[Trial]],
    plan: Preset,
    out: Path,
    console: Console,
) -> Pair:
    """Correlation of what breaks, correspondence of heads, and whether corresponding heads break the same tasks."""
    folder = out / f"{a.name}--{b.name}"
    settings = {each.model: [each.settings["weights"], _chosen(each)] for each in (a, b)}
    RunFolder(folder, {"models": settings, "preset": a.settings["preset"]})
    clock = Clock(console, folder)
    found, reasons = clock("correlation", lambda: _correlated(a, b, plan))
    match = clock("correspondence", lambda: _match(model_a, model_b, _named(a, b), plan, folder / "match"))
    blind = clock("correspondence without scores", lambda: _match(model_a, model_b, None, plan, folder / "blind"))
    validation = clock("validation", lambda: _validated(blind, model_a, model_b, a, tests, plan, folder))
    pair = Pair((a.model, b.model), found, reasons, match, blind, validation, _depth(a, b, plan), clock.spent)
    save_tables(pair.frames(), folder / "tables")
    return pair


def _correlated(a: Finding, b: Finding, plan: Preset) -> tuple[dict[str, compare.Correlation], dict[str, str]]:
    """In every metric: "logprob: fragility", ..."""
    found: dict[str, compare.Correlation] = {}
    reasons: dict[str, str] = {}
    theirs = by_metric(b.matrix, plan)
    for metric, mine in by_metric(a.matrix, plan).items():
        done, failed = correlations(mine, theirs[metric])
        found |= {f"{metric}: {label}": each for label, each in done.items()}
        reasons |= {f"{metric}: {label}": reason for label, reason in failed.items()}
    return found, reasons


def _chosen(each: Finding) -> str:
    """What the scores are, in short."""
    return digest(
        [[method, task, found.values.tolist()] for method, t in each.scores.items() for task, found in t.items()]
    )


def _named(a: Finding, b: Finding) -> tuple[dict[str, HeadScores], dict[str, HeadScores]]:
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


def _match(
    model_a: Model,
    model_b: Model,
    scores: tuple[dict[str, HeadScores], dict[str, HeadScores]] | None,
    plan: Preset,
    folder: Path,
) -> compare.HeadMatch:
    """By everything there is, or all but scores; read from the folder when it is there."""
    if (folder / "match.json").exists():
        return compare.HeadMatch.load(folder)
    match = compare.match_heads(
        model_a,
        model_b,
        scores=scores,
        texts=compare.common_texts(plan.match_texts),
        resamples=50,
        permutations=200,
    )
    match.save(folder)
    return match


def _validated(
    match: compare.HeadMatch,
    model_a: Model,
    model_b: Model,
    a: Finding,
    tests: Mapping[str, Sequence[Trial]],
    plan: Preset,
    folder: Path,
) -> compare.MatchValidation:
    """The best heads of all tasks in a, and their partners in b; read from the folder when it is there."""
    if (folder / "validation.json").exists():
        return compare.MatchValidation.load(folder)
    size = next((size for size, k in a.sizes.items() if k >= plan.matched_k), max(a.sizes))
    found = compare.validate_match(
        match,
        model_a,
        model_b,
        tests,
        groups={f"{plan.lead}, {ALL}": a.scores[plan.lead][ALL]},
        k=size,
        kind=plan.kind,
        batch_size=plan.batch_size,
    )
    found.save(folder)
    return found


def _depth(a: Finding, b: Finding, plan: Preset) -> pd.DataFrame:
    """Where the best heads of every task sit in either model, by relative depth."""
    rows = []
    bins = min(10, *(each.scores[plan.lead][ALL].n_layers for each in (a, b)))
    tops = [next((size for size, k in each.sizes.items() if k >= plan.matched_k), max(each.sizes)) for each in (a, b)]
    for task, mine in a.scores[plan.lead].items():
        found = compare.overlap_by_depth(mine, b.scores[plan.lead][task], tops[0], k_b=tops[1], bins=bins)
        row = {"task": task, "k_a": found.k_a, "k_b": found.k_b, "overlap": found.overlap, "expected": found.expected}
        rows.append(row | {"p_value": found.p_value, "spearman": found.spearman})
    return pd.DataFrame(rows)
