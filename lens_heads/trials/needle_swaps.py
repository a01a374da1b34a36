"""Prompts that do not answer their question: with the needle of another trial, or with none."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import torch

from lens_heads.runs.typed import typed
from lens_heads.trials.checked_tokens import trial_list
from lens_heads.trials.containment import normalize
from lens_heads.trials.exchanges import accepted, givers, mentions, same_answer, share_a_group, with_needles
from lens_heads.trials.trial import AnyTrial, Trial


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
    listed = with_needles(trials)
    found = givers(listed, _may_give, "needle of another trial", "questions, groups and answers", seed)
    return [
        replace(trial, id=f"{trial.id}-needle-of-{other.id}", needle=other.needle, needle_focus=other.needle_focus)
        for trial, other in zip(listed, found, strict=True)
    ]


def _may_give(giver: Trial, taker: Trial) -> bool:
    """Whether the giver's needle leaves the taker's question without an answer."""
    return not (
        giver.needle == taker.needle
        or normalize(giver.question) == normalize(taker.question)
        or share_a_group(giver, taker)
        or same_answer(giver, taker)
        or mentions(giver.needle, accepted(taker))
    )


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
