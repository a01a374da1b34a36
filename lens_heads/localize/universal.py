"""Universal heads: those that many unrelated capabilities need, and rankings without them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from scipy import stats as scipy_stats

from lens_heads.compare.overlap import check_pair
from lens_heads.heads.head import Head
from lens_heads.heads.scores import HeadScores

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Universal:
    """Heads in the top k of at least `at_least` of the tasks, the most shared first, with the tasks that need each.

    `expected`: how many there would be if every task's k heads were drawn at random: n * P(Binomial(tasks, k / n) >=
    at_least) of n heads, exact. `tasks`: by head, the names of its tasks, of universal heads and of all others in a top k.
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
        """One row per head in any top k: head, n_tasks, tasks, universal; the most shared first."""
        import pandas as pd

        rows = [
            {"head": str(head), "n_tasks": len(names), "tasks": ", ".join(names), "universal": head in self.heads}
            for head, names in sorted(self.tasks.items(), key=lambda item: (-len(item[1]), item[0]))
        ]
        return pd.DataFrame(rows)

    def specific(self, scores: HeadScores, k: int | None = None) -> list[Head]:
        """The k best heads of a task (as many as the universal ones were looked for among) that are not universal."""
        if scores.values.numel() != self.n_heads:
            raise ValueError(
                f"{scores.method} scores {scores.values.numel()} heads, these are of {self.n_heads}: one model is needed"
            )
        left = [head for head in scores.ranking() if head not in self.heads]
        k = self.k if k is None else k
        if not 1 <= k <= len(left):
            raise ValueError(f"k={k}: {scores.method} has {len(left)} heads that are not universal")
        return left[:k]

    def __repr__(self) -> str:
        named = ", ".join(f"{head} ({len(self.tasks[head])})" for head in self.heads) or "none"
        return (
            f"Universal({named}: in the top {self.k} of at least {self.at_least} of {self.n_tasks} tasks; {self.expected:.2g} "
            "heads by chance)"
        )


def universal_heads(scores_by_task: Mapping[str, HeadScores], k: int = 5, at_least: int = 3) -> Universal:
    """Heads among the k best of at least so many tasks   (Compressed Sensing for Capability Localization)

    Such heads serve everything (attention sinks among them, in Llama-3.1-8B L0H31, L1H29 and L1H31), so they are reported
    apart, and `Universal.specific` ranks a task's heads without them. Tasks should be unrelated: three arithmetic sets share
    heads for another reason. Find each task's with masks of another seed: heads that are often ablated together with a harmful
    one share its blame, in the same masks for every task. Heads that do not score on the side that hurts do not count.

    Raises ValueError for fewer tasks than `at_least`, `at_least` below 2, scores of different models, and k outside 1 to the
    number of heads.
    """
    if not 2 <= at_least <= len(scores_by_task):
        raise ValueError(
            f"at_least={at_least} of {len(scores_by_task)} tasks: a universal head is one of 2 tasks or more, give as many"
        )
    first = next(iter(scores_by_task.values()))
    found: dict[Head, tuple[str, ...]] = {}
    for name, scores in scores_by_task.items():
        check_pair(first, scores)
        if not scores.top(k):
            raise ValueError(f"k={k}: no head is among the best {k} of a task")
        for head in scores.top(k):
            if scores.sign * scores[head] > 0:
                found[head] = (*found.get(head, ()), name)
    counts = Counter({head: len(names) for head, names in found.items()})
    n = first.values.numel()
    chance = n * float(scipy_stats.binom.sf(at_least - 1, len(scores_by_task), k / n))
    heads = [head for head, count in sorted(counts.items(), key=lambda item: (-item[1], item[0])) if count >= at_least]
    return Universal(heads, found, k, at_least, len(scores_by_task), n, chance)
