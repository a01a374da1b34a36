"""What the trials of a study can show of retrieval by meaning: whether the model needs their question."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from lens_heads.answering.question_need import QuestionNeed, question_need
from lens_heads.model.geometry import Model
from lens_heads.trials.trial import AnyTrial

ASKED = 12
"""Selection trials, at most, that tell whether the question decides; below five trials there is no interval."""


def asked(model: Model, trials: Sequence[AnyTrial], out: Path) -> QuestionNeed | str:
    """Whether selection trials need their question, or the reason why it cannot be told."""
    try:
        return question_need(model, trials[:ASKED], out=out)
    except ValueError as error:  # No other question for some trial, or no haystack that takes the needle's place.
        return f"cannot be told: {error}"


def meaning(question: QuestionNeed | str) -> str:
    """What the trials can show of retrieval by meaning, in a sentence or two."""
    told = f"Whether the question decides: {question}." if isinstance(question, str) else f"{question}."
    decided = not isinstance(question, str) and question.decides
    limit = " Nothing here shows retrieval by meaning: heads that write the answer whatever is asked would do."
    return told[:1].upper() + told[1:] + ("" if decided else limit)
