"""Checks that selection and evaluation share no trials, for rankings and references."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lens_heads.heads.made_on import MadeOn, shared
from lens_heads.heads.scores import HeadScores
from lens_heads.interventions.checked_kind import Reference


def check_independent(
    rankings: Mapping[str, HeadScores], reference: Reference | None, evaluated: Sequence[MadeOn]
) -> None:
    """ValueError if rankings were made on the trials or pairs that are evaluated, or the reference comes from them."""
    for name, scores in rankings.items():
        # Includes the ids of the scored trials, since users' own scores may have no `made_on`.
        check_made_on(name, [*scores.made_on, *map(MadeOn, scores.trial_ids)], evaluated)
    check_reference(reference, evaluated, "evaluation trials", "compute it on the selection trials")


def check_made_on(name: str, selection: Sequence[MadeOn], evaluated: Sequence[MadeOn]) -> None:
    """ValueError if the selection shares an id, group, needle or prompt with the trials to evaluate on."""
    found = shared(selection, evaluated)
    if found:
        raise ValueError(
            f"ranking {name!r} was made on {len(found)} of the trials, needles or groups it is to be evaluated on "
            f"({found[0]!r}, ...): evaluate on others, e.g. tasks.packaged(split='test') for scores from split='select'"
        )


def check_reference(reference: Reference | None, evaluated: Sequence[MadeOn], what: str, remedy: str) -> None:
    """ValueError if the reference comes from these trials, which it would leak into the evaluation."""
    if reference is None:
        return
    found = shared(evaluated, reference.made_on)
    if found:
        raise ValueError(f"the reference was computed on {len(found)} of the {what} ({found[0]!r}, ...): {remedy}")
