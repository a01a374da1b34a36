"""A model's tables and claims, from its values per trial alone: those of a run, or those that a finished run has stored."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pandas as pd
import torch

from lens_heads.evidence.curve_results import AblationCurve
from lens_heads.evidence.recovery_results import Recovery
from lens_heads.evidence.transfer_cells import NONE
from lens_heads.evidence.transfer_results import TransferMatrix
from lens_heads.heads.grouping import groups_in
from lens_heads.stats import are_shares, mean_interval, share_interval
from lens_heads.studies.fragile_paper.claims import claims_of_model
from lens_heads.studies.fragile_paper.finding import ALL, FragileFinding
from lens_heads.studies.fragile_paper.presets import METRIC, Preset
from lens_heads.studies.fragile_paper.related import related_gap
from lens_heads.studies.fragile_paper.sources import sources


def judged(
    model: str, matrix: TransferMatrix, curve: AblationCurve, restored: pd.DataFrame, plan: Preset, k: int
) -> dict[str, pd.DataFrame]:
    """Claims, statistics, sources, related tasks and recovery. `restored` as `stages.mended`; k names the headline."""
    gap, (recovered, differences) = related_gap(matrix, k), recovery_tables(restored)
    statistic = [statistics(one) for one in by_metric(matrix, plan).values()]
    frames = {
        "statistics": pd.concat(statistic, ignore_index=True),
        "sources": sources(matrix, curve, k),
        "answered": answered(matrix, plan),
        "related": pd.DataFrame([{**gap.gap._asdict(), "p": gap.p, "trials": gap.items, "k": k}]),
        "recovery": recovered,
        "recovery_differences": differences,
    }
    return {"claims": claims_of_model(model, plan, frames, gap, k), **frames}


def rejudged(
    model: str, tables: Mapping[str, pd.DataFrame], tasks: pd.DataFrame, plan: Preset, heads: int
) -> FragileFinding:
    """What stored values per trial say of a model with so many heads; nothing else of its run is needed.

    `tables` holds "matrix_trials", "headline_trials" and "recovery_examples"; `tasks` describes the tasks.
    """
    sizes, headline = plan.sizes(heads), plan.size(plan.headline_k, heads)
    matrix = TransferMatrix(tables["matrix_trials"], metric=METRIC)
    curve = AblationCurve(tables["headline_trials"], {})
    frames = judged(model, matrix, curve, tables["recovery_examples"], plan, sizes[headline])
    about = {"matrix": matrix, "curve": curve, "sizes": sizes, "headline": headline}
    return FragileFinding(model=model, frames={**frames, "tasks": tasks}, scores={}, **about)


def answered(matrix: TransferMatrix, plan: Preset) -> pd.DataFrame:
    """The share of trials of all tasks that the model answers right without ablation, with its interval, as a single row."""
    rows = matrix.per_item
    assert rows is not None
    rows = rows[rows["source"] == NONE].reset_index()
    hits, groups = rows[plan.right].to_numpy(float), groups_in(rows, rows["item"], "item")
    if are_shares(hits):
        low, high = share_interval(hits, groups=groups)[1:]
    else:
        low, high = map(float, mean_interval(torch.from_numpy(hits), groups=groups))
    return pd.DataFrame([{"task": ALL, "value": hits.mean(), "low": low, "high": high, "trials": len(rows)}])


def recovery_tables(restored: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Recovery by k and task, and over all tasks; and its differences to random heads over all tasks.

    Columns as in `Recovery.frame` and `Recovery.differences`, plus k, task and the number of examples.
    """
    frames, gaps = [], []
    for k, rows in restored.groupby("k", sort=False):
        used = rows["example"].nunique()
        whole = Recovery(rows, {"used": used}, {})
        parts = {task: Recovery(own, {"used": len(own)}, {}) for task, own in rows.groupby("task", sort=False)}
        frames += [one.frame.assign(k=k, task=task) for task, one in {**parts, ALL: whole}.items()]
        gaps.append(whole.differences().assign(k=k, examples=used))
    if not frames:
        return pd.DataFrame({"task": [], "set": []}), pd.DataFrame({"k": [], "set": [], "of": []})
    return pd.concat(frames, ignore_index=True), pd.concat(gaps, ignore_index=True)


def by_metric(matrix: TransferMatrix, plan: Preset) -> dict[str, TransferMatrix]:
    """The matrix in log-probability, and in right answers."""
    return {metric: replace(matrix, metric=metric) for metric in dict.fromkeys((METRIC, plan.right))}


def statistics(matrix: TransferMatrix) -> pd.DataFrame:
    """Fragility, disruptivity, specificity and harm beyond random heads, with 95 % intervals over items and random draws.

    One row per statistic, k and task; the task `ALL` is the mean over tasks.
    """
    frames = []
    for name in ("fragility", "disruptivity", "specificity", "beyond_random"):
        tables = zip(("value", "low", "high"), (matrix.statistic(name), *matrix.interval(name)), strict=True)
        by_task = pd.DataFrame({end: table.rename_axis(columns="task").stack() for end, table in tables}).reset_index()
        whole = matrix.over_tasks(name).reset_index().assign(task=ALL)
        frames.append(pd.concat([by_task, whole]).assign(metric=matrix.metric, statistic=name))
    return pd.concat(frames, ignore_index=True)[["metric", "statistic", "k", "task", "value", "low", "high"]]
