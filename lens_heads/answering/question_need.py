"""Do these trials need their question? Without that, nothing follows about retrieval by meaning."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Unpack

from jaxtyping import Float
from torch import Tensor

from lens_heads.answering.evaluation import Evaluation, evaluate
from lens_heads.model.geometry import Model
from lens_heads.model.workers import shared
from lens_heads.runs import checks
from lens_heads.runs.drawn import Tabled
from lens_heads.runs.options import RunOptions, inside
from lens_heads.runs.typed import typed, typed_methods
from lens_heads.stats import Interval, mean_interval, ratio_interval
from lens_heads.trials.checked_tokens import trial_list
from lens_heads.trials.exchanges import ask_twice, exchange_questions, permuted_questions, without_needle
from lens_heads.trials.trial import AnyTrial, Trial

if TYPE_CHECKING:
    import pandas as pd

HALF = 0.5
METRIC = "logprob"


@typed_methods
@dataclass(frozen=True, eq=False)
class QuestionNeed(Tabled):
    """How likely answers are with their own question, with another one, and without their needle; see `question_need`.

    `asked`, `other`, `without`: the three evaluations, of the same trials in the same order. `decides`: whether more than half of
    what the needle is worth goes with another question; False if less, None if the interval holds both.

    Example:
        >>> found = lh.question_need(untrained, lh.tasks.packaged(n=6, context_length=320))
        >>> found.decides is True
        False
    """

    asked: Evaluation
    other: Evaluation
    without: Evaluation

    def benefit(self, *, level: float = 0.95) -> Interval[float]:
        """By how many nats a token the answer is likelier with its own question than with the other."""
        value, low, high = map(
            float, mean_interval(self._lost(self.other), groups=self.groups, level=checks.level(level))
        )
        return Interval(value, low, high, level)

    def share(self, *, level: float = 0.95) -> Interval[float]:
        """The share of what the needle is worth that goes with another question: (asked - other) / (asked - without)."""
        lost, whole = self._lost(self.other), self._lost(self.without)
        return ratio_interval(lost[None], whole[None], groups=self.groups, level=checks.level(level))

    @property
    def decides(self) -> bool | None:
        share = self.share()
        return True if share.low > HALF else False if share.high < HALF else None

    @property
    def groups(self) -> Sequence[Sequence[str]]:
        return self.asked.groups

    @property
    def frame(self) -> pd.DataFrame:
        """One row per prompt: "own question", "other question", "no needle", with the mean log-probability and its bounds."""
        import pandas as pd

        parts = {"own question": self.asked, "other question": self.other, "no needle": self.without}
        return pd.DataFrame([{"prompt": name, **part.interval(METRIC)._asdict()} for name, part in parts.items()])

    def __str__(self) -> str:
        share, means = self.share(), [one.mean(METRIC) for one in (self.asked, self.other, self.without)]
        words = {
            True: "the question decides",
            False: "the question does not decide",
            None: "it cannot be told whether the question decides",
        }
        said = f"takes {share.said()} of what the needle is worth"
        if share.value != share.value:
            said = "cannot take what the needle is worth, which is nothing"
        return (
            f"{words[self.decides]}: answers at {means[0]:.2f} nats with their question, {means[1]:.2f} with another and "
            f"{means[2]:.2f} without the needle; another question {said}; {len(self.asked.trial_ids)} trials"
        )

    __repr__ = __str__

    def _lost(self, other: Evaluation) -> Float[Tensor, " trial"]:
        return self.asked.metrics[METRIC].double() - other.metrics[METRIC].double()


@typed
@shared
def question_need(
    model: Model, trials: Iterable[AnyTrial] | AnyTrial, *, seed: int = 0, **run: Unpack[RunOptions]
) -> QuestionNeed:
    """Would the model write the same answer whatever is asked? Then heads of these trials are none of retrieval by meaning.

    Every trial also runs with another question, and without its needle. Of a passage with one name, a model may write that name
    under any question: such trials show heads that write the one name of a passage.

    Args:
        trials: with a question, a needle and a haystack. Those with a distractor are asked for that (`tasks.exchange_questions`),
            the others get the question of another trial (`sanity.permuted_questions`).
        seed: of which trial gets whose question.
        **run: see `runs.options.RunOptions`; subfolders `other` and `without` of `out` hold the other runs.

    Returns a `QuestionNeed`, which says whether the question decides.

    Cost: three forwards a trial. ValueError for a mixture of trials with and without distractors, and for what has no needle.

    `model`: as in `rank`.

    Example:
        >>> found = lh.question_need(untrained, lh.tasks.packaged(n=6, context_length=320))
        >>> list(found.frame["prompt"])
        ['own question', 'other question', 'no needle']
    """
    listed = trial_list(trials)
    others = exchange_questions(listed) if ask_twice(listed) else permuted_questions(listed, seed=seed)
    asked_otherwise = [_asking(one, other) for one, other in zip(listed, others, strict=True)]
    parts = {"other": asked_otherwise, "without": without_needle(listed)}
    found = [evaluate(model, listed, generate=False, **run)]
    found += [evaluate(model, some, generate=False, **inside(run, name)) for name, some in parts.items()]
    kept = [id for id in found[0].trial_ids if all(id in one.trial_ids for one in found)]
    return QuestionNeed(*(one.of(kept) for one in found))


def _asking(trial: AnyTrial, other: AnyTrial) -> AnyTrial:
    """The trial, its gold answer included, with the question of another."""
    if isinstance(trial, Trial):
        assert isinstance(other, Trial)
        return replace(trial, question=other.question, corrupt=())
    assert not isinstance(other, Trial)
    return replace(trial, tokens=other.tokens, corrupt=None, wrong=None, question=other.question)
