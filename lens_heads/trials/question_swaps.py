"""The same passages with another question: of their own distractor, which turns the answer, or of another trial."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from lens_heads.runs.typed import typed
from lens_heads.trials.checked_tokens import trial_list
from lens_heads.trials.containment import normalize
from lens_heads.trials.encoded import EncodedTrial
from lens_heads.trials.exchanges import givers, same_answer, share_a_group, with_needles
from lens_heads.trials.trial import AnyTrial, Distractor, Trial


@typed
def exchange_questions(trials: Iterable[AnyTrial] | AnyTrial) -> list[AnyTrial]:
    """The same passages with the question of each trial's first distractor, so that its answer is the right one.

    Needle and distractor change places, and nothing else: the counterfactual of a question that decides. What a head writes
    because of the question changes with it; what it writes because a name stands in the passage does not.

    A trial in tokens brings the other question as `corrupt`, its answer as `wrong` and one of two `choices`.

    Returns:
        Trials in the order given, with ids such as "S03-exchanged"; exchanged twice, they are as they were, but for their ids.

    Raises ValueError for trials without a distractor that has a question and an answer; TypeError for anything but trials.

    Example:
        >>> trial = lh.tasks.packaged("select", n=1, distractors=1)[0]
        >>> other = lh.tasks.exchange_questions(trial)[0]
        >>> (trial.answer, trial.distractors[0].answer) == (other.distractors[0].answer, other.answer)
        True
    """
    return [_in_tokens(one) if isinstance(one, EncodedTrial) else _in_text(one) for one in trial_list(trials)]


def ask_twice(trials: Iterable[AnyTrial]) -> bool:
    """Whether passages have another question to ask. ValueError where only some have."""
    listed = list(trials)
    asking = [_asks_twice(one) for one in listed]
    if any(asking) and not all(asking):
        odd = listed[asking.index(False)]
        raise ValueError(f"trial {odd.id} has no distractor with a question, and others have: pass trials of one kind")
    return any(asking)


def _asks_twice(trial: AnyTrial) -> bool:
    if isinstance(trial, Trial):
        return any(one.question for one in trial.distractors)
    return bool(trial.distractors) and trial.corrupt is not None and trial.wrong is not None


@typed
def permuted_questions(trials: Iterable[AnyTrial] | AnyTrial, *, seed: int = 0) -> list[Trial]:
    """The trials with each other's questions, so that no prompt asks for its needle; needle and gold answer stay.

    Controls for answers that need no question: of a passage with one name, a model may write that name whatever is asked. Where
    passages have a distractor, `tasks.exchange_questions` asks for that.

    A question goes only to a trial that asks another one, shares no group with its own trial, and accepts none of its answers.
    Every question is used once.

    Returns:
        Trials in the order given, with ids such as "S03-question-of-S07".

    Raises ValueError if the trials allow no such exchange, for trials in tokens, without a needle or with repeated ids, and for
    a seed that is no whole number; TypeError for anything but trials.

    Example:
        >>> facts = lh.tasks.packaged(n=4)
        >>> others = lh.sanity.permuted_questions(facts)
        >>> {one.question for one in others} == {one.question for one in facts}, others[0].answer == facts[0].answer
        (True, True)
    """
    listed = with_needles(trials)
    found = givers(listed, _may_ask, "question of another trial", "questions, groups and answers", seed)
    return [
        replace(trial, id=f"{trial.id}-question-of-{other.id}", question=other.question, corrupt=())
        for trial, other in zip(listed, found, strict=True)
    ]


def _may_ask(giver: Trial, taker: Trial) -> bool:
    """Whether the giver's question asks for nothing in the taker's needle."""
    asks = normalize(giver.question) != normalize(taker.question)
    return asks and not share_a_group(giver, taker) and not same_answer(giver, taker)


def _in_text(trial: Trial) -> Trial:
    (trial,) = with_needles(trial)
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


def _in_tokens(trial: EncodedTrial) -> EncodedTrial:
    unknown = trial.needle is None or trial.corrupt is None or trial.wrong is None
    if unknown or len(trial.choices) != 2 or len(trial.distractors) != 1:
        raise ValueError(
            f"trial {trial.id} is in tokens and lacks its other question: it takes a needle, one distractor, corrupt=, "
            "wrong= and two choices"
        )
    other = trial.choices[1 - trial.choices.index(trial.answer)]
    assert trial.needle is not None
    assert trial.corrupt is not None
    return replace(
        trial,
        id=f"{trial.id}-exchanged",
        tokens=trial.corrupt,
        corrupt=trial.tokens,
        answer=other,
        answer_tokens=trial.choice_tokens[trial.choices.index(other)],
        wrong=trial.answer_tokens,
        aliases=(),
        needle=trial.distractors[0],
        distractors=(trial.needle,),
        question=trial.question if len(trial.corrupt) == len(trial.tokens) else None,
    )
