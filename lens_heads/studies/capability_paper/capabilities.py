"""The capabilities: trials that find their heads, other trials to ablate these on, and other data of the same kind."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from lens_heads import tasks
from lens_heads.answering.evaluation import METRICS
from lens_heads.studies.presets import TaskCall, beside, trials_of, tuples
from lens_heads.trials.trial import Trial


@dataclass(frozen=True)
class Capability:
    """The tasks of a capability, as calls without a number of trials.

    `select` finds its heads; None makes it a general task, on which other capabilities' heads are ablated. `test` has other
    items, and `kin` other data of the same capability; `kin_select` finds heads on such data, for the way back. `metric` finds
    heads and measures damage; `right` says which answers are right (0 or 1). `share` scales the preset's numbers of trials, for
    long prompts or costly choices; `most` is how many trials the data has. `max_new_tokens` are decoded; 0 if no metric reads
    text. `needs` names an argument that the user must supply.

    Raises ValueError for unknown metrics.
    """

    select: TaskCall | None
    test: TaskCall
    kin: TaskCall | None = None
    kin_select: TaskCall | None = None
    metric: str = "logprob"
    right: str = "greedy_match"
    share: float = 1.0
    most: int | None = None
    max_new_tokens: int = 0
    needs: str | None = None

    def __post_init__(self) -> None:
        for name in ("metric", "right"):
            if getattr(self, name) not in METRICS:
                raise ValueError(f"{name}={getattr(self, name)!r} is not a metric: use one of {', '.join(METRICS)}")

    def trials(self, call: TaskCall, n: int) -> list[Trial]:
        """The trials of one of the calls, `share` of n."""
        return trials_of(call, n=self.count(n))

    def count(self, n: int) -> int:
        """`share` of n, at least one and at most what the data has."""
        count = max(1, round(self.share * n))
        return count if self.most is None else min(count, self.most)

    def given(self, value: Any) -> Capability:
        """The capability with the argument that it needs, in all calls that take it."""
        needs = self.needs
        assert needs is not None

        def filled(call: TaskCall | None) -> TaskCall | None:
            takes = call is not None and needs in tasks.arguments_of(call[0])
            return (call[0], {**call[1], needs: value}) if call is not None and takes else call

        calls = {name: filled(getattr(self, name)) for name in ("select", "test", "kin", "kin_select")}
        return replace(self, **calls, needs=None)


def chance(trials: Sequence[Trial], right: str) -> float:
    """The share of answers that are right without the question, by guessing a choice or giving the most common answer.

    The most common answer is that of the other trials: with few trials, a trial's own answer would inflate it. It is 0 if a
    judge's own rule calls texts right ("correct": a program, a solution, any listed word), because nobody guesses these.
    """
    if right == "correct":
        return 0.0
    most = max(Counter(trial.answer for trial in trials).values())
    commonest = (most - 1) / max(1, len(trials) - 1)
    if right not in ("choice", "choice_norm"):
        return commonest
    return max(commonest, sum(1 / len(trial.choices) for trial in trials) / len(trials))


def with_choices(trials: Sequence[Trial], choices: int = 4, seed: int = 0) -> list[Trial]:
    """The trials with choices: their own, or the answer among answers of other trials; none if all have the same answer."""
    generator, made = np.random.default_rng(seed), []
    for trial in trials:
        others = sorted({other.answer for other in trials} - {trial.answer, *trial.aliases})
        drawn = [others[at] for at in generator.permutation(len(others))[: choices - 1]]
        made.append(trial if trial.choices or not drawn else replace(trial, choices=(trial.answer, *drawn)))
    return made


CAPABILITIES: dict[str, dict[str, Capability]] = {
    group: {name: Capability(**tuples(one)) for name, one in listed.items()}
    for group, listed in beside(__name__, "capabilities.json").items()
}
"""Those in `capabilities.json`, by group.

`offline` need no download. Kin: products for sums and differences, questions that share words with the needle, countries of
cities for capitals, longer lists. Most use the log-probability of the answer, which varies more than that among the choices
(standard deviation over 41 masks of a tenth of Gemma-3-270m's heads, 6 trials: capitals 1.3 nats against 0.04, induction 2.6
against 1.5). Rhymes and continuations use choices, because many answers are right and the log-probability of one says little.

`hub` are the paper's tasks, in accuracy: four capabilities, and four general tasks that their heads should spare. Arithmetic is
the kin of GSM8K, HumanEval that of MBPP. Each split of swearing has half of its 48 scenes, hence 24 trials of 100."""
