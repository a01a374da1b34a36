"""What the study of fragile tasks found in one model, and in a pair of models."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from lens_heads.answering.question_need import QuestionNeed
from lens_heads.evidence.correlation_results import Correlation
from lens_heads.evidence.curve_results import AblationCurve
from lens_heads.evidence.transfer_results import TransferMatrix
from lens_heads.evidence.validation import MatchValidation
from lens_heads.heads.matching import HeadMatch
from lens_heads.heads.scores import HeadScores
from lens_heads.studies.asked import meaning
from lens_heads.studies.finding import Finding

ALL = "all tasks"
TaskRankings = dict[str, dict[str, HeadScores]]
"""Scores by method, then by task; `ALL` pools the tasks."""


@dataclass(frozen=True, eq=False, kw_only=True)
class FragileFinding(Finding):
    """What the study found in one model.

    `sizes` maps numbers of ablated heads to the k of the preset that each stands for, by which the matrix names them;
    `headline` is the number that claims are judged at. `curve` ablates the pooled rankings and many random sets. `question`:
    whether trials of the selection half need theirs, or why that cannot be told.
    """

    scores: TaskRankings
    matrix: TransferMatrix
    curve: AblationCurve
    sizes: dict[int, int]
    headline: int
    question: QuestionNeed | str = ""

    def notes(self) -> dict[str, Any]:
        (heads,) = {found.values.numel() for by_task in self.scores.values() for found in by_task.values()}
        return {
            "question_note": meaning(self.question),
            "heads": heads,
            "heads_for_k": {k: size for size, k in self.sizes.items()},
        }


@dataclass(frozen=True, eq=False, kw_only=True)
class Pair(Finding):
    """What the study found in two models, a and b.

    `correlations` is by metric and statistic; `reasons` says why some are missing. `match` pairs a's heads with b's by depth,
    patterns on common texts, scores on all tasks, and CKA; `blind` does so without scores. `validation` ablates a's top heads and
    their partners by `blind`: matched by scores, the partners of good heads would be good heads anyway.
    """

    names: tuple[str, str]
    correlations: dict[str, Correlation]
    reasons: dict[str, str]
    match: HeadMatch
    blind: HeadMatch
    validation: MatchValidation

    def notes(self) -> dict[str, Any]:
        match = {
            name: {"mean_distance": one.mean_distance, "chance": one.chance, "p": one.p, "pairs": len(one.pairs)}
            | {"mean_stability": one.pairs["stability"].mean()}
            for name, one in (("with scores", self.match), ("without scores", self.blind))
        }
        return {"models": self.names, "match": match, "reasons": self.reasons}
