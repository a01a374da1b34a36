"""Trials that take a needle or a question from each other: who may, for whom it is a second one, and for whom the only one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TypeVar

import numpy as np
import torch
from scipy.optimize import linear_sum_assignment

from lens_heads.heads.grouping import named_groups
from lens_heads.runs import checks
from lens_heads.runs.typed import typed
from lens_heads.trials.checked_tokens import trial_list
from lens_heads.trials.containment import contains, normalize
from lens_heads.trials.encoded import EncodedTrial
from lens_heads.trials.trial import AnyTrial, Distractor, Trial

T = TypeVar("T", bound=AnyTrial)


def givers(trials: Sequence[T], may_give: Callable[[T, T], bool], what: str, remedy: str, seed: int) -> list[T]:
    """For each trial another one that may give to it, by `may_give(giver, taker)`; every trial gives once.

    `may_give` refuses what a trial has already, so that none gives to itself.

    A minimal assignment under random costs: it finds an exchange whenever there is one, and prefers no pair. ValueError if
    there is none: it names a trial that gets nothing, `what` it would get, and as the `remedy` what must vary.
    """
    costs = np.random.default_rng(checks.seed(seed)).random((len(trials), len(trials)))
    for at, taker in enumerate(trials):
        for other, giver in enumerate(trials):
            if not may_give(giver, taker):
                costs[at, other] = len(trials)  # More than all others of a possible exchange together.
    takers, chosen = linear_sum_assignment(costs)
    for trial, cost in zip(trials, costs[takers, chosen], strict=True):
        if cost >= len(trials):
            raise ValueError(f"trial {trial.id} would get no {what}: pass trials whose {remedy} vary more")
    return [trials[int(other)] for other in chosen]


def accepted(trial: AnyTrial) -> tuple[str, ...]:
    """The answers that count as right."""
    return (trial.answer, *trial.aliases)


def share_a_group(one: Trial, other: Trial) -> bool:
    return not {*named_groups(one)}.isdisjoint(named_groups(other))


@lru_cache(maxsize=2**16)
def mentions(text: str, answers: tuple[str, ...]) -> bool:
    """Whether a text contains one of the answers as whole words, or is one."""
    return any(contains(text, answer) or text.strip().casefold() == answer.strip().casefold() for answer in answers)


def same_answer(one: AnyTrial, other: AnyTrial) -> bool:
    """Whether an accepted answer of one contains one of the other's, either way round."""
    pairs = ((one, other), (other, one))
    return any(mentions(answer, accepted(b)) for a, b in pairs for answer in accepted(a))


def with_needles(trials: Iterable[AnyTrial] | AnyTrial) -> list[Trial]:
    """The trials. ValueError unless all are text and have a needle, or for repeated ids; TypeError for anything but trials."""
    made: list[Trial] = []
    for trial in trial_list(trials):
        if not isinstance(trial, Trial):
            raise ValueError(
                f"trial {trial.id} is in tokens, whose needle cannot be composed again: pass the text Trial"
            )
        if not trial.needle:
            raise ValueError(f"trial {trial.id} has no needle: pass trials with one")
        made.append(trial)
    return made


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
    return [_beside(*pair) for pair in _matched(listed, _may_stand_beside, "needle", seed)]


def _matched(
    listed: list[Trial], may: Callable[[Trial, Trial], bool], what: str, seed: int
) -> Iterator[tuple[Trial, Trial]]:
    """Each trial with the one that gives it something."""
    found = givers(listed, may, f"{what} of another trial", "questions, groups and answers", seed)
    return zip(listed, found, strict=True)


def _related(one: Trial, other: Trial) -> bool:
    """Whether two trials ask the same, share a group, or accept each other's answers."""
    same = normalize(one.question) == normalize(other.question)
    return same or share_a_group(one, other) or same_answer(one, other)


def _may_stand_beside(giver: Trial, taker: Trial) -> bool:
    """Whether the giver's needle, and its question, leave the taker's answer alone, and the taker's passage the giver's."""
    return not (
        _related(giver, taker)
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


@typed
def exchanged_needles(trials: Iterable[AnyTrial] | AnyTrial, *, seed: int = 0) -> list[Trial]:
    """The trials with each other's needles, so that no prompt answers its question; question and gold answer stay.

    Controls for heads that react to any sentence that stands out in the haystack, whatever was asked. A score of finding the
    answer, or a damage by ablation, must vanish here.

    The needle comes with its `needle_focus`; depth and total length (where `length` is given) stay, and so do `group` and
    `meta`. A needle goes only to a trial that asks another question, shares no group with its own trial, accepts none of its
    answers, and has none of its answers in that needle. Every needle is used once.

    Returns:
        Trials in the order given, with ids such as "S03-needle-of-S07".

    Raises ValueError if the trials allow no such exchange, for trials in tokens, without a needle or with repeated ids, and for
    a seed that is no whole number; TypeError for anything but trials.

    Example:
        >>> facts = lh.tasks.packaged(n=4)
        >>> lh.sanity.exchanged_needles(facts)[0].id
        'select-S06-T02-Melissa-0-needle-of-select-S27-T01-Charles-0'
    """
    return [
        replace(trial, id=f"{trial.id}-needle-of-{other.id}", needle=other.needle, needle_focus=other.needle_focus)
        for trial, other in _matched(with_needles(trials), _may_give, "needle", seed)
    ]


def _may_give(giver: Trial, taker: Trial) -> bool:
    """Whether the giver's needle leaves the taker's question without an answer."""
    return not (giver.needle == taker.needle or _related(giver, taker) or mentions(giver.needle, accepted(taker)))


@typed
def without_needle(trials: Iterable[AnyTrial] | AnyTrial) -> list[AnyTrial]:
    """The trials with more haystack where the needle was.

    Controls for questions that the model answers from what it knows, from the question or by chance; `answerable` drops them.
    Distractors go with it.

    A trial with a `length` is composed anew with that length: the haystack gains as many tokens as the needle had, if it has
    that many left. With `length` 0, and for trials in tokens, the prompt becomes shorter by the needle. Ids stay the same, so
    that both versions of a trial can be paired; `needle` of the encoded trial is None.

    Raises ValueError for trials without a needle, without a haystack, with repeated ids, or with nothing but a needle; TypeError
    for anything but trials.

    Example:
        >>> without = lh.sanity.without_needle(trials)
        >>> without[0].needle, len(trials[0].tokens) - len(without[0].tokens)
        (None, 9)
    """
    found: list[AnyTrial] = []
    for trial in trial_list(trials):
        if isinstance(trial, Trial):
            (trial,) = with_needles(trial)
            if not trial.haystack.strip():
                raise ValueError(
                    f"trial {trial.id} has no haystack to put in the needle's place: pass a Trial with one"
                )
            found.append(replace(trial, needle="", needle_focus="", distractors=()))
            continue
        if trial.needle is None:
            raise ValueError(f"trial {trial.id} has no needle: pass trials with one")
        kept = torch.ones(len(trial.tokens), dtype=torch.bool)
        for start, end in (trial.needle, *trial.distractors):
            kept[start:end] = False
        question = trial.question
        if question is not None:  # One inside a needle goes with it.
            start, end = (int(kept[:at].sum()) for at in question)
            question = (start, end) if bool(kept[slice(*question)].all()) else None
        bare = replace(trial, tokens=trial.tokens[kept], needle=None, question=question, distractors=(), corrupt=None)
        found.append(bare)
    return found


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
        >>> trial = lh.tasks.packaged(split="select", n=1, distractors=1)[0]
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
    return [
        replace(trial, id=f"{trial.id}-question-of-{other.id}", question=other.question, corrupt=())
        for trial, other in _matched(with_needles(trials), _may_ask, "question", seed)
    ]


def _may_ask(giver: Trial, taker: Trial) -> bool:
    """Whether the giver's question asks for nothing in the taker's needle."""
    return not _related(giver, taker)


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
