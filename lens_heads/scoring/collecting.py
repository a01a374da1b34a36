"""Per-trial scores of a pass, checked, stacked and saved as one HeadScores a method."""

from __future__ import annotations

import warnings
from collections import Counter
from typing import Any

import torch
from torch import Tensor

from lens_heads.heads.scores import HeadScores
from lens_heads.runs.store import Result, RunFolder, code_of, digest
from lens_heads.scoring.scorers import DOCUMENT_SCORERS, SCORERS, Scorer


def finite(trial: str, scores: dict[str, Tensor], record: dict[str, Any]) -> Result:
    """One trial's scores as a result to be stored. ValueError for NaN or infinity."""
    bad = [name for name, score in scores.items() if not torch.isfinite(score).all()]
    if bad:
        raise ValueError(f"trial {trial}: {', '.join(bad)} is not finite: load the model in float32 or bfloat16")
    return Result(scores, record)


def identity(scorer: Scorer) -> str:
    """A method as a run folder knows it: the name, and for one's own scorers also what it does."""
    if {**SCORERS, **DOCUMENT_SCORERS}.get(scorer.name) is scorer:
        return scorer.name
    return f"{scorer.name} ({digest([code_of(scorer.score), scorer.rows, scorer.gated])})"


def collect(
    about: list[dict[str, Any]],
    results: list[Result],
    scorers: list[Scorer],
    settings: dict[str, Any],
    folder: RunFolder | None,
) -> dict[str, HeadScores]:
    """Per-trial scores stacked per method, with what is known `about` every trial and its outcome in the meta; saved."""
    outcomes = dict(Counter(result.record["outcome"] for result in results))
    listed = [{**trial, **result.record} for trial, result in zip(about, results, strict=True)]
    scores: dict[str, HeadScores] = {}
    for scorer in scorers:
        kept = [
            (t["id"], r.arrays[scorer.name]) for t, r in zip(about, results, strict=True) if scorer.name in r.arrays
        ]
        if kept:
            meta = {
                **settings,
                "method": scorer.name,
                "paper": scorer.paper,
                "signed": scorer.signed,
                "outcomes": outcomes,
                "trials": listed,
            }
            meta |= {"rule": scorer.rule} if scorer.rule else {}
            del meta["methods"]
            stacked = torch.stack([score for _, score in kept])
            scores[scorer.name] = HeadScores.from_trials(scorer.name, stacked, [name for name, _ in kept], meta)
            if folder is not None:
                scores[scorer.name].save(folder.path / f"{scorer.name}.json")
    missing = [scorer.name for scorer in scorers if scorer.name not in scores]
    contrastive = [scorer.name for scorer in scorers if scorer.contrastive]
    summary = ", ".join(f"{count} {outcome}" for outcome, count in outcomes.items())
    if not scores:
        raise ValueError(
            f"no trial counts for {', '.join(missing)}: of {len(about)} trials {summary}; use easier trials (a shorter "
            "context_length, question='direct'), or teacher_forced=True, which has no gate"
            if missing != contrastive
            else f"{', '.join(missing)} compares gold documents with others, and all are gold: add documents, or use qr"
        )
    if missing:
        warnings.warn(f"no trial counts for {', '.join(missing)} ({summary}): left out of the result", stacklevel=3)
    return scores
