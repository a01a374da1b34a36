"""The keywords of functions that run trials under an ablation: options of the run and of the ablation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, TypedDict

from lens_heads.interventions.checked_kind import Ablation, Reference
from lens_heads.interventions.kinds import KINDS, NEEDS
from lens_heads.interventions.spans import Part, Span
from lens_heads.model.geometry import Model
from lens_heads.model.support import require
from lens_heads.runs.options import Run, RunOptions, split
from lens_heads.runs.typed import LISTED


class KindOptions(TypedDict, total=False):
    """The options of the kinds of ablation, which `ablate` explains. None is the kind's own default."""

    factor: float | None
    sink: int | None
    recent: int | None
    u: float | None
    a: float | None
    span: Span | Sequence[Span] | Part | None
    n_chunks: int | None
    chunk_size: int | None


class AblationRun(RunOptions, KindOptions, total=False):
    """`RunOptions`, `KindOptions`, and the reference of the kind, which `ablate` explains."""

    reference: Annotated[Reference | None, LISTED]


def taken(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a kind that are not left to it."""
    return {name: value for name, value in options.items() if value is not None or name == "span"}


def ablation_run(
    model: Model,
    kind: str | Ablation,
    options: Mapping[str, Any],
) -> tuple[Ablation, Run]:
    """The checked ablation and the complete run options.

    ValueError for an option that this kind of ablation lacks.
    """
    run, other = split(options)
    ablation = Ablation.of(model, kind, reference=other.pop("reference", None), options=taken(other))
    require(model, f"kind={ablation.kind!r}", *NEEDS[KINDS[ablation.kind].hook])
    return ablation, Run.of(run)
