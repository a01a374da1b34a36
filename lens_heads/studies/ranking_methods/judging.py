"""Judge rankings on trials that they have not seen: ablate their heads, keep nothing else, and watch another task."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lens_heads.evidence.curve import ablation_curve
from lens_heads.evidence.curve_results import AblationCurve
from lens_heads.evidence.faithfulness import faithfulness
from lens_heads.evidence.faithfulness_results import FaithfulnessCurve
from lens_heads.heads.controls import Controls
from lens_heads.heads.scores import HeadScores
from lens_heads.interventions.activations import MeanActivations, mean_activations
from lens_heads.model.geometry import Model
from lens_heads.studies.ranking_methods.presets import Preset
from lens_heads.studies.ranking_methods.setups import SETUPS, Setup


@dataclass(frozen=True, eq=False)
class Judged:
    """What the rankings' heads did on test trials: `curve` and `other` (ablated), `kept` (None without pairs)."""

    curve: AblationCurve
    other: AblationCurve
    kept: FaithfulnessCurve | None


def judge(
    model: Model,
    name: str,
    setup: Setup,
    scores: Mapping[str, HeadScores],
    reference: MeanActivations,
    plan: Preset,
    folder: Path | None,
) -> Judged:
    """Ablation curves on the task and on its other task, and faithfulness, of all rankings and of random heads."""
    trials, pairs = setup.load(model, "test", plan.test)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # Ties are the methods' own.
        curve = _ablated(model, {name: trials}, scores, reference, plan.ks, plan, _at(folder, "ablation"))
        other = SETUPS[setup.other]
        aside, _ = other.load(model, "test", plan.other)
        means = _means_of(model, other, plan)
        beside = _ablated(model, {setup.other: aside}, scores, means, (plan.k,), plan, _at(folder, "other"))
        kept = None
        if pairs:
            kept = faithfulness(
                model,
                pairs[: plan.pairs],
                dict(scores),
                controls=Controls("random", plan.kept_draws, trials=None),
                out=_at(folder, "kept"),
            )
    return Judged(curve, beside, kept)


def _ablated(
    model: Model,
    trials: dict[str, Any],
    scores: Mapping[str, HeadScores],
    reference: MeanActivations,
    ks: tuple[int, ...],
    plan: Preset,
    out: Path | None,
) -> AblationCurve:
    controls = Controls("random", plan.draws, trials=plan.few)
    how: dict[str, Any] = {"reference": reference, "generate": False, "batch_size": plan.batch_size, "out": out}
    return ablation_curve(model, trials, dict(scores), ks=ks, controls=controls, **how)


def _means_of(model: Model, setup: Setup, plan: Preset) -> MeanActivations:
    trials, _ = setup.load(model, "select", plan.calibrate)
    return mean_activations(model, trials, n=None, progress=False)


def _at(folder: Path | None, name: str) -> Path | None:
    return None if folder is None else folder / name
