"""What the study of fragile tasks found in one model, and in a pair of models."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from lens_heads import compare
from lens_heads.heads.scores import HeadScores
from lens_heads.studies.runner import Finding

ALL = "all tasks"
Rankings = dict[str, dict[str, HeadScores]]
"""Scores by method, then by task; `ALL` pools the tasks."""


@dataclass(frozen=True, eq=False, kw_only=True)
class FragileFinding(Finding):
    """What the study found in one model. `sizes` maps numbers of ablated heads to the k of 1,024 that each stands for."""

    scores: Rankings
    matrix: compare.TransferMatrix
    sizes: dict[int, int]

    def size_for(self, k: int) -> int:
        """The smallest number of ablated heads that stands for at least k of 1,024, or the largest there is."""
        return next((size for size, each in self.sizes.items() if each >= k), max(self.sizes))

    def notes(self) -> dict[str, Any]:
        return {"heads_for_k_of_1024": {k: size for size, k in self.sizes.items()}}


@dataclass(frozen=True, eq=False, kw_only=True)
class Pair(Finding):
    """What the study found in two models, a and b.

    `correlations` is by metric and statistic; `reasons` says why some are missing. `match` pairs a's heads with b's by depth,
    patterns on common texts, scores on all tasks, and CKA; `blind` does so without scores. `validation` ablates a's top heads and
    their partners by `blind`: matched by scores, the partners of good heads would be good heads anyway.
    """

    names: tuple[str, str]
    correlations: dict[str, compare.Correlation]
    reasons: dict[str, str]
    match: compare.HeadMatch
    blind: compare.HeadMatch
    validation: compare.MatchValidation

    def notes(self) -> dict[str, Any]:
        match = {
            name: {"mean_distance": one.mean_distance, "chance": one.chance, "p": one.p, "pairs": len(one.pairs)}
            | {"mean_stability": one.pairs["stability"].mean()}
            for name, one in (("with scores", self.match), ("without scores", self.blind))
        }
        return {"models": self.names, "match": match, "reasons": self.reasons}
