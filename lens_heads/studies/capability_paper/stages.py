"""The stages of the study of capabilities. Each is a function whose result is stored, so that a study can continue."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from lens_heads.ablation.conditions import Controls
from lens_heads.ablation.curve import ablation_curve
from lens_heads.ablation.curves import AblationCurve
from lens_heads.ablation.independence import check_made_on
from lens_heads.heads.head import Head
from lens_heads.heads.scores import HeadScores
from lens_heads.localize import Generality, MaskedMetric, Universal, generality, localize
from lens_heads.localize.heads import DESIGNED
from lens_heads.localize.sparse_fit import NothingToExplain
from lens_heads.model.geometry import Model, geometry
from lens_heads.scoring.score import score_heads
from lens_heads.studies.capability_paper.capabilities import Capability
from lens_heads.studies.capability_paper.presets import LEAD, PASS, Preset
from lens_heads.trials.digests import made_on
from lens_heads.trials.encoding import encode_all
from lens_heads.trials.trial import Trial

UNIVERSAL = "universal heads"
Rankings = dict[str, HeadScores]
"""By capability, or by method."""
Trials = Mapping[str, Sequence[Trial]]


def kin_of(name: str) -> str:
    """The name of a capability's other data in tables."""
    return f"{name}, other data"


@dataclass(frozen=True)
class Asked:
    """The trials by capability: those that find heads, those that test them (general tasks too), and those of other data."""

    selection: Trials
    evaluation: Trials
    kin: Trials

    @classmethod
    def of(cls, plan: Preset) -> Asked:
        """Load the trials of a preset."""
        return cls(
            {name: one.trials(one.select, plan.n_select) for name, one in plan.capabilities.items() if one.select},
            {name: one.trials(one.test, plan.n_test) for name, one in plan.capabilities.items()},
            {name: one.trials(one.kin, plan.n_test) for name, one in plan.localized.items() if one.kin},
        )


@dataclass(frozen=True, eq=False)
class Bench:
    """What the stages share: the model, the preset, the trials, and the model's folder."""

    model: Model
    plan: Preset
    asked: Asked
    out: Path

    def capability(self, task: str) -> Capability:
        """The capability that a task, or other data, belongs to."""
        return self.plan.capabilities[task.removesuffix(kin_of(""))]

    def running(self, task: str, *folder: str) -> dict[str, Any]:
        """Run options for a task."""
        room, out = self.capability(task).max_new_tokens, self.out.joinpath(*folder)
        return {"max_new_tokens": room, "batch_size": self.plan.batch_size, "out": out}

    def masked(self, name: str) -> MaskedMetric:
        """A capability's metric with any set of heads ablated. All methods share its run folder."""
        one, trials = self.plan.capabilities[name], self.asked.selection[name]
        return MaskedMetric(self.model, trials, one.metric, self.plan.kind, **self.running(name, "masks", name))

    def located(self, measured: MaskedMetric, method: str, name: str) -> HeadScores:
        """A capability's heads by a method."""
        plan = self.plan
        return localize(measured, method, plan.n_masks, plan.sparsity, plan.k, seed=plan.mask_seed(name))


def check_trials(bench: Bench) -> None:
    """Raise ValueError, before anything is run, for prompts that exceed the context and trials that both find and test heads."""
    model, asked, shape = bench.model, bench.asked, geometry(bench.model)

    def encoded(name: str, trials: Sequence[Trial]) -> list[Any]:
        return encode_all(trials, model.tokenizer, shape.n_ctx, bench.capability(name).max_new_tokens, shape.d_vocab)

    chosen_on = {name: made_on(encoded(name, trials)) for name, trials in asked.selection.items()}
    for name, trials in [*asked.evaluation.items(), *asked.kin.items()]:
        tested = encoded(name, trials)
        for capability, chosen in chosen_on.items():
            check_made_on(capability, chosen, tested)


def localized(bench: Bench, name: str) -> HeadScores | str:
    """A capability's heads, or why it has none: nothing changes its metric, or too many runs failed."""
    measured = bench.masked(name)
    try:
        found = bench.located(measured, LEAD, name)
    except (NothingToExplain, RuntimeError) as error:
        return str(error)
    found.save(bench.out / "scores" / f"{name}.json")
    return found


def fits(scores: Rankings) -> pd.DataFrame:
    """One row per capability: how well few heads explain the effect of the masks."""
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
    """One row per capability and top head: coefficient, interval over masks (given that it was chosen), and stability."""
    rows: list[dict[str, Any]] = []
    for name, found in scores.items():
        chosen = {row["head"]: row for row in found.meta["fit"]["heads"]}
        for rank, head in enumerate(found.top(k), 1):
            of_fit = chosen.get(str(head), {})
            row = {"capability": name, "rank": rank, "head": str(head), "coefficient": found[head]}
            rows.append(row | {part: of_fit.get(part, np.nan) for part in ("low", "high", "stability")})
    return pd.DataFrame(rows).astype({"low": float, "high": float})


def by_luck(found: Universal, heads: int, n: int = 2000, seed: int = 0) -> float:
    """P(at least as many universal heads) if every capability drew its k heads at random: (hits + 1) / (n + 1)."""
    drawn = np.random.default_rng(seed).random((n, found.n_tasks, heads)).argsort(-1) < found.k
    hits = ((drawn.sum(1) >= found.at_least).sum(-1) >= len(found.heads)).sum()
    return float((hits + 1) / (n + 1))


def ablated(bench: Bench, heads: Mapping[str, Sequence[Head]], tasks: Trials, folder: str) -> Generality:
    """`generality` of the sets of heads on the tasks, one task at a time, since each decodes a different number of tokens."""
    plan, found = bench.plan, []
    for task, trials in tasks.items():
        options = bench.running(task, folder, task.replace(", ", "-").replace(" ", "-"))
        options |= {"kind": plan.kind, "random_draws": plan.random_draws, "seed": plan.seed}
        found.append(generality(bench.model, heads, {task: trials}, bench.capability(task).metric, **options))
    table = pd.concat([one.curve.per_trial for one in found], ignore_index=True)
    metrics = {task: metric for one in found for task, metric in one.metrics.items()}
    return Generality(AblationCurve(table, found[0].curve.meta), metrics)


def everywhere(bench: Bench, scores: Rankings, universal: Universal | None) -> Generality:
    """Ablate every capability's heads on every capability, general task and other data.

    Universal heads form a set of their own. Capabilities that have any among their top heads are also ablated without them.
    """
    sets = {name: found.top(bench.plan.k) for name, found in scores.items()}
    if universal is not None and universal.heads:
        touched = [name for name, heads in sets.items() if set(heads) & set(universal.heads)]
        sets[UNIVERSAL] = universal.heads
        sets |= {f"{name}, specific": universal.specific(scores[name]) for name in touched}
    kin = {kin_of(name): trials for name, trials in bench.asked.kin.items() if name in scores}
    return ablated(bench, sets, {**bench.asked.evaluation, **kin}, "generality")


def curves(bench: Bench, scores: Rankings) -> dict[str, AblationCurve]:
    """Ablate more and more of each capability's heads on its own trials, with random and layer-matched controls."""
    plan, found = bench.plan, {}
    for name, ranking in scores.items():
        options = bench.running(name, "curves", name)
        options |= {"generate": options["max_new_tokens"] > 0}
        tests = {name: bench.asked.evaluation[name]}
        controls = Controls(("random", "random_like"), plan.curve_draws)
        found[name] = ablation_curve(
            bench.model, tests, {LEAD: ranking}, plan.ks, plan.kind, controls=controls, **options
        )
    return found


def affordable(plan: Preset, heads: int, needles: bool) -> list[str]:
    """The preset's methods that stay within its number of evaluations; the single-pass method also requires needles."""
    cost = {"one_shot": heads, "greedy": sum(heads - added for added in range(plan.k)), PASS: 0}
    cost |= dict.fromkeys(DESIGNED, plan.n_masks)
    allowed = [name for name in plan.methods if name == LEAD or cost[name] <= plan.most_evaluations]
    return [name for name in allowed if name != PASS or needles]


def by_method(bench: Bench, lead: HeadScores, methods: Sequence[str]) -> Rankings:
    """The heads of one capability by every method that uses masks, from the same trials and shared masks.

    A method that fails is skipped with a warning.
    """
    name = bench.plan.compared
    measured, found = bench.masked(name), {LEAD: lead}
    for method in methods:
        if method in (LEAD, PASS):
            continue
        try:
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", "(?s).*(masks repeat another|greedy search stopped)", UserWarning)
                found[method] = bench.located(measured, method, name)
        except (ValueError, RuntimeError) as error:
            warnings.warn(f"{method} is skipped: {error}", stacklevel=2)
    return found


def by_pass(bench: Bench) -> HeadScores:
    """The heads that write the answer and read it from the needle, from one pass over each trial."""
    options: dict[str, Any] = {"teacher_forced": True, "batch_size": bench.plan.batch_size, "out": bench.out / PASS}
    return score_heads(bench.model, bench.asked.selection[bench.plan.compared], [PASS], **options)[PASS]
