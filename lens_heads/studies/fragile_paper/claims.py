"""What the study of fragile tasks asks, finds and claims: its presets, the findings, and the rules that judge values per trial.

Texts, thresholds and published numbers are in `claims.json`. The published R² are of Llama-3.1-8B and Qwen-2.5-7B, of Llama and
Mistral-7B, and of Qwen and Mistral; those of fragility are computed from the authors' data.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd
import torch

from lens_heads.answering.ability import Ability
from lens_heads.answering.evaluation import FORCED_METRICS, METRICS
from lens_heads.answering.question_need import QuestionNeed
from lens_heads.evidence.correlation_results import Correlation
from lens_heads.evidence.curve_results import AblationCurve
from lens_heads.evidence.recovery_results import Recovery
from lens_heads.evidence.transfer_cells import NONE
from lens_heads.evidence.transfer_results import TransferMatrix
from lens_heads.evidence.validation import MatchValidation
from lens_heads.evidence.verdicts import DOES_NOT, HOLDS, UNTOLD, Verdict
from lens_heads.heads.grouping import groups_in
from lens_heads.heads.matching import HeadMatch
from lens_heads.heads.scores import HeadScores
from lens_heads.runs import checks
from lens_heads.stats import (
    Interval,
    Precision,
    mean_interval,
    share_interval,
)
from lens_heads.stats.intervals import NOTHING
from lens_heads.stats.shares import are_shares
from lens_heads.studies.claims import Claim, margin, nothing, published, row, told
from lens_heads.studies.finding import Finding, meaning
from lens_heads.studies.fragile_paper.sources import ALL, METRIC, OTHERS, OWN, Gap, related_gap, sources
from lens_heads.studies.pages import ends
from lens_heads.studies.presets import read_presets
from lens_heads.tasks.sec10k.settings import settings

HEADS = 32 * 32
"""Llama-3.1-8B has 1,024 heads, of which the paper's `ks` are; with `relative_k` other models lose the same share."""

TASKS = tuple(settings()["tasks"])
FRAGILE_NEGATIVES = (None, "random_initialised", "exchanged_needles", "permuted_answers")


@dataclass(frozen=True)
class Preset:
    """One size of the study.

    `documents` are arguments of `sec10k_documents`, whose "select" companies serve to detect heads; `trials` are arguments of
    `sec10k`, whose "test" companies serve to ablate them. n in either is per task. `ks` are numbers of heads: out of 1,024, or
    of any model as they are if not `relative_k`. At `headline_k` claims are judged and heads compared with their partners in
    the other model.

    The matrix has `random_draws` random sets on all trials at every k. The headline has `random_sets` on the first
    `random_trials` of all tasks' trials; with `layer_matched`, also as many with the layers of the pooled ranking's heads;
    its trials end, not before these, at a half-width of `precision` nats, at `max_trials`, or with the trials. Beside
    log-probability, `right` is measured. `generate` decodes `max_new_tokens` and judges the text. Recovery takes
    `recovery_trials` trials per task: with `flipped` those of them that ablation turns from right to wrong; with `fair`,
    controls are also ablated themselves. `control` names a negative control (`lens_heads.sanity`) in which no claim may
    hold.

    Raises ValueError for a `headline_k`, `lead`, `right` or `control` that the other settings do not provide.
    """

    documents: dict[str, Any]
    trials: dict[str, Any]
    ks: tuple[int, ...] = (8, 16, 32, 48, 64, 96, 128)
    headline_k: int = 64
    relative_k: bool = True
    random_draws: int = 5
    random_sets: int = 40
    random_trials: int = 20
    layer_matched: bool = False
    methods: tuple[str, ...] = ("qr", "core", "summed_attention")
    lead: str = "qr"
    kind: str = "zero"
    right: str = "correct"
    generate: bool = True
    max_new_tokens: int = 30
    batch_size: int = 6
    recovery_trials: int = 50
    recovery_draws: int = 20
    flipped: bool = False
    fair: bool = False
    match_texts: int = 16
    tasks: tuple[str, ...] = TASKS
    precision: float = 0.25
    max_trials: int | None = None
    control: str | None = None

    def __post_init__(self) -> None:
        checks.whole_fields(self, random_draws=1, random_sets=1, random_trials=1, max_new_tokens=1, batch_size=1)
        checks.whole_fields(self, headline_k=1, recovery_trials=1, recovery_draws=1, match_texts=2)
        checks.whole_numbers("ks", self.ks)
        Precision(self.precision, 1 if self.max_trials is None else self.max_trials)
        measured = METRICS if self.generate else FORCED_METRICS
        known = {"headline_k": self.ks, "lead": self.methods, "right": measured, "control": FRAGILE_NEGATIVES}
        for name, among in known.items():
            if getattr(self, name) not in among:
                why = f" is not measured with generate={self.generate}" if among is measured else ""
                raise ValueError(f"{name}={getattr(self, name)!r}{why}: use one of {', '.join(map(str, among))}")

    @property
    def foreign(self) -> tuple[str, ...]:
        """The first method besides the lead, if there is one."""
        return tuple(name for name in self.methods if name != self.lead)[:1]

    def by_task(self, made: Callable[..., list[Any]], arguments: dict[str, Any], split: str) -> dict[str, list[Any]]:
        """The trials of every task, made by `sec10k` or `sec10k_documents`."""
        n = None if arguments.get("n") is None else arguments["n"] * len(self.tasks)
        trials = made(**{**arguments, "task": self.tasks, "split": split, "n": n})
        return split_by_task(trials, self.tasks)

    def stops(self, trials: int) -> Precision:
        """When the headline stops adding trials, of so many: not before the random sets have had theirs."""
        most = self.max_trials or trials
        return Precision(self.precision, most, block=max(Precision.block, self.random_trials))

    def size(self, k: int, heads: int) -> int:
        """How many of a model's heads k stands for, at least one: the same share as of 1,024, or k itself."""
        return max(1, round(k * heads / HEADS)) if self.relative_k else min(k, heads)

    def sizes(self, heads: int) -> dict[int, int]:
        """Numbers of heads in this model, with the first of `ks` that each stands for."""
        found: dict[int, int] = {}
        for k in self.ks:
            found.setdefault(self.size(k, heads), k)
        return found

    def words(self) -> dict[str, Any]:
        """What fills the texts of the claims."""
        unit = " of 1,024 heads" if self.relative_k else " heads"
        each = self.trials.get("n")
        every = "all" if each is None else each * len(self.tasks)
        recovered = self.recovery_trials if each is None else min(each, self.recovery_trials)
        return {
            **{
                name: getattr(self, name) for name in ("random_draws", "random_sets", "random_trials", "recovery_draws")
            },
            "headline": f"{self.headline_k}{unit}",
            "ks": f"{', '.join(map(str, self.ks))}{unit}",
            "tasks": len(self.tasks),
            "trials": every,
            "recovered": recovered * len(self.tasks),
            "which": "trials that ablation turns from right to wrong" if self.flipped else "trials",
        }


def split_by_task(trials: list[Any], tasks: tuple[str, ...]) -> dict[str, list[Any]]:
    """The trials of every task, in the order given."""
    return {task: [trial for trial in trials if trial.meta["task"] == task] for task in tasks}


PRESETS = read_presets(__name__, Preset)
"""All but `paper` need no download and suit models with a few hundred million parameters: short excerpts of synthetic reports,
judged by the answer's log-probability and by whether greedy decoding starts with the answer. `quick` is a trial run on four
tasks, in which too few random sets are drawn for claims to hold; `packaged` takes minutes, `thorough` hours; in the `negative`
ones nothing is to be found. `paper` has the paper's sizes, on real filings; it takes 20 chunks besides the section that states
the fact, because a whole filing exceeds a context of 32,768 tokens."""


def on_reports(found: Preset, name: str, path: str | None) -> Preset:
    """The preset of this name on the reports at `path`. Raises ValueError for "paper" without a path."""
    if path is not None:
        return replace(found, documents={**found.documents, "path": path}, trials={**found.trials, "path": path})
    if name == "paper":
        raise ValueError(
            "preset='paper' needs real filings: pass path=, a folder or .zip of edgar-crawler's JSON files"
        )
    return found


TaskRankings = dict[str, dict[str, HeadScores]]
"""Scores by method, then by task; `ALL` pools the tasks."""


@dataclass(frozen=True, eq=False, kw_only=True)
class FragileFinding(Finding):
    """What the study found in one model.

    `sizes` maps numbers of ablated heads to the k of the preset that each stands for, by which the matrix names them;
    `headline` is the number that claims are judged at. `curve` ablates the pooled rankings and many random sets. `question`:
    whether trials of the selection half need theirs, or why that cannot be told.
    """

    scores: TaskRankings
    matrix: TransferMatrix
    curve: AblationCurve
    sizes: dict[int, int]
    headline: int
    question: QuestionNeed | str = ""
    able: Ability | str = ""

    def notes(self) -> dict[str, Any]:
        (heads,) = {len(found.flat) for by_task in self.scores.values() for found in by_task.values()}
        return {
            "question_note": meaning(self.question, self.able),
            "heads": heads,
            "heads_for_k": {k: size for size, k in self.sizes.items()},
        }


@dataclass(frozen=True, eq=False, kw_only=True)
class Pair(Finding):
    """What the study found in two models, a and b.

    `correlations` is by metric and statistic; `reasons` says why some are missing. `match` pairs a's heads with b's by depth,
    patterns on common texts, scores on all tasks, and CKA; `blind` does so without scores. `validation` ablates a's top heads and
    their partners by `blind`: matched by scores, the partners of good heads would be good heads anyway.
    """

    names: tuple[str, str]
    correlations: dict[str, Correlation]
    reasons: dict[str, str]
    match: HeadMatch
    blind: HeadMatch
    validation: MatchValidation

    def notes(self) -> dict[str, Any]:
        match = {
            name: {"mean_distance": one.mean_distance, "chance": one.chance, "p": one.p, "pairs": len(one.pairs)}
            | {"mean_stability": one.pairs["stability"].mean()}
            for name, one in (("with scores", self.match), ("without scores", self.blind))
        }
        return {"models": self.names, "match": match, "reasons": self.reasons}


IDLE = "answers {:.0%} of the trials without ablation"
COLUMNS = ["id", "claim", "models", "metric", "k", "n", "paper", "found", "value", "low", "high", "p", "verdict"]
COLUMNS += ["would_tell", "holds_if"]


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
    costly = f"; own heads {own.value:.2f} [{own.low:.2f}, {own.high:.2f}] nats beyond random ones, p {own_p:.2g}"
    idle = "" if answers(right) else f"; {model} {IDLE.format(right.value)}"
    rows = []
    for claim in published(__name__)["model"]:
        (found, n, p), requires = measured[claim["id"]], "requires" in claim
        possible = own.low > 0 and own_p <= claim["alpha"] if requires else p <= claim["alpha"]
        text = "not measured, or nothing was lost" if math.isnan(found.value) else f"{found.value:.3g}"
        # Trials and random sets narrow an interval only together: so many times the sets of a claim that has some.
        sets = getattr(plan, claim["draws"]) if "draws" in claim else 0
        one = Verdict("", UNTOLD, text, found, trials=n, sets=sets)
        at = margin(claim, own) if "relative" in claim else claim["threshold"]
        one = told(one, at, possible and answers(right), most=claim["rule"] == "at_most")
        one = replace(one, because=f"{text}{one.more}{idle}{costly if requires else ''}")
        rows.append(row(claim, one, p=p, **words(plan)) | _about(claim, plan, model, f"{n} trials", one.would_tell))
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
        tasks = 0 if one is None else one.points["task"].nunique()
        verdict, p = (nothing("not measured"), math.nan) if one is None else _correlation(one, claim)
        if idle:
            verdict = replace(verdict, word=UNTOLD, because="; ".join([verdict.because, *idle]))
        about = _about(claim, plan, " and ".join(names), f"{tasks} tasks", None)
        rows.append(row(claim, verdict, p=p, **words(plan)) | about)
    return pd.DataFrame(rows, columns=COLUMNS).astype({"would_tell": float})


def words(plan: Preset) -> dict[str, Any]:
    """What fills the texts of the claims."""
    return {**plan.words(), "answered": published(__name__)["answered"]}


def _about(claim: Claim, plan: Preset, models: str, n: str, would_tell: int | None) -> dict[str, Any]:
    k = claim["k"].format(**plan.words())
    return {"models": models, "metric": claim["metric"], "k": k, "n": n, "would_tell": would_tell}


def answers(right: Interval[float]) -> bool:
    """Whether a model answers enough of the trials, without ablation, for anything to be lost."""
    return right.low > published(__name__)["answered"]


def _correlation(one: Correlation, claim: Claim) -> tuple[Verdict, float]:
    """The verdict is that of `evidence.correlate`, inside answer formats; what else could explain the number stands beside it."""
    inside, beside = one.within or one.plain, []
    for name, other in (("without log-probability and length", one.partial_all), ("of random heads alone", one.random)):
        if other is not None and math.isfinite(other.r):
            beside.append(f"R² {other.r2:.2f} {name} (p {other.p:.2g})")
    alpha = claim["alpha"]
    few = "" if inside.can_tell(alpha=alpha) else f"; no data of these formats could have p <= {alpha:g}"
    text = f"r {inside.r:+.2f}, R² {inside.r2:.2f}, p {inside.p:.2g}{few}; {'; '.join(beside)}".rstrip("; ")
    if_sure = HOLDS if claim["rule"] == "correlated" else DOES_NOT
    verdict = if_sure if one.verdict(alpha=alpha) == "correlated" else UNTOLD
    return Verdict("", verdict, text, Interval(inside.r, math.nan, math.nan)), inside.p


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
        used = rows["trial"].nunique()
        whole = Recovery(rows, {}, {})
        parts = {task: Recovery(own, {}, {}) for task, own in rows.groupby("task", sort=False)}
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


def answered(matrix: TransferMatrix, plan: Preset) -> pd.DataFrame:
    """The share of trials of all tasks that the model answers right without ablation, with its interval, as a single row."""
    rows = matrix.per_trial
    assert rows is not None
    rows = rows[rows["method"] == NONE].reset_index()
    hits, groups = rows[plan.right].to_numpy(float), groups_in(rows, rows["trial"], "trial")
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
