"""A verdict: the word that follows from numbers, and why. `verdicts.py` reads the numbers off a curve."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any

import pandas as pd

from lens_heads.runs.drawn import Tabled
from lens_heads.runs.typed import typed
from lens_heads.stats import Interval, RandomRank, n_to_tell
from lens_heads.stats.intervals import NOTHING

HOLDS, DOES_NOT, UNTOLD = "holds", "does not hold", "cannot be told"
MARGIN = 0.25
"""Nats. A task that loses less than this beyond random heads is spared."""
HALF = 0.5
"""The share of the needle's benefit that must be lost for "breaks"."""
ALPHA = 0.05
HALVED = 4
"""Half the effect takes so many times the trials."""


@dataclass(frozen=True)
class Verdict(Tabled):
    """An answer with its reasons.

    `word`: "holds", "does not hold" or "cannot be told"; `because`: why. `cost`: nats beyond the harder of the random controls
    (or beyond the other ranking), with its interval. `share`: the share of the needle's benefit that is lost. `ranks`: the
    ranking among random sets, by control. `trials`, and `sets`: how many random sets the undecided interval runs over, 0 for
    none. `would_tell`: the number of trials that would have told, with `sets_would_tell` random sets beside them, if the
    numbers seen are the true ones; None if it was told, or if no number within reach would.

    `question`: what was asked.

    Example:
        >>> found = lh.verdicts.costs_more(curve, "locos", "chance", k=2)
        >>> found.question, found.word, found.cost.low > 0
        ("locos's top 2 heads cost main more than chance's", 'holds', True)
    """

    question: str
    word: str
    because: str
    cost: Interval[float] = NOTHING
    share: Interval[float] = NOTHING
    ranks: dict[str, RandomRank] = field(default_factory=dict)
    trials: int = 0
    would_tell: int | None = None
    sets: int = 0

    @property
    def frame(self) -> pd.DataFrame:
        """One row: question, word, cost with low and high, p, trials, would_tell."""
        value, low, high = self.cost
        row = {"question": self.question, "word": self.word, "cost": value, "low": low, "high": high, "p": self.p}
        return pd.DataFrame([{**row, "trials": self.trials, "would_tell": self.would_tell}])

    def __str__(self) -> str:
        return f"{self.question}: {self.word}, {self.because}{self.more}"

    @property
    def more(self) -> str:
        """What would have told, as the end of a sentence; empty without a number.

        From the effect seen to half of it, which takes `HALVED` times as many.
        """
        if not self.would_tell:
            return ""
        sets = f" and {ranged(self.sets_would_tell)} random sets" if self.sets_would_tell else ""
        return f"; about {ranged(self.would_tell)} trials{sets} would tell"

    @property
    def sets_would_tell(self) -> int | None:
        """Random sets that would have told together with `would_tell` trials; None where the interval runs over none.

        Trials alone may never tell: where random sets differ, they carry the variance. As many times the trials and the sets
        divide all of its parts.
        """
        if not self.would_tell or not self.sets:
            return None
        return math.ceil(self.sets * self.would_tell / self.trials)

    @property
    def p(self) -> float:
        """The largest p among the random controls; NaN without any."""
        return max((rank.p for rank in self.ranks.values()), default=math.nan)

    def row(self) -> dict[str, Any]:
        """One row of a table."""
        parts = {"cost": self.cost, "share": self.share}
        bounds = {
            f"{name}{end}": getattr(part, at)
            for name, part in parts.items()
            for end, at in (("", "value"), ("_low", "low"), ("_high", "high"))
        }
        told = {"verdict": self.word, "because": self.because, "trials": self.trials}
        told |= {"would_tell": self.would_tell, "sets_would_tell": self.sets_would_tell}
        return {"question": self.question, **bounds, "p": self.p, **told}


def ranged(n: int) -> str:
    """How many would have told the effect seen, and one half as large."""
    return f"{n} to {HALVED * n}"


@typed
def judged_break(found: Verdict, *, share: float = HALF) -> Verdict:
    """`breaks` from its numbers: the cost, the share lost and the ranks of a verdict that has no word yet.

    `found`: with these numbers.

    Example:
        >>> asked = lh.verdicts.breaks(curve, k=2)
        >>> lh.verdicts.judged_break(asked).word == asked.word
        True
    """
    if found.share.high < share or found.cost.high < 0:
        missed = f", less than the {share:.0%} that it takes" if found.share.high < share else ""
        return replace(found, word=DOES_NOT, because=f"{found.because}{missed}")
    if not found.cost.low > 0:
        return untold(found, found.cost, 0.0)
    if math.isnan(found.share.low):
        return replace(found, because=f"{found.because} (the needle adds too little to say what share of it is lost)")
    if not found.share.low > share:
        return untold(replace(found, sets=0), found.share, share)  # No random set enters the share.
    return ranked(found)


def ranked(found: Verdict) -> Verdict:
    """Whether it holds by the rank among random sets."""
    worst = max(found.ranks.values(), key=lambda rank: rank.p)
    ranked = f"{found.because}, rank {worst.rank} among {worst.draws} random sets (p {worst.p:.3f})"
    return replace(found, word=HOLDS if worst.p <= ALPHA else UNTOLD, because=ranked)


@typed
def judged_spared(found: Verdict, upper: float, *, margin: float = MARGIN) -> Verdict:
    """`spared` from its numbers: the cost of a verdict that has no word yet, and its one-sided bound.

    `found`: with its cost. `upper`: that bound. `margin`: as in `spared`.

    Example:
        >>> asked = lh.verdicts.spared(curve, "chance", k=2)
        >>> lh.verdicts.judged_spared(asked, upper=9.0).word
        'holds'
    """
    if upper < margin or found.cost.low > margin:
        return replace(found, word=HOLDS if upper < margin else DOES_NOT)
    return untold(found, found.cost, margin)


def untold(verdict: Verdict, found: Interval[float], at: float) -> Verdict:
    """Cannot be told, and how many trials, and random sets, would have been needed."""
    if math.isnan(found.half_width):
        return replace(
            verdict, because=f"{verdict.because} (no interval below five trials, groups of trials or random sets)"
        )
    return replace(verdict, would_tell=n_to_tell(found.value, half_width=found.half_width, n=verdict.trials, at=at))


def nats(found: Interval[float], metric: str = "logprob") -> str:
    """A cost with its unit: nats, or for a share the metric's name."""
    return f"{_said(found, '.2f')} {'nats' if in_nats(metric) else metric}"


def in_nats(metric: str) -> bool:
    """Whether a metric is a log-probability, or a difference of two."""
    return metric.endswith(("logprob", "margin"))


def bound(upper: float) -> str:
    """A one-sided bound, if there is one."""
    return "" if math.isnan(upper) else f", one-sided bound {upper:.2f}"


def benefit(lost: Interval[float]) -> str:
    """The share of the needle's benefit that is lost, if it has an interval."""
    return "" if math.isnan(lost.low) else f", {_said(lost, '.0%')} of the needle's benefit lost"


def _said(found: Interval[float], form: str) -> str:
    """The number, and its interval where it has one."""
    value, low, high = (format(number, form) for number in found)
    return value if math.isnan(found.low) else f"{value} [{low}, {high}]"


@typed
def verdict_table(verdicts: list[Verdict]) -> pd.DataFrame:
    """One row per verdict.

    `verdicts`: in the order of the rows.

    Example:
        >>> lh.verdicts.verdict_table([lh.verdicts.harms(curve, k=2)])["question"].item()
        "locos's top 2 heads cost main more than random heads"
    """
    return pd.DataFrame([verdict.row() for verdict in verdicts])
