"""universal_heads: heads that many unrelated capabilities need."""

from __future__ import annotations

import itertools
import warnings
from dataclasses import dataclass

import pandas as pd
from scipy.stats import binom

from lens_heads.compare.overlap import check_pair
from lens_heads.heads.head import Head
from lens_heads.heads.made_on import shared as shared_trials
from lens_heads.heads.named import AnyRankings, by_name
from lens_heads.heads.scores import HeadScores
from lens_heads.runs import checks
from lens_heads.runs.drawn import Tabled
from lens_heads.runs.typed import typed, typed_methods
from lens_heads.runs.warned import users_line


@typed_methods
@dataclass(frozen=True)
class Universal(Tabled):
    """Heads in the top k of at least `at_least` tasks, most shared first.

    `tasks`: for every head in any top k, most shared first, the names of its tasks. `expected`: the number of universal heads
    if every task's k heads were drawn at random from n heads, exactly n * P(Binomial(n_tasks, k / n) >= at_least).

    `n_heads`: of the model.

    Example:
        >>> found = lh.compare.universal_heads({"names": scores, "dates": scores, "places": scores}, k=2)
        >>> found.heads, round(found.expected, 3)
        ([Head(0, 0), Head(1, 0)], 0.125)
    """

    heads: list[Head]
    tasks: dict[Head, tuple[str, ...]]
    k: int
    at_least: int
    n_tasks: int
    n_heads: int
    expected: float

    @property
    def frame(self) -> pd.DataFrame:
        """One row per head in any top k, most shared first: head, n_tasks, tasks, universal."""
        rows = [
            {"head": str(head), "n_tasks": len(names), "tasks": ", ".join(names), "universal": head in self.heads}
            for head, names in self.tasks.items()
        ]
        return pd.DataFrame(rows)

    def specific(self, scores: HeadScores, *, k: int | None = None) -> list[Head]:
        """The k best heads of a task that are not universal; k defaults to the k of this search."""
        if len(scores.flat) != self.n_heads:
            found = f"{scores.method} scores {len(scores.flat)} heads, but the universal heads come from {self.n_heads}"
            raise ValueError(f"{found}. Use scores of the same model.")
        left = [head for head in scores.ranking() if head not in self.heads]
        k = self.k if k is None else k
        remedy = f", the heads of {scores.method} that are not universal"
        return left[: checks.whole_number("k", k, 1, len(left), remedy)]

    def __repr__(self) -> str:
        named = ", ".join(f"{head} ({len(self.tasks[head])})" for head in self.heads) or "none"
        return (
            f"Universal({named}: in the top {self.k} of at least {self.at_least} of {self.n_tasks} tasks; {self.expected:.2g} "
            "heads by chance)"
        )


@typed
def universal_heads(rankings: AnyRankings, *, k: int = 5, at_least: int = 3) -> Universal:
    """Heads among the k best of at least `at_least` tasks   (Compressed Sensing for Capability Localization)

    These heads serve every task (some are attention sinks; in Llama-3.1-8B: L0H31, L1H29, L1H31), and `Universal.specific`
    ranks a task's heads without them. Only heads that score on the harmful side count. Use unrelated tasks, and another mask
    seed for each: with the same masks, heads that are often ablated with a harmful head share its blame in every task.

    Raises ValueError for fewer tasks than `at_least`, `at_least` below 2, scores of different models, and k outside 1 to the
    number of heads.

    `rankings`: one of each task.

    Example:
        >>> found = lh.compare.universal_heads({"names": scores, "dates": scores, "places": scores}, k=2)
        >>> set(found.heads) == set(scores.top(2))
        True
    """
    named = by_name(rankings)
    tasks = len(named)
    if tasks < 2:
        raise ValueError(f"{tasks} tasks: at least 2 are required for heads to be shared")
    checks.whole_number("at_least", at_least, 2, tasks, ", the number of tasks")
    checks.whole_number("k", k)
    first = next(iter(named.values()))
    for (one, a), (other, b) in itertools.combinations(named.items(), 2):
        if shared_trials(a.made_on, b.made_on):
            warnings.warn(
                f"tasks {one!r} and {other!r} were scored on the same trials, so that heads they share are no evidence: use "
                "other trials for each",
                stacklevel=users_line(),
            )
            break
    found: dict[Head, tuple[str, ...]] = {}
    for name, scores in named.items():
        check_pair(first, scores)
        for head in scores.top(k):
            if scores.sign * scores[head] > 0:
                found[head] = (*found.get(head, ()), name)
    shared = dict(sorted(found.items(), key=lambda item: (-len(item[1]), item[0])))
    heads = [head for head, names in shared.items() if len(names) >= at_least]
    n = len(first.flat)
    chance = n * float(binom.sf(at_least - 1, tasks, k / n))
    return Universal(heads, shared, k, at_least, tasks, n, chance)
