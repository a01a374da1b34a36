"""Labels permuted: the prompts as they are, judged by each other's answers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from lens_heads.runs.typed import typed
from lens_heads.trials.checked_tokens import trial_list
from lens_heads.trials.exchanges import givers, same_answer
from lens_heads.trials.trial import AnyTrial, Trial

_LABEL = ("answer", "aliases", "judge", "choices")
_IN_TOKENS = (*_LABEL, "answer_tokens", "choice_tokens")


@typed
def permuted_answers(trials: Iterable[AnyTrial] | AnyTrial, *, seed: int = 0) -> list[AnyTrial]:
    """The trials with each other's gold answers; the prompts, with their needles, stay.

    Controls for whatever holds for any answer of the task: its frequency, its form, its length. Heads chosen for writing these
    answers must write the true ones no better than heads drawn at random.

    A label is the answer with its aliases, choices and judge (and the tokens of an EncodedTrial). It never goes to a trial that
    accepts the same answer, or one that contains it or is contained in it ("No" and "No one"). Every label is used once.

    Returns:
        Trials in the order given, with ids such as "S03-answer-of-S07"; `group` and `meta` stay.

    Raises ValueError if too many trials have the same answer, for a mixture of Trial and EncodedTrial, repeated ids, and a seed
    that is no whole number; TypeError for anything but trials.

    Example:
        >>> others = lh.sanity.permuted_answers(trials)
        >>> others[0].id, others[0].answer != trials[0].answer
        ('planted-0-0-answer-of-planted-0-2', True)
    """
    listed = trial_list(trials)
    for trial in listed:
        if type(trial) is not type(listed[0]):
            raise ValueError(
                f"trials {listed[0].id} and {trial.id} are of two kinds: pass only Trial or only EncodedTrial"
            )
    fields = _LABEL if isinstance(listed[0], Trial) else _IN_TOKENS
    found = givers(listed, lambda giver, taker: not same_answer(giver, taker), "other answer", "answers", seed)
    made: list[AnyTrial] = []
    for trial, other in zip(listed, found, strict=True):
        label: dict[str, Any] = {name: getattr(other, name) for name in fields}
        made.append(replace(trial, id=f"{trial.id}-answer-of-{other.id}", **label))
    return made
