"""pool_scores: the trials of several tasks as one ranking."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

import torch

from lens_heads.compare.overlap import check_pair
from lens_heads.heads.scores import HeadScores


def pool_scores(scores_by_task: Mapping[str, HeadScores]) -> HeadScores:
    """The scores of one method over the trials of all tasks, as if they had been scored together.

    Every trial counts once, so a task with more trials has more weight. `meta` is that of the first task, with the trials
    and outcomes of all tasks.

    Raises ValueError for no tasks, scores of different models or methods, a trial in two tasks, and scores with an explicit
    `order` (`localize_heads`), which cannot be pooled.
    """
    if not scores_by_task:
        raise ValueError("scores_by_task is empty. Pass {task: scores}.")
    every = list(scores_by_task.values())
    name, first = next(iter(scores_by_task.items()))
    for task, found in scores_by_task.items():
        check_pair(first, found)
        if found.order:
            raise ValueError(f"{task}: {found.method} has an explicit order of heads. Localize on all trials instead.")
        if found.method != first.method:
            raise ValueError(f"{name} uses {first.method}, but {task} uses {found.method}. Pool scores of one method.")
        if found.model.name != first.model.name:
            raise ValueError(f"{name} scores {first.model}, but {task} scores {found.model}. Pool scores of one model.")
    ids = [trial for found in every for trial in found.trial_ids]
    trial, times = max(Counter(ids).items(), key=lambda item: item[1], default=("", 0))
    if times > 1:
        raise ValueError(f"trial {trial!r} would count {times} times. Keep each trial in one task.")
    trials = [trial for found in every for trial in found.meta.get("trials", ())]
    outcomes = sum((Counter(found.meta.get("outcomes", {})) for found in every), Counter[str]())
    per_trial = torch.cat([found.per_trial for found in every])
    return replace(
        first,
        values=per_trial.mean(0),
        per_trial=per_trial,
        trial_ids=tuple(ids),
        meta={**first.meta, "trials": trials, "n_trials": len(trials), "outcomes": dict(outcomes)},
        made_on=tuple(trial for found in every for trial in found.made_on),
    )
