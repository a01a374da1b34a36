"""A model's claims from its values per trial alone: those of a run, or those that a finished run has stored."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd
import torch

from lens_heads.evidence.curve_results import AblationCurve
from lens_heads.heads.head import Head
from lens_heads.heads.scores import HeadScores
from lens_heads.studies.capability_paper import damage, rankings
from lens_heads.studies.capability_paper.claims import claims
from lens_heads.studies.capability_paper.finding import CapabilityFinding, able
from lens_heads.studies.capability_paper.presets import Preset
from lens_heads.studies.capability_paper.stages import Repeated, owner


@dataclass(frozen=True, eq=False)
class Measured:
    """What was measured on one model.

    `scores` by capability and draw of masks; `reasons` says why one has none; `chances` is the share of answers right by
    chance, by task. `curve` has the heads of every capability on every task, `alone` the candidates for universal heads one by
    one, `compared` the heads of every method, which took so many `evaluations`. `methods` are their scores.
    """

    scores: Repeated
    reasons: dict[str, str]
    chances: dict[str, float]
    parameters: int
    curve: AblationCurve
    alone: AblationCurve
    compared: AblationCurve
    evaluations: Mapping[str, int]
    methods: Repeated

    @property
    def mine(self) -> Repeated:
        """The scores of capabilities on their own data."""
        return {name: draws for name, draws in self.scores.items() if name == owner(name)}

    @property
    def trials(self) -> dict[str, pd.DataFrame]:
        """The tables that a run keeps, from which `rejudged` judges again."""
        ranked = [
            found.to_frame(interval=False).assign(capability=name, draw=draw)
            for name, draws in self.scores.items()
            for draw, found in enumerate(draws)
        ]
        curves = {"damage": self.curve, "alone": self.alone, "methods": self.compared}
        found = {f"{name}_trials": curve.per_trial for name, curve in curves.items()}
        return {**found, "scores": pd.concat(ranked, ignore_index=True)}


def judged(model: str, plan: Preset, found: Measured) -> CapabilityFinding:
    """The finding, with its claims and the tables that they read."""
    curve, mine = found.curve, found.mine
    metrics = {task: plan.capabilities[owner(task)].metric for task in found.chances}
    shared = rankings.shared(mine, plan.k, plan.candidates)
    has = [name for name in mine if able(curve, plan, found.chances, name)]
    universal = rankings.universal(mine, has, plan)
    finding = CapabilityFinding(
        model=model,
        frames={
            "spread": damage.spread(curve, plan, metrics, list(found.scores)),
            "alone": damage.alone(found.alone, plan, metrics, shared),
            "methods": damage.methods(found.compared, plan, metrics, found.evaluations),
        },
        trials=found.trials,
        plan=plan,
        parameters=found.parameters,
        scores=found.scores,
        reasons=found.reasons,
        curve=curve,
        metrics=metrics,
        chances=found.chances,
        universal=universal,
        luck=math.nan if universal is None else rankings.by_luck(universal),
        shared=shared,
        methods=found.methods,
        compared=found.compared,
    )
    finding.frames["claims"] = claims(finding)
    return finding


def rejudged(
    model: str, plan: Preset, tables: Mapping[str, pd.DataFrame], said: Mapping[str, Any]
) -> CapabilityFinding:
    """What stored values per trial say; nothing else of the run is needed.

    `tables` as in `Measured.trials`; `said` is the model's part of the study's JSON: reasons, chances, parameters, and how many
    evaluations each method took.
    """
    curves = {name: AblationCurve(tables[f"{name}_trials"], {}) for name in ("damage", "alone", "methods")}
    scores: Repeated = {}
    for (name, _), rows in tables["scores"].groupby(["capability", "draw"], sort=False):
        scores.setdefault(str(name), []).append(_scores(str(name), rows))
    curve, alone, compared = curves.values()
    measured = Measured(
        scores=scores,
        reasons=said["reasons"],
        chances=said["chances"],
        parameters=said["parameters"],
        curve=curve,
        alone=alone,
        compared=compared,
        evaluations={row["method"]: row["evaluations"] for row in said["methods"]},
        methods={},
    )
    own = list(measured.mine)
    compares = plan.compared if plan.compared in own else own[0]
    return judged(model, replace(plan, compared=compares), measured)


def _scores(name: str, rows: pd.DataFrame) -> HeadScores:
    """A ranking from its table, the best head first."""
    values = torch.zeros(rows["layer"].max() + 1, rows["head"].max() + 1)
    values[torch.tensor(rows["layer"].to_numpy()), torch.tensor(rows["head"].to_numpy())] = torch.tensor(
        rows["score"].to_numpy(), dtype=torch.float32
    )
    order = tuple(Head(int(layer), int(head)) for layer, head in zip(rows["layer"], rows["head"], strict=True))
    return HeadScores.from_trials(name, values[None], ["all"], best="lowest", order=order)
