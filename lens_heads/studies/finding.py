"""What a study found in one model or in a pair of models, how tables are stored in the JSON, and what its trials can show."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from lens_heads.answering.ability import Ability, ability
from lens_heads.answering.question_need import QuestionNeed, question_need
from lens_heads.model.geometry import Model
from lens_heads.trials.exchanges import add_distractors
from lens_heads.trials.trial import AnyTrial


@dataclass(frozen=True, eq=False, kw_only=True)
class Finding:
    """What a study found in one model, or in a pair of models.

    `frames` holds every table by name, "claims" among them; `trials` holds tables of single trials, which the JSON leaves
    out. The runner adds `settings`, which identify the run folder, `seconds` by stage, and `file_sha256` of a model's own file.
    """

    model: str
    frames: dict[str, pd.DataFrame]
    trials: dict[str, pd.DataFrame] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    file_sha256: str | None = None

    @property
    def name(self) -> str:
        """The model's name without its organisation or folder."""
        return Path(self.model).name

    @property
    def claims(self) -> pd.DataFrame:
        """One row per claim, with its verdict."""
        return self.frames["claims"]

    def all_frames(self) -> dict[str, pd.DataFrame]:
        """Every table that the run folder keeps."""
        return {**self.frames, **self.trials}

    def notes(self) -> dict[str, Any]:
        """What the JSON holds besides the tables."""
        return {}

    def summary(self) -> dict[str, Any]:
        """The finding for the JSON."""
        seconds = {stage: round(spent, 1) for stage, spent in self.seconds.items()}
        frames = {name: records(frame) for name, frame in self.frames.items()}
        about = {"settings": self.settings, "file_sha256": self.file_sha256, "seconds": seconds}
        return {**about, **self.notes(), **frames}


def together(frames: Mapping[str, pd.DataFrame], column: str | None = None) -> pd.DataFrame:
    """Tables as one, each with its name in a column unless it has one."""
    named = [frame if column is None else frame.assign(**{column: name}) for name, frame in frames.items()]
    return pd.concat(named, ignore_index=True)


def records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """The rows for JSON, with four significant digits."""
    return plain(
        frame.map(lambda value: float(f"{value:.4g}") if isinstance(value, float) else value).to_dict("records")
    )


def plain(value: Any) -> Any:
    """The value as JSON holds it: NumPy values become Python's, NaN and infinity None, unknown objects text."""
    if isinstance(value, np.generic | np.ndarray):
        value = value.tolist()
    if isinstance(value, Mapping):
        return {str(key): plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [plain(inner) for inner in value]
    if value is pd.NA or (isinstance(value, float) and not math.isfinite(value)):
        return None
    return value if value is None or isinstance(value, str | int | float) else str(value)


ASKED = 12
"""Selection trials, at most, that tell whether the question decides; below five trials there is no interval."""


def asked(model: Model, trials: Sequence[AnyTrial], out: Path | None) -> QuestionNeed | str:
    """Whether selection trials need their question, or the reason why it cannot be told."""
    try:
        return question_need(model, trials[:ASKED], out=out)
    except ValueError as error:  # No other question for some trial, or no haystack that takes the needle's place.
        return f"cannot be told: {error}"


ABLE = 40
"""Selection trials, at most, that tell whether the model can choose between two needles."""


def can_choose(model: Model, trials: Sequence[AnyTrial], out: Path) -> Ability | str:
    """Whether the model picks the right one of two needles: selection trials with another one's needle in the same passage, under
    both questions. Or the reason why it cannot be told."""
    try:
        return ability(model, add_distractors(trials[:ABLE]), out=out)
    except ValueError as error:  # No needle, or none of another trial that fits.
        return f"cannot be told: {error}"


def meaning(question: QuestionNeed | str, able: Ability | str = "") -> str:
    """What the trials can show of retrieval by meaning, in a sentence or two. `able`: of `can_choose`."""
    told = f"Whether the question decides: {question}." if isinstance(question, str) else f"{question}."
    decided = not isinstance(question, str) and question.decides
    two = f" Whether it can choose between two needles {able}." if able else ""
    if isinstance(able, Ability):
        two = f" With a second needle in the passage, the model {able}."
    chooses = not isinstance(able, Ability) or able.does
    limit = " Nothing here shows retrieval by meaning: heads that write the answer whatever is asked would do."
    return told[:1].upper() + told[1:] + two + ("" if decided and chooses else limit)
