"""The stages of the study: of one model, and of two beside each other; each a function to a value of this package."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from lens_heads import compare
from lens_heads.causal import recovery
from lens_heads.compare.cells import NONE
from lens_heads.heads.scores import HeadScores
from lens_heads.model.geometry import Model, geometry
from lens_heads.runs.store import digest
from lens_heads.scoring.score import score_heads
from lens_heads.stats import percentile_interval
from lens_heads.studies.fragile_paper.finding import ALL, Rankings
from lens_heads.studies.fragile_paper.presets import Preset
from lens_heads.trials.documents import DocumentTrial
from lens_heads.trials.trial import Trial


def detect(model: Model, documents: Mapping[str, Sequence[DocumentTrial]], plan: Preset, out: Path) -> Rankings:
    """Every method on every task's documents, and on those of all tasks together."""
    by_task = {
        task: score_heads(model, trials, plan.methods, out=out / "scores" / task) for task, trials in documents.items()
    }
    found = {method: {task: scores[method] for task, scores in by_task.items()} for method in plan.methods}
    return {method: {**scores, ALL: compare.pool_scores(scores)} for method, scores in found.items()}


def transfer(
    model: Model, scores: Rankings, tests: Mapping[str, Sequence[Trial]], plan: Preset, out: Path
) -> compare.TransferMatrix:
    """Every task's heads on every task; k is what the number of heads stands for out of 1,024."""
    shape = geometry(model)
    sizes = plan.sizes(shape.n_layers * shape.n_heads)
    found = compare.transfer_matrix(
        model,
        {task: ranking for task, ranking in scores[plan.lead].items() if task != ALL},
        tests,
        ks=list(sizes),
        kind=plan.kind,
        random_draws=plan.random_draws,
        metric=plan.metric,
        generate=plan.generate,
        max_new_tokens=plan.max_new_tokens,
        batch_size=plan.batch_size,
        out=out / "transfer",
    )
    assert found.per_item is not None
    rows = found.per_item.assign(k=found.per_item["k"].map({0: 0, **sizes}))
    meta = found.meta | {"model": shape.name, "heads_ablated": {str(k): size for size, k in sizes.items()}}
    return compare.TransferMatrix(per_item=rows, metric=plan.metric, meta=meta)


def mended(
    model: Model,
    scores: Mapping[str, HeadScores],
    matrix: compare.TransferMatrix,
    tests: Mapping[str, Sequence[Trial]],
    plan: Preset,
    out: Path,
) -> pd.DataFrame:
    """Recovery of every task's own heads, on trials that are right unablated and wrong with these heads ablated.

    Columns as `Recovery.frame`, and task; a task without such a trial is missing.
    """
    shape, frames = geometry(model), []
    size = plan.size(plan.recovery_k, shape.n_layers * shape.n_heads)
    k = plan.sizes(shape.n_layers * shape.n_heads)[size]
    for task, trials in tests.items():
        broken = flipped(matrix, plan.right, task, k)
        chosen = [trial for trial in trials if trial.id in broken][: plan.recovery_trials]
        if chosen:
            heads = scores[task].top(size)
            found = recovery(
                model,
                heads,
                heads,
                chosen,
                scores=scores[task],
                draws=plan.recovery_draws,
                flipped=False,
                kind=plan.kind,
                out=out / "recovery" / f"{task}-{digest([sorted(broken), [str(head) for head in heads]])}",
            )
            frames.append(found.frame.assign(task=task, flipped=len(broken)))
    return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame({"task": [], "set": []})


def flipped(matrix: compare.TransferMatrix, metric: str, task: str, k: int) -> set[str]:
    """Trials of a task that are right unablated and wrong with the task's own k heads ablated."""
    rows = matrix.per_item
    assert rows is not None
    rows = rows[rows["target"] == task]
    right = set(rows.loc[(rows["source"] == NONE) & (rows[metric] > 0.5), "item"])
    wrong = set(rows.loc[(rows["source"] == task) & (rows["k"] == k) & (rows[metric] <= 0.5), "item"])
    return right & wrong


def by_metric(matrix: compare.TransferMatrix, plan: Preset) -> dict[str, compare.TransferMatrix]:
    """The same matrix in the metric of drops, and in that of right and wrong."""
    return {metric: replace(matrix, metric=metric) for metric in dict.fromkeys((plan.metric, plan.right))}


def statistics(matrix: compare.TransferMatrix) -> pd.DataFrame:
    """Fragility, disruptivity, specificity and fragility beyond random heads with intervals, absolute and relative.

    A row per statistic, k and task; the task "mean" is the mean over tasks, with the interval of that mean. Of the
    log-probability, which is below zero, there is no relative drop. "beyond_random" leaves a task's own heads out. A bootstrap
    of n items has (n - 1) / n of the variance, so intervals are widened by sqrt(n / (n - 1)) around the value; n is that of
    the task with the fewest items.
    """
    items = min(len(matrix.items(target) or ()) for target in matrix.targets)
    widened = math.sqrt(items / (items - 1)) if items > 1 else math.nan
    rows: list[dict[str, Any]] = []
    names = ["fragility", "disruptivity", "specificity"] + (["beyond_random"] if matrix.draws else [])
    for name in names:
        options = {"diagonal": False} if name == "beyond_random" else {}
        for relative in (False,) if matrix.metric == "logprob" else (False, True):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", RuntimeWarning)  # A task that the model cannot do has no relative drop.
                table = matrix.statistic(name, relative=relative, **options)
                samples = matrix.resampled(name, relative=relative, **options)
                table["mean"] = table.mean(axis=1)
                samples = np.concatenate([samples, np.nanmean(samples, axis=-1, keepdims=True)], -1)
                low, high = (
                    table.to_numpy() + widened * (end - table.to_numpy()) for end in percentile_interval(samples)
                )
            for i, k in enumerate(table.index):
                for j, task in enumerate(table.columns):
                    row = {"metric": matrix.metric, "statistic": name, "relative": relative, "k": k, "task": task}
                    row |= {"value": table.iloc[i, j], "low": low[i, j], "high": high[i, j]}
                    rows.append(row)
    return pd.DataFrame(rows)


def shared_heads(scores: Rankings, plan: Preset, heads: int) -> pd.DataFrame:
    """Heads that two tasks have in common among their best, against chance; by the lead method, at every k."""
    rankings = {task: found for task, found in scores[plan.lead].items() if task != ALL}
    frames = [
        compare.head_overlaps(rankings, size).assign(k_of_1024=k) for size, k in plan.sizes(heads).items() if size > 1
    ]
    return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame({"k_of_1024": []})


CORRELATED: dict[str, tuple[str, dict[str, Any]]] = {
    "fragility": ("fragility", {}),
    "fragility, other tasks' heads": ("fragility", {"diagonal": False}),
    "fragility, relative": ("fragility", {"relative": True}),
    "disruptivity": ("disruptivity", {}),
    "disruptivity, relative": ("disruptivity", {"relative": True}),
}
"""What is correlated across models, and how it is computed."""


def correlations(
    a: compare.TransferMatrix, b: compare.TransferMatrix
) -> tuple[dict[str, compare.Correlation], dict[str, str]]:
    """Fragility and disruptivity across models by name, with the same items resampled in both; and why some have none."""
    found, reasons = {}, {}
    for label, (name, options) in CORRELATED.items():
        if options.get("relative") and a.metric == "logprob":
            continue
        try:
            same = all(a.items(task) == b.items(task) for task in a.targets if task in b.targets)
            found[label] = compare.correlate(a, b, statistic=name, paired_items=same, **options)
        except ValueError as error:
            reasons[label] = str(error)
    return found, reasons
