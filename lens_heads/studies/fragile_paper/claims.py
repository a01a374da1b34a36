"""The claims of the study of fragile tasks: the rules, and their tables, from values per trial, of a run or stored.

Texts, thresholds and published numbers are in `claims.json`. The published R² are of Llama-3.1-8B and Qwen-2.5-7B, of Llama and
Mistral-7B, and of Qwen and Mistral; those of fragility are computed from the authors' data.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pandas as pd
import torch

from lens_heads.evidence.correlation_results import Correlation
from lens_heads.evidence.curve_results import AblationCurve
from lens_heads.evidence.recovery_results import Recovery
from lens_heads.evidence.transfer_cells import NONE
from lens_heads.evidence.transfer_results import TransferMatrix
from lens_heads.heads.grouping import groups_in
from lens_heads.stats import Interval, mean_interval, n_to_tell, share_interval
from lens_heads.stats.intervals import NOTHING
from lens_heads.stats.shares import are_shares
from lens_heads.studies.claims import DOES_NOT, HOLDS, UNTOLD, Found, above, at_most, published
from lens_heads.studies.fragile_paper.finding import ALL, FragileFinding
from lens_heads.studies.fragile_paper.presets import METRIC, Preset
from lens_heads.studies.fragile_paper.sources import OTHERS, OWN, Gap, related_gap, sources
from lens_heads.studies.pages import ends

IDLE = "answers {:.0%} of the trials without ablation"
COLUMNS = ["id", "claim", "models", "metric", "k", "n", "paper", "found", "value", "low", "high", "p", "verdict"]
COLUMNS += ["would_tell", "holds_if"]


def registered(plan: Preset) -> pd.DataFrame:
    """What is claimed and how it is judged, before anything runs.

    One row per claim: id, claim, estimand, metric, threshold, k, n, holds_if, with the preset's numbers.
    """
    rows = []
    for claim in [claim for part in ("model", "pair") for claim in published(__name__)[part]]:
        texts = {name: claim[name].format(**_words(claim, plan)) for name in ("estimand", "k", "n")}
        names = {name: claim[name] for name in ("id", "claim", "metric", "threshold")}
        rows.append({**names, **texts, "holds_if": claim["holds"].format(**_words(claim, plan))})
    return pd.DataFrame(rows)[["id", "claim", "estimand", "metric", "threshold", "k", "n", "holds_if"]]


def claims_of_model(model: str, plan: Preset, frames: Mapping[str, pd.DataFrame], gap: Gap, k: int) -> pd.DataFrame:
    """Do heads transfer between tasks? One row per claim (`COLUMNS`); `frames` holds the model's tables, k names the headline.

    Nothing holds for a model that hardly answers the trials: heads that suggest the kind of answer cost something there, too.
    """
    right, _ = _row(frames["answered"], "value", (), task=ALL)
    heads = {
        source: _row(frames["sources"], "beyond", ("random_trials", "p"), source=source, task=ALL)
        for source in (OWN, OTHERS)
    }
    own, (_, own_p) = heads[OWN]
    specificity, _ = _row(frames["statistics"], "value", (), statistic="specificity", task=ALL, metric=METRIC, k=k)
    recovered, (n,) = _row(
        frames["recovery_differences"], "difference", ("examples",), set="random", of="recovery", k=k
    )
    measured = {
        "transfer": (heads[OTHERS][0], *heads[OTHERS][1]),
        "interchangeable": (specificity, gap.items, math.nan),
        "related": (gap.gap, gap.items, gap.p),
        "recovery": (recovered, n, math.nan),
    }
    costly = f"own heads {own.value:.2f} [{own.low:.2f}, {own.high:.2f}] nats beyond random ones, p {own_p:.2g}"
    rows = []
    for claim in published(__name__)["model"]:
        found = measured[claim["id"]]
        requires = "requires" in claim
        possible = own.low > 0 and own_p <= claim["alpha"] if requires else found[-1] <= claim["alpha"]
        row = _judged(claim, plan, found, possible and answers(right)) | {"models": model}
        row["found"] += "" if answers(right) else f"; {model} {IDLE.format(right.value)}"
        rows.append(row | {"found": f"{row['found']}; {costly}"} if requires else row)
    return pd.DataFrame(rows, columns=COLUMNS).astype({"would_tell": float})


def claims_of_pair(
    names: tuple[str, str], plan: Preset, found: Mapping[str, Correlation], answered: Sequence[pd.DataFrame]
) -> pd.DataFrame:
    """Are the same tasks fragile, and the same tasks' heads disruptive, in both models? One row per claim.

    `answered`: what each model answers right without ablation, as its table of that name.
    """
    rights = [_row(frame, "value", (), task=ALL)[0] for frame in answered]
    idle = [
        f"{name} {IDLE.format(right.value)}" for name, right in zip(names, rights, strict=True) if not answers(right)
    ]
    rows = []
    for claim in published(__name__)["pair"]:
        one = found.get(f"{METRIC}: {claim['id']} beyond random")
        judged = Found.nothing("not measured") if one is None else _correlation(one, claim)
        if idle:
            judged = replace(judged, verdict=UNTOLD, text="; ".join([judged.text, *idle]))
        about = {"models": " and ".join(names), "metric": METRIC, "k": claim["k"].format(**plan.words())}
        row = judged.row(claim, **_words(claim, plan)) | about
        rows.append(row | {"n": f"{0 if one is None else one.points['task'].nunique()} tasks", "would_tell": None})
    return pd.DataFrame(rows, columns=COLUMNS).astype({"would_tell": float})


def answers(right: Interval[float]) -> bool:
    """Whether a model answers enough of the trials, without ablation, for anything to be lost."""
    return right.low > published(__name__)["answered"]


def _correlation(one: Correlation, claim: Mapping[str, Any]) -> Found:
    """The verdict is that of `evidence.correlate`, inside answer formats; what else could explain the number stands beside it."""
    inside, beside = one.within or one.plain, []
    for name, other in (("without log-probability and length", one.partial_all), ("of random heads alone", one.random)):
        if other is not None and math.isfinite(other.r):
            beside.append(f"R² {other.r2:.2f} {name} (p {other.p:.2g})")
    alpha = claim["alpha"]
    few = "" if inside.can_tell(alpha) else f"; no data of these formats could have p <= {alpha:g}"
    text = f"r {inside.r:+.2f}, R² {inside.r2:.2f}, p {inside.p:.2g}{few}; {'; '.join(beside)}".rstrip("; ")
    if_sure = HOLDS if claim["rule"] == "correlated" else DOES_NOT
    verdict = if_sure if one.verdict(alpha) == "correlated" else UNTOLD
    return Found(inside.r, math.nan, math.nan, text, verdict, inside.p)


def _judged(
    claim: Mapping[str, Any], plan: Preset, measured: tuple[Interval[float], int, float], possible: bool
) -> dict[str, Any]:
    """A claim on one model, judged by its rule; where the interval cannot tell, the number of trials that would have told.

    `measured`: the number, its trials and its p. A claim that is not `possible`, by p or by what it requires, cannot hold.
    """
    (found, n, p), at = measured, claim["threshold"]
    verdict = (at_most if claim["rule"] == "at_most" else above)(found.low, found.high, at, possible)
    told = verdict != UNTOLD or not found.low <= at <= found.high
    text = "not measured, or nothing was lost" if math.isnan(found.value) else f"{found.value:.3g}"
    more = None if told else n_to_tell(found.value, found.half_width, n, at)
    if more:
        # Trials and random sets narrow an interval only together: so many times the sets of a claim that has some.
        times = math.ceil(more / n * getattr(plan, claim["draws"])) if "draws" in claim else 0
        text += f"; about {more} trials{f' and {times} random sets' if times else ''} would tell"
    return Found(found.value, found.low, found.high, text, verdict, p).row(claim, **_words(claim, plan)) | {
        "metric": claim["metric"],
        "k": claim["k"].format(**plan.words()),
        "n": f"{n} trials",
        "would_tell": more,
    }


def _words(claim: Mapping[str, Any], plan: Preset) -> dict[str, Any]:
    numbers = {"threshold": claim["threshold"], "alpha": claim["alpha"]}
    return {**plan.words(), **numbers, "answered": published(__name__)["answered"]}


def _row(
    frame: pd.DataFrame, value: str, more: Sequence[str], **wanted: Any
) -> tuple[Interval[float], tuple[Any, ...]]:
    """The number in the only row with these values and its bounds, and the values of further columns (0 without a row)."""
    rows = frame.loc[(frame[list(wanted)] == pd.Series(wanted)).all(axis=1)]
    if rows.empty:
        return NOTHING, (0,) * len(more)
    (row,) = rows.to_dict("records")
    bounds = (row[end] for end in ends(frame, value))
    return Interval(row[value], *bounds), tuple(row[name] for name in more)


def judged(
    model: str, matrix: TransferMatrix, curve: AblationCurve, restored: pd.DataFrame, plan: Preset, k: int
) -> dict[str, pd.DataFrame]:
    """Claims, statistics, sources, related tasks and recovery. `restored` as `stages.mended`; k names the headline."""
    gap, recovered, differences = related_gap(matrix, k), [], []
    for size, rows in restored.groupby("k", sort=False):
        used = rows["example"].nunique()
        whole = Recovery(rows, {"used": used}, {})
        parts = {task: Recovery(own, {"used": len(own)}, {}) for task, own in rows.groupby("task", sort=False)}
        recovered += [one.frame.assign(k=size, task=task) for task, one in {**parts, ALL: whole}.items()]
        differences.append(whole.differences().assign(k=size, examples=used))
    statistic = [statistics(one) for one in by_metric(matrix, plan).values()]
    frames = {
        "statistics": pd.concat(statistic, ignore_index=True),
        "sources": sources(matrix, curve, k),
        "answered": answered(matrix, plan),
        "related": pd.DataFrame([{**gap.gap._asdict(), "p": gap.p, "trials": gap.items, "k": k}]),
        "recovery": pd.concat(recovered or [pd.DataFrame({"task": [], "set": []})], ignore_index=True),
        "recovery_differences": pd.concat(
            differences or [pd.DataFrame({"k": [], "set": [], "of": []})], ignore_index=True
        ),
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
        _, low, high = map(float, mean_interval(torch.from_numpy(hits), groups=groups))
    return pd.DataFrame([{"task": ALL, "value": hits.mean(), "low": low, "high": high, "trials": len(rows)}])


def by_metric(matrix: TransferMatrix, plan: Preset) -> dict[str, TransferMatrix]:
    """The matrix in log-probability, and in right answers."""
    return {metric: replace(matrix, metric=metric) for metric in dict.fromkeys((METRIC, plan.right))}


def statistics(matrix: TransferMatrix) -> pd.DataFrame:
    """Fragility, disruptivity, specificity and harm beyond random heads, with 95 % intervals over items and random draws.

    One row per statistic, k and task; the task `ALL` is the mean over tasks.
    """
    frames = []
    for name in ("fragility", "disruptivity", "specificity", "beyond_random"):
        tables = zip(("value", "low", "high"), matrix.interval(name), strict=True)
        by_task = pd.DataFrame({end: table.rename_axis(columns="task").stack() for end, table in tables}).reset_index()
        whole = matrix.over_tasks(name).reset_index().assign(task=ALL)
        frames.append(pd.concat([by_task, whole]).assign(metric=matrix.metric, statistic=name))
    return pd.concat(frames, ignore_index=True)[["metric", "statistic", "k", "task", "value", "low", "high"]]
