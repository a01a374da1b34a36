"""pool_scores: the trials of several tasks as one ranking."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import torch

from lens_heads.compare.overlap import check_pair
from lens_heads.heads import HeadScores


def pool_scores(scores_by_task: Mapping[str, HeadScores]) -> HeadScores:
    """The scores of one method over the trials of all tasks, which is what scoring these together gives.

    Every trial counts once, so a task of more trials weighs more. `meta` is that of the first task, with the trials and
    outcomes of all.

    Raises ValueError for no tasks, scores of other heads or another method, and heads in an order of their own
    (`meta["order"]`, of `localize_heads`), which only a new search over all trials can give.
    """
    if not scores_by_task:
        raise ValueError("there are no scores to pool: give {task: scores}")
    (name, first), *others = scores_by_task.items()
    for task, found in scores_by_task.items():
        if "order" in found.meta:
            raise ValueError(
                f"{task}: {found.method} ranks heads in an order of its own: localize on all trials instead"
            )
    for task, found in others:
        check_pair(first, found)
        if found.method != first.method:
            raise ValueError(f"{name} is scored by {first.method}, {task} by {found.method}: pool scores of one method")
    every = list(scores_by_task.values())
    ids = [trial for found in every for trial in found.trial_ids]
    trials = [trial for found in every for trial in found.meta.get("trials", ())]
    outcomes = sum((Counter(found.meta.get("outcomes", {})) for found in every), Counter[str]())
    meta = {**first.meta, "trials": trials, "n_trials": len(trials), "outcomes": dict(outcomes)}
    return HeadScores.from_trials(first.method, torch.cat([found.per_trial for found in every]), ids, meta, first.unit)
