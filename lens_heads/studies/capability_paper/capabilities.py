"""Which capabilities there are: the trials that find their heads, others to ablate them on, and other data of their kind."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from lens_heads import tasks
from lens_heads.ablation.choices import CHOICE_METRICS
from lens_heads.ablation.evaluation import METRICS
from lens_heads.studies.calls import TaskCall
from lens_heads.trials.trial import Trial


@dataclass(frozen=True)
class Capability:
    """How a capability is asked for: calls of tasks, without how many trials.

    `select` finds its heads; None: a general task, on which other capabilities' heads are ablated. `test` are other items,
    `kin` is other data of the same capability. `metric` is what heads are found by and damage is measured in, `right` says
    which answers are right (0 or 1), of choices against chance. `share` of the preset's numbers of trials are made: less
    where prompts are long, or every choice is run. `max_new_tokens` are decoded; 0 where no metric reads text. `needs`: an
    argument of the tasks that the user has to give.

    Raises ValueError for metrics that there are none of.
    """

    select: TaskCall | None
    test: TaskCall
    kin: TaskCall | None = None
    metric: str = "logprob"
    right: str = "greedy_match"
    share: float = 1.0
    max_new_tokens: int = 0
    needs: str | None = None

    def __post_init__(self) -> None:
        for name in ("metric", "right"):
            if getattr(self, name) not in METRICS:
                raise ValueError(f"{name}={getattr(self, name)!r} is no metric: use one of {', '.join(METRICS)}")

    def trials(self, call: TaskCall, n: int) -> list[Trial]:
        """The trials of one of the calls, about `share` of n; without the choices that no metric asks for, each a run more."""
        name, arguments = call
        made: list[Trial] = tasks.load(name, **arguments, n=self.count(n))
        asked = {self.metric, self.right} & set(CHOICE_METRICS)
        return made if asked else [replace(trial, choices=()) for trial in made]

    def count(self, n: int) -> int:
        """How many trials that is."""
        return max(1, round(self.share * n))

    def given(self, value: Any) -> Capability:
        """With the argument that the user had to give in all of its calls that take it."""
        needs = self.needs
        assert needs is not None

        def filled(call: TaskCall | None) -> TaskCall | None:
            if call is None or needs not in tasks.arguments_of(call[0]):
                return call
            return call[0], {**call[1], needs: value}

        return replace(self, select=filled(self.select), test=filled(self.test), kin=filled(self.kin), needs=None)


def chance(trials: Sequence[Trial], right: str) -> float:
    """How often one is right without the question: by any of the choices, or by always giving the commonest answer.

    The commonest of the other trials', each time: of few trials the commonest of all would be right once by itself. 0 for texts
    that a judge's own rule calls right ("correct": a program, a solution, any word of a list), which nobody guesses.
    """
    if right == "correct":
        return 0.0
    most = max(Counter(trial.answer for trial in trials).values())
    commonest = (most - 1) / max(1, len(trials) - 1)
    if right not in ("choice", "choice_norm"):
        return commonest
    return max(commonest, sum(1 / len(trial.choices) for trial in trials) / len(trials))


def _split(name: str, **arguments: Any) -> tuple[TaskCall, TaskCall]:
    """A task of this package on its two splits."""
    return (name, {**arguments, "split": "select"}), (name, {**arguments, "split": "test"})


OFFLINE: dict[str, Capability] = {
    "arithmetic": Capability(
        *_split("arithmetic", digits=1), kin=("arithmetic", {"digits": 1, "operations": ("*",), "split": "test"})
    ),
    "retrieval": Capability(
        *_split("packaged", context_length=250),
        kin=("packaged", {"split": "test", "context_length": 250, "questions": "direct"}),
        share=0.5,
    ),
    "capitals": Capability(*_split("capitals"), kin=("parametric", {"source": "cities"})),
    "induction": Capability(*_split("induction"), kin=("induction", {"words": 20, "split": "test", "seed": 1})),
    "rhyme": Capability(*_split("rhyme"), metric="choice_logprob", right="choice", share=0.5),
    "continuation": Capability(*_split("continuation"), metric="choice_logprob", right="choice", share=0.5),
}
"""What needs no download. Kin: products for sums and differences, questions that share words with the needle, countries of
cities for capitals, longer lists.

The log-probability of the answer where there is one: it moves further than that among the choices (standard deviation over 41
masks of a tenth of Gemma-3-270m's heads, 6 trials: capitals 1.3 nats against 0.04, induction 2.6 against 1.5). Among the choices
where many answers are right, and the log-probability of one of them says little: rhymes, and how a story goes on."""

HUB: dict[str, Capability] = {
    "gsm8k": Capability(
        ("gsm8k", {"split": "train"}),
        ("gsm8k", {"split": "test"}),
        kin=("arithmetic", {"source": "hub", "split": "test"}),
        metric="correct",
        right="correct",
        max_new_tokens=256,
    ),
    "mbpp": Capability(
        ("mbpp", {"split": "train"}),
        ("mbpp", {"split": "test"}),
        kin=("humaneval", {}),
        metric="correct",
        right="correct",
        max_new_tokens=256,
        needs="allow_code_execution",
    ),
    "rhyme": Capability(*_split("rhyme"), metric="correct", right="correct", max_new_tokens=8),
    "swearing": Capability(
        *_split("swearing"), metric="correct", right="correct", max_new_tokens=20, needs="words", share=0.24
    ),
    "hellaswag": Capability(None, ("hellaswag", {}), metric="choice_norm", right="choice_norm"),
    "boolq": Capability(None, ("boolq", {}), metric="choice", right="choice"),
    "arc_challenge": Capability(None, ("arc_challenge", {}), metric="choice_norm", right="choice_norm"),
    "mmlu": Capability(None, ("mmlu", {}), metric="choice", right="choice"),
}
"""The paper's tasks, in accuracy: four capabilities, and four general tasks that their heads should spare. Arithmetic is GSM8K's
kin, HumanEval MBPP's. Of the 48 scenes of swearing half are in each split, so it has 24 trials of 100."""
