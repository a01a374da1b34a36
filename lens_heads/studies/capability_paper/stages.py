"""The stages of the study, each a function from what came before to a value of this package, stored and resumable."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from lens_heads.ablation.conditions import Controls
from lens_heads.ablation.curve import ablation_curve
from lens_heads.ablation.curves import AblationCurve
from lens_heads.ablation.independence import check_made_on
from lens_heads.compare import head_overlaps
from lens_heads.heads.head import Head
from lens_heads.heads.scores import HeadScores
from lens_heads.localize import Generality, MaskedMetric, Universal, generality, localize, universal_heads
from lens_heads.localize.heads import DESIGNED
from lens_heads.localize.sparse_fit import NothingToExplain
from lens_heads.model.geometry import Model, geometry
from lens_heads.scoring.score import score_heads
from lens_heads.studies.capability_paper.presets import LEAD, PASS, Preset
from lens_heads.trials.digests import made_on
from lens_heads.trials.encoding import encode_all
from lens_heads.trials.trial import Trial

UNIVERSAL = "universal heads"
Rankings = dict[str, HeadScores]
"""By capability, or by method."""


def kin_of(name: str) -> str:
    """What other data of a capability are called in tables."""
    return f"{name}, other data"


def specific_of(name: str) -> str:
    """What a capability's heads without the universal ones are called in tables."""
    return f"{name}, specific"


def masked(model: Model, name: str, trials: Sequence[Trial], plan: Preset, out: Path) -> MaskedMetric:
    """A capability's metric under any set of heads; everything that asks for one shares its run folder."""
    one = plan.capabilities[name]
    options: dict[str, Any] = {
        "max_new_tokens": one.max_new_tokens,
        "batch_size": plan.batch_size,
        "out": out / "masks" / name,
    }
    return MaskedMetric(model, trials, one.metric, plan.kind, **options)


def check_trials(
    model: Model,
    selection: Mapping[str, Sequence[Trial]],
    evaluation: Mapping[str, Sequence[Trial]],
    kin: Mapping[str, Sequence[Trial]],
    plan: Preset,
) -> None:
    """ValueError, before anything is run, for prompts beyond the context window, and for trials that both find and test heads."""
    shape, listed = geometry(model), {}
    for name, trials in selection.items():
        room = plan.capabilities[name].max_new_tokens
        listed[name] = made_on(encode_all(trials, model.tokenizer, shape.n_ctx, room, shape.d_vocab))
    for name, trials in [*evaluation.items(), *kin.items()]:
        room = plan.capabilities[name].max_new_tokens
        encoded = encode_all(trials, model.tokenizer, shape.n_ctx, room, shape.d_vocab)
        for capability, chosen_on in listed.items():
            check_made_on(capability, chosen_on, encoded)


def localized(model: Model, name: str, trials: Sequence[Trial], plan: Preset, out: Path) -> HeadScores | str:
    """A capability's heads; or why it has none: its metric is the same whatever is ablated, or too many runs failed."""
    measured = masked(model, name, trials, plan, out)
    try:
        found = localize(measured, LEAD, plan.n_masks, plan.sparsity, plan.k, seed=plan.mask_seed(name))
    except (NothingToExplain, RuntimeError) as error:
        return str(error)
    found.save(out / "scores" / f"{name}.json")
    return found


def fits(scores: Rankings) -> pd.DataFrame:
    """One row per capability: how well few heads explain what the masks cost."""
    return pd.DataFrame(
        [
            {"capability": name, "metric": found.meta["metric"], "trials": found.meta["n_trials"]}
            | {"base": found.meta["base"], "evaluations": found.meta["evaluations"]}
            | {"chosen_heads": len(found.meta["fit"]["heads"])}
            | {part: found.meta["fit"][part] for part in ("r2", "held_out_r2", "alpha")}
            for name, found in scores.items()
        ]
    )


def best_heads(scores: Rankings, k: int) -> pd.DataFrame:
    """One row per capability and head: the coefficient, its interval over masks (given that it was chosen), its stability."""
    rows: list[dict[str, Any]] = []
    for name, found in scores.items():
        chosen = {row["head"]: row for row in found.meta["fit"]["heads"]}
        for rank, head in enumerate(found.top(k), 1):
            of_fit = chosen.get(str(head), {})
            row = {"capability": name, "rank": rank, "head": str(head), "coefficient": found[head]}
            row |= {part: of_fit.get(part, np.nan) for part in ("low", "high", "stability")}
            rows.append(row)
    return pd.DataFrame(rows).astype({"low": float, "high": float})


def shared(scores: Rankings, plan: Preset) -> Universal | None:
    """The universal heads; None with too few capabilities to call any so."""
    return universal_heads(scores, plan.k, plan.at_least) if len(scores) >= plan.at_least else None


def by_luck(found: Universal, heads: int, n: int = 2000, seed: int = 0) -> float:
    """P(as many universal heads), had every capability's k heads been drawn from all at random: (hits + 1) / (n + 1)."""
    drawn = np.random.default_rng(seed).random((n, found.n_tasks, heads)).argsort(-1) < found.k
    hits = ((drawn.sum(1) >= found.at_least).sum(-1) >= len(found.heads)).sum()
    return float((hits + 1) / (n + 1))


def overlaps(scores: Rankings, k: int) -> pd.DataFrame:
    """Which of their k best heads two capabilities share, against chance."""
    return head_overlaps(scores, k) if len(scores) > 1 else pd.DataFrame({"a": [], "b": []})


def ablated(
    model: Model,
    heads: Mapping[str, Sequence[Head]],
    tasks: Mapping[str, Sequence[Trial]],
    asked: Mapping[str, str],
    plan: Preset,
    out: Path,
) -> Generality:
    """`generality` of the sets on all tasks, one by one, since each decodes as much as its capability (`asked`) needs."""
    found = []
    for task, trials in tasks.items():
        one = plan.capabilities[asked[task]]
        options: dict[str, Any] = {
            "max_new_tokens": one.max_new_tokens,
            "batch_size": plan.batch_size,
            "seed": plan.seed,
        }
        options |= {"random_draws": plan.random_draws, "out": out / task.replace(", ", "-").replace(" ", "-")}
        found.append(generality(model, heads, {task: trials}, one.metric, kind=plan.kind, **options))
    table = pd.concat([one.curve.per_trial for one in found], ignore_index=True)
    return Generality(
        AblationCurve(table, found[0].curve.meta), {task: one.metrics[task] for one in found for task in one.metrics}
    )


def everywhere(
    model: Model,
    scores: Rankings,
    universal: Universal | None,
    evaluation: Mapping[str, Sequence[Trial]],
    kin: Mapping[str, Sequence[Trial]],
    plan: Preset,
    out: Path,
) -> Generality:
    """Every capability's heads on every capability, general task and other data.

    Beside them the universal heads, and the heads of the capabilities that have universal ones among their best, without
    these.
    """
    sets = {name: found.top(plan.k) for name, found in scores.items()}
    if universal is not None and universal.heads:
        sets[UNIVERSAL] = universal.heads
        touched = [name for name, heads in sets.items() if name in scores and set(heads) & set(universal.heads)]
        sets |= {specific_of(name): universal.specific(scores[name]) for name in touched}
    others = {kin_of(name): trials for name, trials in kin.items() if name in scores}
    tasks = {**evaluation, **others}
    asked = {task: task for task in evaluation} | {kin_of(name): name for name in kin}
    return ablated(model, sets, tasks, asked, plan, out / "generality")


def curves(
    model: Model, scores: Rankings, evaluation: Mapping[str, Sequence[Trial]], plan: Preset, out: Path
) -> dict[str, AblationCurve]:
    """Ever more of each capability's heads, on its own trials, beside random and layer-matched heads."""
    found = {}
    for name, ranking in scores.items():
        one = plan.capabilities[name]
        options: dict[str, Any] = {"generate": one.max_new_tokens > 0, "max_new_tokens": one.max_new_tokens}
        options |= {"controls": Controls(("random", "random_like"), plan.curve_draws), "batch_size": plan.batch_size}
        found[name] = ablation_curve(
            model, {name: evaluation[name]}, {LEAD: ranking}, plan.ks, plan.kind, out=out / "curves" / name, **options
        )
    return found


def affordable(plan: Preset, heads: int, needles: bool) -> list[str]:
    """The methods of the preset that ask for no more evaluations than it allows; the one of a single pass needs needles."""
    cost = {"one_shot": heads, "greedy": sum(heads - added for added in range(plan.k)), PASS: 0}
    cost |= dict.fromkeys(DESIGNED, plan.n_masks)
    allowed = [name for name in plan.methods if name == LEAD or cost[name] <= plan.most_evaluations]
    return [name for name in allowed if name != PASS or needles]


def by_method(
    model: Model, trials: Sequence[Trial], lead: HeadScores, methods: Sequence[str], plan: Preset, out: Path
) -> Rankings:
    """The heads of one capability by every method of masks, all from the same trials and from masks that they share.

    A method that fails is left out with a warning.
    """
    measured, found = masked(model, plan.compared, trials, plan, out), {LEAD: lead}
    seed = plan.mask_seed(plan.compared)
    for method in methods:
        if method in (LEAD, PASS):
            continue
        try:
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", "(?s).*(masks repeat another|greedy search stopped)", UserWarning)
                found[method] = localize(measured, method, plan.n_masks, plan.sparsity, plan.k, seed=seed)
        except (ValueError, RuntimeError) as error:
            warnings.warn(f"{method} is left out: {error}", stacklevel=2)
    return found


def by_pass(model: Model, trials: Sequence[Trial], plan: Preset, out: Path) -> HeadScores:
    """The heads that write the answer and take it from the needle, from one pass over each trial."""
    options: dict[str, Any] = {"teacher_forced": True, "batch_size": plan.batch_size, "out": out / PASS}
    return score_heads(model, trials, [PASS], **options)[PASS]
