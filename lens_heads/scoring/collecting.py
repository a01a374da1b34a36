"""Per-trial scores of a pass, checked, stacked and saved as one HeadScores a method."""

from __future__ import annotations

import warnings
from collections import Counter
from typing import Any

import torch
from torch import Tensor

from lens_heads.heads.made_on import MadeOn
from lens_heads.heads.scores import HeadScores
from lens_heads.runs.identity import ModelIdentity
from lens_heads.runs.store import Result, RunFolder, code_of, digest
from lens_heads.scoring.scorers import DOCUMENT_SCORERS, SCORERS, Scorer


def finite(trial: str, scores: dict[str, Tensor], record: dict[str, Any]) -> Result:
    """One trial's scores as a result to be stored. ValueError for NaN or infinity."""
    bad = [name for name, score in scores.items() if not torch.isfinite(score).all()]
    if bad:
        raise ValueError(f"trial {trial}: {', '.join(bad)} is not finite: load the model in float32 or bfloat16")
    return Result(scores, record)


def method_identity(scorer: Scorer) -> str:
    """A method as a run folder knows it: the name, and for one's own scorers also what it does."""
    if {**SCORERS, **DOCUMENT_SCORERS}.get(scorer.name) is scorer:
        return scorer.name
    return f"{scorer.name} ({digest([code_of(scorer.score), scorer.rows, scorer.gated])})"


def collect(
    made_on: tuple[MadeOn, ...],
    results: list[Result],
    scorers: list[Scorer],
    model: ModelIdentity,
    settings: dict[str, Any],
    folder: RunFolder | None,
) -> dict[str, HeadScores]:
    """Per-trial scores stacked per method, with the outcome of every trial in the meta; saved."""
    outcomes = dict(Counter(result.record["outcome"] for result in results))
    listed = [{"id": trial.id, **result.record} for trial, result in zip(made_on, results, strict=True)]
    shown = {name: value for name, value in settings.items() if name != "methods"}
    scores: dict[str, HeadScores] = {}
    for scorer in scorers:
        kept = {
            trial.id: result.arrays[scorer.name]
            for trial, result in zip(made_on, results, strict=True)
            if scorer.name in result.arrays
        }
        if kept:
            meta = {**shown, "paper": scorer.paper, "outcomes": outcomes, "trials": listed}
            meta |= {"rule": scorer.rule} if scorer.rule else {}
            about: dict[str, Any] = {"signed": scorer.signed, "model": model, "made_on": made_on}
            stacked = torch.stack([*kept.values()])
            scores[scorer.name] = HeadScores.from_trials(scorer.name, stacked, [*kept], meta, **about)
            if folder is not None:
                scores[scorer.name].save(folder.path / f"{scorer.name}.json")
    _check_any(scorers, scores, outcomes, len(made_on))
    return scores


def _check_any(scorers: list[Scorer], scores: dict[str, HeadScores], outcomes: dict[str, int], trials: int) -> None:
    """ValueError when no trial counts for any method; a warning when none does for some."""
    missing = [scorer.name for scorer in scorers if scorer.name not in scores]
    summary = ", ".join(f"{count} {outcome}" for outcome, count in outcomes.items())
    if missing and scores:
        warnings.warn(f"no trial counts for {', '.join(missing)} ({summary}): left out of the result", stacklevel=4)
    elif missing and missing == [scorer.name for scorer in scorers if scorer.contrastive]:
        raise ValueError(
            f"{', '.join(missing)} compares gold documents with others, and all are gold: add documents, or use qr"
        )
    elif missing:
        raise ValueError(
            f"no trial counts for {', '.join(missing)}: of {trials} trials {summary}; use easier trials (a shorter "
            "context_length, question='direct'), or teacher_forced=True, which has no gate"
        )
