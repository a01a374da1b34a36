"""Who may get what from whom: a random exchange between trials in which every trial gets what is not its own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import TypeVar

import numpy as np
from scipy.optimize import linear_sum_assignment

from lens_heads.heads.grouping import named_groups
from lens_heads.runs import checks
from lens_heads.trials.checked_tokens import trial_list
from lens_heads.trials.containment import contains
from lens_heads.trials.trial import AnyTrial, Trial

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
