"""Function-vector heads (Todd et al., arXiv 2310.15213): whose mean output in context, put into one run, brings the answer?"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Unpack

from jaxtyping import Int
from torch import Tensor

from lens_heads.answering.patch_metrics import Measure
from lens_heads.heads.scores import HeadScores
from lens_heads.interventions.vectors import HeadVectors, task_vectors
from lens_heads.model.geometry import Model
from lens_heads.ranking.causal.patching import patch_heads
from lens_heads.ranking.material import Material
from lens_heads.ranking.method import Method, total
from lens_heads.runs.options import LoopOptions
from lens_heads.runs.typed import typed
from lens_heads.trials.encoded import EncodedTrial
from lens_heads.trials.trial import AnyTrial


@typed
def average_indirect_effect(
    model: Model,
    trials: Iterable[AnyTrial] | AnyTrial,
    *,
    vectors: HeadVectors,
    metric: str | Measure,
    heads_per_pass: int | None = None,
    **run: Unpack[LoopOptions],
) -> HeadScores:
    """Average indirect effect of every head: p(answer | z at the prompt's last row is the head's vector) - p(answer).

    Args:
        trials: prompts that do not show the task, with gold answers: examples with shuffled labels (the authors'), or none. Of
            those with a counterfactual, that.
        vectors: `task_vectors(model, trials with examples)`, a mean over prompts of the task.
        metric, heads_per_pass: as in `patch_heads`; the authors' metric is "first_token_prob".
        **run: `out` and `progress`, see `runs.options.LoopOptions`.

    Returns HeadScores of method "aie", as `patch_heads` with `donor=vectors` does: it is that. The authors' function-vector heads
    are the ten best, of 25 prompts and vectors of 100. A metric of the whole answer has the vector in all of its rows.

    Cost: for each trial a plain pass, and one row for every head, from its layer on.

    Example:
        >>> vectors, bare = lh.task_vectors(model, trials), lh.sanity.without_needle(others)
        >>> found = lh.average_indirect_effect(model, bare, vectors=vectors, metric="first_token_prob")
        >>> [planted.roles[head] for head in found.top(2)]
        ['copier', 'writer']
    """
    how: dict[str, Any] = {"metric": metric, "heads_per_pass": heads_per_pass, **run}
    return patch_heads(model, trials, positions="answer", corruption=bare, donor=vectors, **how)


def indirect_effect(material: Material) -> HeadScores:
    """The average indirect effect of the mean of other clean prompts in the corrupt ones."""
    vectors = task_vectors(material.model, material.others)
    options = {"vectors": vectors, "metric": "first_token_prob", **material.loop("aie")}
    return average_indirect_effect(material.model, material.pairs, **options)


def bare(trial: EncodedTrial) -> Int[Tensor, " position"]:
    """The prompt that the vectors are put into: the counterfactual, or the prompt itself."""
    return trial.tokens if trial.corrupt is None else trial.corrupt


METHODS = (
    Method(
        "aie", "patching", indirect_effect, "pairs and others", lambda shape, masks, k: 3 + total(shape) / 20, signed=True,
        paper="function vectors, arXiv 2310.15213", fails="finds heads that carry the task, not this prompt's answer",
        label="function vectors", unit="probability",
    ),
)  # fmt: skip
