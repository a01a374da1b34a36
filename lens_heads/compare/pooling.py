"""pool_scores: the trials of several tasks as one ranking."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

import torch

from lens_heads.compare.overlap import check_pair
from lens_heads.heads.scores import HeadScores


def pool_scores(scores_by_task: Mapping[str, HeadScores]) -> HeadScores:
    """The scores of one method over the trials of all tasks, which is what scoring these together gives.

    Every trial counts once, so a task of more trials weighs more. `meta` is that of the first task, with the trials and
    outcomes of all.

    Raises ValueError for no tasks, scores of another model or method, a trial in two tasks, and heads in an order of their
    own (`order`, of `localize_heads`), which only a new search over all trials can give.
    """
    if not scores_by_task:
        raise ValueError("there are no scores to pool: give {task: scores}")
    (name, first), *others = scores_by_task.items()
    for task, found in scores_by_task.items():
        if found.order:
            raise ValueError(
                f"{task}: {found.method} ranks heads in an order of its own: localize on all trials instead"
            )
    for task, found in others:
        check_pair(first, found)
        if found.method != first.method:
            raise ValueError(f"{name} is scored by {first.method}, {task} by {found.method}: pool scores of one method")
        if found.model.name != first.model.name:
            models = f"{first.model.name!r}, {task} of {found.model.name!r}"
            raise ValueError(f"{name} holds scores of {models}: heads of two models are not the same heads")
    every = list(scores_by_task.values())
    ids = [trial for found in every for trial in found.trial_ids]
    twice = next((trial for trial, times in Counter(ids).items() if times > 1), None)
    if twice is not None:
        raise ValueError(f"trial {twice!r} is in several tasks and would count as often: pool tasks that share none")
    trials = [trial for found in every for trial in found.meta.get("trials", ())]
    outcomes = sum((Counter(found.meta.get("outcomes", {})) for found in every), Counter[str]())
    meta = {**first.meta, "trials": trials, "n_trials": len(trials), "outcomes": dict(outcomes)}
    made_on = tuple(trial for found in every for trial in found.made_on)
    per_trial = torch.cat([found.per_trial for found in every])
    return replace(
        first, values=per_trial.mean(0), per_trial=per_trial, trial_ids=tuple(ids), meta=meta, made_on=made_on
    )
