"""The explorer of a study's page: which trials, scores and curve it shows, stored in the model's folder."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from lens_heads.evidence.curve_results import AblationCurve
from lens_heads.heads.scores import HeadScores
from lens_heads.inspection.explorer.stored import ABOUT, FOLDER, store
from lens_heads.model.geometry import Model
from lens_heads.report import Section
from lens_heads.report.explored import section
from lens_heads.runs.showing import one_line
from lens_heads.runs.warned import users_line
from lens_heads.trials.trial import AnyTrial


@dataclass(frozen=True, eq=False)
class Seen:
    """What an explorer shows: the first of these trials, these scores (the first leads), and a curve."""

    trials: Sequence[AnyTrial]
    scores: Mapping[str, HeadScores]
    curve: AblationCurve | None = None


def keep(run: Path, model: Model, seen: Seen) -> None:
    """Store the explorer of a run folder. What fails gives a warning: a finished run is not lost for its explorer."""
    try:
        store(run / FOLDER, model, seen.trials, seen.scores, seen.curve)
    except Exception as error:
        warnings.warn(f"{run} gets no explorer: {one_line(error)}", stacklevel=users_line())


def sections(runs: Mapping[str, Path]) -> list[Section]:
    """A section for each of these run folders, by title, that holds an explorer."""
    return [section(run / FOLDER, title) for title, run in runs.items() if (run / FOLDER / ABOUT).exists()]
