"""A second needle for trials that have one, so that the question decides which of the two is the answer."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from lens_heads.runs.typed import typed
from lens_heads.trials.containment import normalize
from lens_heads.trials.exchanges import accepted, givers, mentions, same_answer, share_a_group, with_needles
from lens_heads.trials.trial import AnyTrial, Distractor, Trial


@typed
def add_distractors(trials: Iterable[AnyTrial] | AnyTrial, *, seed: int = 0) -> list[Trial]:
    """The trials with the needle of another one in the same passage, and the choice between the two answers.

    For tasks whose passages hold a single needle (NIAH, NoLiMa, filings, MuSiQue's answer paragraph, key-value objects): a model
    that writes whatever stands out is then right half of the time. `tasks.exchange_questions` asks for the other needle.

    A needle goes to a trial that asks another question, shares no group with its own, and accepts none of its answers, nor holds
    one in its passage; every needle is used once. It stands half the passage away. Stories without a needle (BABILong) have
    none to give. The needles of `packaged(distractors=1)` are of one kind, so that no kind of answer gives the right one away;
    these are of as many kinds as the task has.

    Args:
        trials: in text, with needles. Split halves before, not after: what is in both then binds them.
        seed: of who gets whose needle.

    Returns:
        Trials in the order given, with ids such as "S03-beside-S07", `choices`, and the other question as `corrupt`.

    Raises ValueError if the trials allow no such exchange, for trials in tokens, without a needle, with a distractor already or
    with repeated ids; TypeError for anything but trials.

    Example:
        >>> facts = lh.tasks.add_distractors(lh.tasks.packaged(n=4))
        >>> one = facts[0]
        >>> one.choices == tuple(sorted([one.answer, one.distractors[0].answer])), one.corrupt[0] == one.distractors[0].question
        (True, True)
    """
    listed = with_needles(trials)
    twice = next((trial.id for trial in listed if trial.distractors), None)
    if twice is not None:
        raise ValueError(f"trial {twice} has a distractor already: pass trials with one needle")
    found = givers(listed, _may_stand_beside, "needle of another trial", "questions, groups and answers", seed)
    return [_beside(trial, other) for trial, other in zip(listed, found, strict=True)]


def _may_stand_beside(giver: Trial, taker: Trial) -> bool:
    """Whether the giver's needle, and its question, leave the taker's answer alone, and the taker's passage the giver's."""
    return not (
        normalize(giver.question) == normalize(taker.question)
        or share_a_group(giver, taker)
        or same_answer(giver, taker)
        or mentions(giver.needle, accepted(taker))
        or mentions(f"{taker.needle}\n{taker.haystack}", accepted(giver))
    )


def _beside(trial: Trial, other: Trial) -> Trial:
    return replace(
        trial,
        id=f"{trial.id}-beside-{other.id}",
        distractors=(Distractor(other.needle, other.question, other.answer, (trial.depth + 0.5) % 1.0),),
        choices=tuple(sorted((trial.answer, other.answer))),
        corrupt=(other.question,),
    )
