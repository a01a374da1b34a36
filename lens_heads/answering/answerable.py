"""Which trials count: those that are right with the needle and not without it."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from jaxtyping import Float
from torch import Tensor

from lens_heads.runs.drawn import Tabled
from lens_heads.runs.typed import typed
from lens_heads.runs.warned import users_line
from lens_heads.trials.checked_tokens import trial_list
from lens_heads.trials.trial import AnyTrial

if TYPE_CHECKING:
    import pandas as pd


class Evaluated(Protocol):
    """What is read of an `Evaluation`: `trial_ids`, and per metric a value for each of them ([trial])."""

    @property
    def trial_ids(self) -> Sequence[str]: ...
    @property
    def metrics(self) -> Mapping[str, Float[Tensor, " trial"]]: ...


@dataclass(frozen=True, eq=False)
class Answerable(Tabled):
    """The `trials` that are right with their needle and not without it, in the order given.

    `with_needle` and `without_needle` are the shares of the `n` trials that are right in either version, from 0 to 1.

    Example:
        >>> bare = lh.evaluate(model, lh.sanity.without_needle(trials), max_new_tokens=1)
        >>> found = lh.answering.answerable(trials, lh.evaluate(model, trials, max_new_tokens=1), bare)
        >>> found.n, found.with_needle, found.without_needle
        (8, 1.0, 0.0)
    """

    trials: tuple[AnyTrial, ...]
    with_needle: float
    without_needle: float
    n: int

    @property
    def frame(self) -> pd.DataFrame:
        """One row: kept (how many trials), with_needle, without_needle, n."""
        import pandas as pd

        return pd.DataFrame([vars(self) | {"trials": len(self.trials)}]).rename(columns={"trials": "kept"})

    def __repr__(self) -> str:
        shares = f"right with needle {self.with_needle:.2f}, without {self.without_needle:.2f}"
        return f"Answerable({len(self.trials)} of {self.n} trials; {shares})"


@typed
def answerable(
    trials: Iterable[AnyTrial] | AnyTrial, with_needle: Evaluated, without: Evaluated, *, metric: str = "correct"
) -> Answerable:
    """The trials whose answer comes from the needle: right with it, not right without it.

    A trial that is answered without its needle says nothing about heads that read the needle, so it does not count.

    Args:
        trials: as they were evaluated, with their needles.
        with_needle: `evaluate(model, trials)`.
        without: `evaluate(model, without_needle(trials))`, whose ids are the same. Each may contain further trials.
        metric: one that is 1 (right) or 0 in both, e.g. "correct", "greedy_match" or "choice".

    Raises ValueError for no trials, repeated ids, a trial that an evaluation lacks, and a metric that is missing or has other
    values than 0 and 1; TypeError for anything but trials.

    Example:
        >>> bare = lh.evaluate(model, lh.sanity.without_needle(trials), max_new_tokens=1)
        >>> found = lh.answering.answerable(trials, lh.evaluate(model, trials, max_new_tokens=1), bare)
        >>> len(found.trials)
        8
    """
    listed = trial_list(trials)
    found = _right(listed, with_needle, metric, "with")
    bare = _right(listed, without, metric, "without")
    if sum(bare) > sum(found):
        warnings.warn(
            f"more trials are right without their needle ({sum(bare)} of {len(listed)}) than with it ({sum(found)}): are the two "
            "evaluations exchanged?",
            stacklevel=users_line(),
        )
    kept = tuple(trial for trial, one, other in zip(listed, found, bare, strict=True) if one and not other)
    return Answerable(kept, sum(found) / len(listed), sum(bare) / len(listed), len(listed))


def _right(trials: Sequence[AnyTrial], evaluation: Evaluated, metric: str, which: str) -> list[bool]:
    """Whether each trial is right."""
    if metric not in evaluation.metrics:
        known = ", ".join(evaluation.metrics)
        raise ValueError(f"metric {metric!r}: the evaluation {which} needle has only {known}")
    values = dict(zip(evaluation.trial_ids, evaluation.metrics[metric].tolist(), strict=True))
    for trial in trials:
        if trial.id not in values:
            raise ValueError(f"trial {trial.id} is not in the evaluation {which} needle: evaluate it, or leave it out")
        if values[trial.id] not in (0, 1):
            value = f"{values[trial.id]:.3g} for trial {trial.id}"
            raise ValueError(f"metric {metric!r} is {value}, but must be 0 or 1: use e.g. 'correct' or 'greedy_match'")
    return [values[trial.id] == 1 for trial in trials]
