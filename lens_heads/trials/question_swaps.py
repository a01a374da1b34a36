"""The same passages with another question: the counterfactual of a question that decides."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from lens_heads.runs.typed import typed
from lens_heads.trials.exchanges import with_needles
from lens_heads.trials.trial import AnyTrial, Distractor, Trial


@typed
def exchange_questions(trials: Iterable[AnyTrial] | AnyTrial) -> list[Trial]:
    """The same passages with the question of each trial's first distractor, so that its answer is the right one.

    Needle and distractor change places, and nothing else: the counterfactual of a question that decides. What a head writes
    because of the question changes with it; what it writes because a name stands in the passage does not.

    Returns:
        Trials in the order given, with ids such as "S03-exchanged"; exchanged twice, they are as they were, but for their ids.

    Raises ValueError for trials in tokens, and for trials without a distractor that has a question and an answer; TypeError for
    anything but trials.

    Example:
        >>> trial = lh.tasks.packaged("select", n=1, distractors=1)[0]
        >>> other = lh.tasks.exchange_questions(trial)[0]
        >>> (trial.answer, trial.distractors[0].answer) == (other.distractors[0].answer, other.answer)
        True
    """
    return [_exchanged(trial) for trial in with_needles(trials)]


def _exchanged(trial: Trial) -> Trial:
    other = next((one for one in trial.distractors if one.question and one.answer), None)
    if other is None:
        raise ValueError(
            f"trial {trial.id} has no distractor with a question and an answer: give Trial(distractors=), or take trials that "
            "have (tasks.packaged(distractors=1))"
        )
    mine = Distractor(trial.needle, trial.question, trial.answer, trial.depth)
    return replace(
        trial,
        id=f"{trial.id}-exchanged",
        question=other.question,
        answer=other.answer,
        aliases=(),
        needle=other.text,
        needle_focus="",
        depth=other.depth,
        distractors=tuple(mine if one is other else one for one in trial.distractors),
        corrupt=(trial.question,) if trial.corrupt else (),
    )
