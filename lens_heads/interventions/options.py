"""Keywords of functions that run a model on trials under an ablation: the run's options and those of the ablation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lens_heads.interventions.ablation import Ablation, Reference
from lens_heads.model.geometry import Model
from lens_heads.runs.options import Run, RunOptions, check_known, split


class AblationRun(RunOptions, total=False):
    """`RunOptions`, and the options of the kinds of ablation that have any; `ablate` says what they mean."""

    factor: float
    sink: float
    recent: float
    u: float


def ablation_run(
    model: Model,
    kind: str | Ablation,
    reference: Reference | None,
    options: Mapping[str, Any],
    **defaults: Any,
) -> tuple[Ablation, Run]:
    """The ablation, checked, and the run options, complete.

    ValueError for an option that the ablation does not have.

    TypeError for a keyword that is neither a run option nor any ablation's.
    """
    check_known(options, AblationRun.__annotations__)
    run, other = split(options)
    return Ablation.of(model, kind, reference, other), Run.of(run, **defaults)
