"""Greater than: something began in one year; in which later year did it end? A comparison of numbers."""

from __future__ import annotations

import random

from lens_heads.runs import checks
from lens_heads.runs.typed import typed
from lens_heads.tasks.sampling import SPLITS, check_known
from lens_heads.tasks.templates import judge, template
from lens_heads.trials.trial import Trial

CENTURIES = range(11, 18)
"""As the paper has them: 1100 to 1799."""
APART = 10
"""Years between the first year and either choice, at least, so that their tens differ."""


@typed
def greater_than(*, n: int = 100, split: str = "select", seed: int = 0, chat: bool | None = False) -> list[Trial]:
    """Two digits that continue "The war lasted from the year 1732 to the year 17" and are above 32, after two examples.

    Args, besides those of `lens_heads.tasks`:
        n: number of trials, each with its own years.
        split: which sixteen events to use; the two share none.

    Returns:
        Trials with ids such as "greater_than-select-0-17" (split, seed, number). The choices are a year after the
        first and one as long before it. The answer continues the number, without a space. `meta` holds the event and the first
        year. A text is right if it goes on with any later year of the century. The counterfactual begins in the century's first
        year, after which either choice may follow.

    The task of Hanna et al. (arXiv 2305.00586) with other events, and with examples. There the measure is the probability of all
    later years minus that of all others, of a model with a token for every two digits; here it is that of one year against one
    other, since most tokenizers write numbers digit by digit.

    Example:
        >>> trial = lh.tasks.greater_than(n=1)[0]
        >>> print(trial.question, trial.choices)
        The campaign lasted from the year 1353 to the year 13 ('76', '30')
    """
    check_known("split", split, SPLITS)
    checks.count("n", n)
    rng, written = random.Random(f"greater_than-{split}-{checks.seed(seed)}"), template("greater_than")
    trials: list[Trial] = []
    for number in range(n):
        event, century = rng.choice(written["events"][split]), rng.choice(CENTURIES)
        start = rng.randrange(2 + APART, 100 - APART)
        apart = rng.randint(APART, min(start - 2, 99 - start))
        year, earlier = f"{start + apart:02}", f"{start - apart:02}"
        asked = {"event": event, "century": century}
        trials.append(
            Trial(
                id=f"greater_than-{split}-{seed}-{number}",
                question=written["question"].format(**asked, start=f"{start:02}"),
                answer=year,
                joined=True,
                template=written["template"],
                chat=chat,
                meta={"kind": "greater_than", "event": event, "first": f"{century}{start:02}"},
                judge=judge(written, labels=tuple(f"{later:02}" for later in range(start + 1, 100))),
                corrupt=written["question"].format(**asked, start="01"),
                choices=tuple(rng.sample([year, earlier], 2)),
            )
        )
    return trials
