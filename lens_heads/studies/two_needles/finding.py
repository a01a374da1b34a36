"""What the study of choices found in one model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pandas as pd
import torch

from lens_heads.answering.ability import Ability
from lens_heads.answering.evaluation import Evaluation
from lens_heads.answering.question_need import QuestionNeed
from lens_heads.evidence.areas import areas
from lens_heads.evidence.curve_results import AblationCurve
from lens_heads.heads.conditions import Condition
from lens_heads.heads.grouping import COLUMNS, groups_in
from lens_heads.heads.scores import HeadScores
from lens_heads.studies.finding import Finding
from lens_heads.studies.two_needles.presets import EVERYWHERE, METRIC

COUNTERFACTUAL = "counterfactual"


@dataclass(frozen=True, eq=False, kw_only=True)
class ChoosingFinding(Finding):
    """What the study found in one model.

    `able`: what it can do of the test passages. `question`: whether answers need their question. `passages`: how many of the
    test half it was given, and of how many it answers both questions. The rest is empty for a model that does not do the task:
    `k`, each method's own; `scores` by method; `curves` by kind of ablation; `literal` share of every head.
    """

    able: Ability
    question: QuestionNeed | str
    passages: dict[str, int]
    k: dict[str, int] = field(default_factory=dict)
    scores: dict[str, HeadScores] = field(default_factory=dict)
    curves: dict[str, AblationCurve] = field(default_factory=dict)
    literal: HeadScores | None = None

    @property
    def sentence(self) -> str:
        """What the model does, and what may therefore be said."""
        passed = f"{self.passages['both right']} of {self.passages['all']} passages pass"
        limit = "" if self.curves else " Nothing is said of its heads for this task."
        return f"{self.model} {self.able}; {passed}.{limit}"

    def notes(self) -> dict[str, Any]:
        shape = next(iter(self.scores.values()), None)
        return {
            "ability": str(self.able),
            "does": self.able.does,
            "chance": self.able.chance,
            "question": str(self.question),
            "passages": self.passages,
            "k": self.k,
            "methods": list(self.scores),
            "heads": None if shape is None else shape.values.numel(),
        }


MEASURED = ("choice", METRIC, "logprob")
"""What is stored of every passage."""


def ability_table(able: Ability) -> pd.DataFrame:
    """A row per passage: trial, its groups, and what was measured under either question."""
    rows: dict[str, Any] = {"trial": able.asked.trial_ids}
    rows |= dict(zip(COLUMNS, able.asked.groups, strict=False))
    for part in ("asked", "exchanged"):
        metrics = getattr(able, part).metrics
        rows |= {f"{name}_{part}": metrics[name].tolist() for name in MEASURED}
    return pd.DataFrame(rows)


def ability_of(table: pd.DataFrame, chance: float) -> Ability:
    """The ability from its stored table."""
    ids, nothing = tuple(table["trial"]), ("",) * len(table)
    groups = groups_in(table, table["trial"], "trial")

    def part(which: str, names: tuple[str, ...]) -> Evaluation:
        metrics = {name: torch.tensor(table[f"{name}_{which}"].to_numpy(float)).float() for name in MEASURED}
        return Evaluation(names, metrics, nothing, nothing, groups)

    return Ability(part("asked", ids), part("exchanged", tuple(f"{id}-exchanged" for id in ids)), chance)


def by_kind(curves: Mapping[str, AblationCurve], metric: str, lead: str) -> pd.DataFrame:
    """`areas` under every kind of ablation, one after the other."""
    parts = [areas(curve, metric, lead=lead).assign(kind=kind) for kind, curve in curves.items() if kind != EVERYWHERE]
    return pd.concat(parts, ignore_index=True)


def looked_at(found: ChoosingFinding) -> pd.DataFrame:
    """A row per head that was exchanged alone: what that takes of the choice, its rank by every method, and its literal share."""
    curve = found.curves[COUNTERFACTUAL]
    places = {name: {str(head): at + 1 for at, head in enumerate(one.ranking())} for name, one in found.scores.items()}
    rows = []
    for condition in curve.conditions():
        if condition.set != "given":
            continue
        cost = curve.difference(Condition.none(), condition, METRIC)
        name = curve.difference(Condition.none(), condition, "logprob")
        row = {"head": condition.method, "cost": cost.value, "low": cost.low, "high": cost.high, "answer": name.value}
        row |= {"literal": float("nan") if found.literal is None else found.literal[condition.method]}
        rows.append(row | {f"rank by {method}": at[condition.method] for method, at in places.items()})
    return pd.DataFrame(rows).sort_values("cost", ascending=False, ignore_index=True)


def by_meaning(heads: pd.DataFrame) -> int:
    """How many of these heads carry the choice alone without copying: interval above 0, and a literal share below a half."""
    return int(((heads["low"] > 0) & (heads["literal"] < 0.5)).sum())
