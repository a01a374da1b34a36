"""Ability first: does the model do the task at all? Without it, nothing follows about heads for it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Unpack

import torch
from jaxtyping import Float
from torch import Tensor

from lens_heads.answering.evaluation import Evaluation, evaluate
from lens_heads.model.geometry import Model
from lens_heads.model.workers import shared
from lens_heads.runs import checks
from lens_heads.runs.drawn import Tabled
from lens_heads.runs.options import RunOptions, inside
from lens_heads.runs.typed import typed, typed_methods
from lens_heads.stats import Interval, mean_interval
from lens_heads.trials.checked_tokens import trial_list
from lens_heads.trials.exchanges import ask_twice, exchange_questions
from lens_heads.trials.trial import AnyTrial

if TYPE_CHECKING:
    import pandas as pd


NEXT_TO_NOTHING = 0.1
"""The way from chance to always right of which less is no ability: where the whole interval is below it, the task is not done."""


@typed_methods
@dataclass(frozen=True, eq=False)
class Ability(Tabled):
    """What a model can do of a task: how often it chooses the right answer, by how much, and what it writes.

    `asked`: the trials as they are. `exchanged`: the same passages with their distractors' questions, or None for trials without.
    `chance`: the share of right choices of a model that knows nothing.

    Example:
        >>> found = lh.ability(untrained, lh.tasks.capitals(n=8))
        >>> found.chance, found.does, found.exchanged
        (0.25, False, None)
    """

    asked: Evaluation
    exchanged: Evaluation | None
    chance: float

    def choice(self, *, level: float = 0.95) -> Interval[float]:
        """The share of right choices, over both questions of each trial, with its bounds.

        A model that prefers a name whatever is asked is right under one of two questions: at chance.
        """
        return self._mean("choice", level).within(0.0, 1.0)

    def margin(self, *, level: float = 0.95) -> Interval[float]:
        """log p(right) - log p(the likeliest other choice) in nats, over both questions of each trial."""
        return self._mean("choice_margin", level)

    @property
    def does(self) -> bool:
        """Whether it chooses better than chance: the interval of `choice` lies above."""
        return self.choice().low > self.chance

    @property
    def frame(self) -> pd.DataFrame:
        """One row per measure: measure, value, low, high, chance. NaN bounds below five trials or groups."""
        import pandas as pd

        rows: list[dict[str, Any]] = []
        parts = {"as asked": self.asked} | ({"exchanged": self.exchanged} if self.exchanged is not None else {})
        both = ", both questions" if self.exchanged is not None else ""
        whole = {f"right choice{both}": self.choice(), f"margin in nats{both}": self.margin()}
        for measure, found in whole.items():
            rows.append({"measure": measure, **found._asdict(), "chance": self.chance if "right" in measure else 0.0})
        for name, part in parts.items():
            for metric in ("choice", "choice_margin", "logprob", "correct"):
                if metric in part.metrics:
                    chance = {"choice": self.chance, "choice_margin": 0.0}.get(metric)
                    rows.append({"measure": f"{metric}, {name}", **part.interval(metric)._asdict(), "chance": chance})
        return pd.DataFrame(rows)

    def __str__(self) -> str:
        choice, margin = self.choice(), self.margin()
        little = self.chance + NEXT_TO_NOTHING * (1 - self.chance)
        unsure = "is not shown to do" if choice.high == choice.high else "cannot be told to do"
        word = "does" if self.does else "does not do" if choice.high < little else unsure
        both = " under both questions" if self.exchanged is not None else ""
        return (
            f"{word} this task: right in {choice.said()} of choices{both}, chance {self.chance:.2f}; margin {margin.said()} "
            f"nats; {len(self.asked.trial_ids)} trials"
        )

    __repr__ = __str__

    def _mean(self, metric: str, level: float) -> Interval[float]:
        values = self._both(metric)
        value, low, high = map(float, mean_interval(values, groups=self.asked.groups, level=checks.level(level)))
        return Interval(value, low, high, level)

    def _both(self, metric: str) -> Float[Tensor, " trial"]:
        parts = [self.asked] + ([self.exchanged] if self.exchanged is not None else [])
        return torch.stack([part.metrics[metric].double() for part in parts]).mean(0)


@typed
@shared
def ability(
    model: Model, trials: Iterable[AnyTrial] | AnyTrial, *, generate: bool = False, **run: Unpack[RunOptions]
) -> Ability:
    """Can the model do this task? Its choices, their margin and, with `generate`, its texts, before anything is said of heads.

    Args:
        trials: with `choices`. Those with a distractor that has a question are also asked that one: the same passage, another
            right answer, so that a liking for a name, or for the first or the last one, ends at chance.
        generate: also write answers and judge them.
        **run: see `runs.options.RunOptions`; the exchanged questions run in a subfolder `exchanged` of `out`.

    Returns an `Ability`, which says "does this task" only where the interval of right choices lies above chance.

    Cost: one forward a trial, and as many again for exchanged questions. ValueError for trials without choices, a mixture of
    trials with and without distractors, and what `evaluate` refuses.

    `model`: as in `rank`.

    Example:
        >>> found = lh.ability(untrained, lh.tasks.capitals(n=8))
        >>> found.chance, found.does
        (0.25, False)
    """
    listed = trial_list(trials)
    bare = next((one for one in listed if not one.choices), None)
    if bare is not None:
        raise ValueError(
            f"trial {bare.id} has no choices to choose from: give choices=, or take packaged(distractors=1)"
        )
    chance = sum(1 / len(one.choices) for one in listed) / len(listed)
    twice = ask_twice(listed)
    first = evaluate(model, listed, generate=generate, **run)
    if not twice:
        return Ability(first, None, chance)
    second = evaluate(model, exchange_questions(listed), generate=generate, **inside(run, "exchanged"))
    if [f"{id}-exchanged" for id in first.trial_ids] != list(second.trial_ids):  # One of them failed, with a warning.
        first, second = _common(first, second)
    return Ability(first, second, chance)


def _common(first: Evaluation, second: Evaluation) -> tuple[Evaluation, Evaluation]:
    """The trials that both have, in the order of the first."""
    kept = [id for id in first.trial_ids if f"{id}-exchanged" in second.trial_ids]
    return first.of(kept), second.of([f"{id}-exchanged" for id in kept])
