"""What the study found in one model, and in two beside each other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pandas as pd

from lens_heads import compare
from lens_heads.heads.scores import HeadScores
from lens_heads.studies.runner import Finding

ALL = "all tasks"
Rankings = dict[str, dict[str, HeadScores]]
"""By method, then by task; of all tasks together under `ALL`."""


@dataclass(frozen=True, eq=False, kw_only=True)
class FragileFinding(Finding):
    """What the study found in one model. `sizes`: heads ablated, and the k of 1,024 each stands for."""

    scores: Rankings
    matrix: compare.TransferMatrix
    sizes: dict[int, int]

    def notes(self) -> dict[str, Any]:
        """What the JSON says beside the tables."""
        return {"heads_for_k_of_1024": {k: size for size, k in self.sizes.items()}}


@dataclass(frozen=True, eq=False, kw_only=True)
class Pair(Finding):
    """What the study found of two models, a and b.

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

    def notes(self) -> dict[str, Any]:
        """What the JSON says beside the tables."""
        match = {
            name: {"mean_distance": one.mean_distance, "chance": one.chance, "p": one.p, "pairs": len(one.pairs)}
            | {"mean_stability": float(one.pairs["stability"].mean())}
            for name, one in (("with scores", self.match), ("without scores", self.blind))
        }
        return {"models": self.names, "match": match, "reasons": self.reasons}


def correlation_frame(correlations: dict[str, compare.Correlation]) -> pd.DataFrame:
    """One row per statistic: R^2 with its interval, permutation p, the naive p, noise ceiling."""
    rows = []
    for label, found in correlations.items():
        low, high = found.interval or (float("nan"), float("nan"))
        row = {"statistic": label, "r2": found.r2, "low": low, "high": high, "r": found.r, "p": found.p}
        row |= {"naive_p": found.naive_p, "noise_ceiling_r2": found.noise_ceiling_r2, "points": len(found.points)}
        rows.append(row)
    return pd.DataFrame(rows)
