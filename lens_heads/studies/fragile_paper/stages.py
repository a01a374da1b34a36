"""The stages of the study of fragile tasks on one model. Each is a function whose result is stored."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from lens_heads import compare
from lens_heads.causal import recovery
from lens_heads.compare.cells import NONE
from lens_heads.heads.scores import HeadScores
from lens_heads.model.geometry import Model, geometry
from lens_heads.runs.digests import digest
from lens_heads.scoring.score import score_heads
from lens_heads.stats import percentile_interval
from lens_heads.studies.fragile_paper.finding import ALL, Rankings
from lens_heads.studies.fragile_paper.presets import Preset
from lens_heads.trials.documents import DocumentTrial
from lens_heads.trials.trial import Trial


@dataclass(frozen=True, eq=False)
class Bench:
    """What the stages share: the model, the preset, the trials by task, and the model's folder."""

    model: Model
    plan: Preset
    documents: Mapping[str, Sequence[DocumentTrial]]
    tests: Mapping[str, Sequence[Trial]]
    out: Path

    @property
    def sizes(self) -> dict[int, int]:
        """Numbers of heads in this model, with the k of 1,024 that each stands for."""
        return self.plan.sizes(self.heads)

    @property
    def heads(self) -> int:
        """How many heads the model has."""
        shape = geometry(self.model)
        return shape.n_layers * shape.n_heads


def detect(bench: Bench) -> Rankings:
    """Score every head by every method, on each task's documents and on all of them."""
    methods = bench.plan.methods
    by_task = {
        task: score_heads(bench.model, trials, methods, out=bench.out / "scores" / task)
        for task, trials in bench.documents.items()
    }
    found = {method: {task: scores[method] for task, scores in by_task.items()} for method in methods}
    return {method: {**scores, ALL: compare.pool_scores(scores)} for method, scores in found.items()}


def of_tasks(scores: Mapping[str, HeadScores]) -> dict[str, HeadScores]:
    """The scores of single tasks."""
    return {task: found for task, found in scores.items() if task != ALL}


def transfer(bench: Bench, scores: Mapping[str, HeadScores]) -> compare.TransferMatrix:
    """Ablate every task's heads on every task. k counts out of 1,024 heads."""
    plan, sizes = bench.plan, bench.sizes
    found = compare.transfer_matrix(
        bench.model,
        of_tasks(scores),
        bench.tests,
        ks=list(sizes),
        kind=plan.kind,
        random_draws=plan.random_draws,
        metric=plan.metric,
        generate=plan.generate,
        max_new_tokens=plan.max_new_tokens,
        batch_size=plan.batch_size,
        out=bench.out / "transfer",
    )
    assert found.per_item is not None
    rows = found.per_item.assign(k=found.per_item["k"].map({0: 0, **sizes}))
    ablated = {str(k): size for size, k in sizes.items()}
    meta = found.meta | {"model": geometry(bench.model).name, "heads_ablated": ablated}
    return replace(found, per_item=rows, meta=meta)


def mended(bench: Bench, scores: Mapping[str, HeadScores], matrix: compare.TransferMatrix) -> pd.DataFrame:
    """Recovery of each task's own heads, on trials that ablating these heads turns from right to wrong.

    Columns as in `Recovery.frame`, plus task and flipped. A task without such a trial is missing.
    """
    plan, frames = bench.plan, []
    size = plan.size(plan.recovery_k, bench.heads)
    for task, trials in bench.tests.items():
        broken = flipped(matrix, plan.right, task, bench.sizes[size])
        chosen = [trial for trial in trials if trial.id in broken][: plan.recovery_trials]
        if chosen:
            heads = scores[task].top(size)
            found = recovery(
                bench.model,
                heads,
                heads,
                chosen,
                scores=scores[task],
                draws=plan.recovery_draws,
                flipped=False,
                kind=plan.kind,
                out=bench.out / "recovery" / f"{task}-{digest([sorted(broken), [str(head) for head in heads]])}",
            )
            frames.append(found.frame.assign(task=task, flipped=len(broken)))
    return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame({"task": [], "set": []})


def flipped(matrix: compare.TransferMatrix, metric: str, task: str, k: int) -> set[str]:
    """The trials of a task that are right without ablation, and wrong with the task's own k heads ablated."""
    rows = matrix.per_item
    assert rows is not None
    rows = rows[rows["target"] == task]
    right = set(rows.loc[(rows["source"] == NONE) & (rows[metric] > 0.5), "item"])
    wrong = set(rows.loc[(rows["source"] == task) & (rows["k"] == k) & (rows[metric] <= 0.5), "item"])
    return right & wrong


def by_metric(matrix: compare.TransferMatrix, plan: Preset) -> dict[str, compare.TransferMatrix]:
    """The matrix in the metric of drops, and in that of right answers."""
    return {metric: replace(matrix, metric=metric) for metric in dict.fromkeys((plan.metric, plan.right))}


def statistics(matrix: compare.TransferMatrix) -> pd.DataFrame:
    """Fragility, disruptivity, specificity and harm beyond random heads with 95 % intervals, absolute and relative.

    One row per statistic, k and task; the task "mean" is the mean over tasks. Log-probability, which is negative, has no relative
    drop. "beyond_random" leaves out a task's own heads. Intervals are widened by sqrt(n / (n - 1)) for the task with the fewest
    items, n, because a bootstrap of n items has (n - 1) / n of the variance.
    """
    items = min(len(matrix.items(target) or ()) for target in matrix.targets)
    widened = math.sqrt(items / (items - 1)) if items > 1 else math.nan
    rows: list[dict[str, Any]] = []
    for name in ["fragility", "disruptivity", "specificity"] + (["beyond_random"] if matrix.draws else []):
        options = {"diagonal": False} if name == "beyond_random" else {}
        for relative in (False,) if matrix.metric == "logprob" else (False, True):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", RuntimeWarning)  # A task that the model cannot do has no relative drop.
                table = matrix.statistic(name, relative=relative, **options)
                samples = matrix.resampled(name, relative=relative, **options)
                table["mean"] = table.mean(axis=1)
                samples = np.concatenate([samples, np.nanmean(samples, axis=-1, keepdims=True)], -1)
                values = table.to_numpy()
                low, high = (values + widened * (end - values) for end in percentile_interval(samples))
            about = {"metric": matrix.metric, "statistic": name, "relative": relative}
            rows += [
                {**about, "k": k, "task": task, "value": values[i, j], "low": low[i, j], "high": high[i, j]}
                for i, k in enumerate(table.index)
                for j, task in enumerate(table.columns)
            ]
    return pd.DataFrame(rows)


def shared_heads(bench: Bench, scores: Mapping[str, HeadScores]) -> pd.DataFrame:
    """How many top heads every two tasks share, compared with chance, at every k."""
    rankings = of_tasks(scores)
    frames = [compare.head_overlaps(rankings, size).assign(k_of_1024=k) for size, k in bench.sizes.items() if size > 1]
    return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame({"k_of_1024": []})
