"""The stages of the study of capabilities: what is measured."""

from __future__ import annotations

import itertools
import warnings
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from lens_heads.answering.choices import CHOICE_METRICS, without_choices
from lens_heads.evidence.curve_results import AblationCurve
from lens_heads.evidence.grid import Grid
from lens_heads.heads.conditions import NO_ABLATION, Condition, HeadSet, head_set
from lens_heads.heads.controls import Controls
from lens_heads.heads.head import Head
from lens_heads.heads.scores import HeadScores
from lens_heads.interventions.independence import check_made_on
from lens_heads.interventions.options import ablation_run
from lens_heads.model.geometry import Model, head_geometry
from lens_heads.ranking.masks.localize import DESIGNED, localize
from lens_heads.ranking.masks.measure import MaskedMetric
from lens_heads.ranking.masks.sparse_fit import NothingToExplain
from lens_heads.ranking.one_pass.score_heads import score_heads
from lens_heads.runs.warned import users_line
from lens_heads.sanity.answers import permuted_answers
from lens_heads.stats import Precision
from lens_heads.studies.capability_paper.damage import within_heads
from lens_heads.studies.capability_paper.presets import (
    LEAD,
    PASS,
    Capability,
    Preset,
    Repeated,
    kin_of,
    owner,
    with_choices,
)
from lens_heads.trials.checked_tokens import encode_all
from lens_heads.trials.digests import made_on
from lens_heads.trials.trial import Trial

Trials = Mapping[str, Sequence[Trial]]


@dataclass(frozen=True)
class Asked:
    """The trials by task: those that find heads, and those that test them (capabilities, general tasks, other data)."""

    selection: Trials
    evaluation: Trials
    kin: Trials

    @classmethod
    def of(cls, plan: Preset) -> Asked:
        """Load the trials of a preset, after the negative control if it is one of trials."""
        chosen, heads = plan.capabilities.items(), plan.localized.items()
        selection = {name: one.trials(one.select, plan.n_select) for name, one in chosen if one.select}
        if plan.kin_draws:
            back = {kin_of(name): one.trials(one.kin_select, plan.n_select) for name, one in heads if one.kin_select}
            selection |= back
        evaluation = {name: one.trials(one.test, plan.most_trials) for name, one in chosen}
        kin = {kin_of(name): one.trials(one.kin, plan.most_trials) for name, one in heads if one.kin}
        if plan.control == "permuted_answers":
            evaluation, kin = ({task: permuted_answers(of) for task, of in part.items()} for part in (evaluation, kin))
        return cls(selection, evaluation, kin)  # type: ignore[arg-type]  # permuted text stays text

    @property
    def tests(self) -> dict[str, Sequence[Trial]]:
        """All that heads are ablated on."""
        return {**self.evaluation, **self.kin}


@dataclass(frozen=True, eq=False)
class CapabilitySetup:
    """What the stages share: the model, the preset, the trials, and the model's folder."""

    model: Model
    plan: Preset
    asked: Asked
    out: Path

    def capability(self, task: str) -> Capability:
        """The capability that a task, or other data, belongs to."""
        return self.plan.capabilities[owner(task)]

    def running(self, task: str, *folder: str) -> dict[str, Any]:
        """Run options for a task."""
        room, out = self.capability(task).max_new_tokens, self.out.joinpath(*folder, task.replace(", ", "-"))
        return {"max_new_tokens": room, "batch_size": self.plan.batch_size, "out": out}

    def masked(self, task: str) -> MaskedMetric:
        """A capability's metric with any set of heads ablated. All methods share its run folder."""
        one, trials = self.capability(task), self.asked.selection[task]
        return MaskedMetric(self.model, trials, metric=one.metric, kind=self.plan.kind, **self.running(task, "masks"))

    def located(self, measured: MaskedMetric, method: str, task: str, draw: int = 0) -> HeadScores:
        """A capability's heads by a method, by a draw of its masks."""
        plan, seed = self.plan, self.plan.mask_seed(owner(task), draw, kin=task != owner(task))
        return localize(measured, method=method, n_masks=plan.n_masks, sparsity=plan.sparsity, k=plan.k, seed=seed)


def check_trials(setup: CapabilitySetup) -> None:
    """Raise ValueError, before anything is run, for prompts that exceed the context and trials that both find and test heads."""
    text, shape = setup.model.tokenizer, head_geometry(setup.model)
    chosen_on, tested = (
        {
            task: made_on(encode_all(trials, text, shape.n_ctx, setup.capability(task).max_new_tokens, shape.d_vocab))
            for task, trials in half.items()
        }
        for half in (setup.asked.selection, setup.asked.tests)
    )
    for tests, (name, chosen) in itertools.product(tested.values(), chosen_on.items()):
        check_made_on(name, chosen, tests)


def localized(setup: CapabilitySetup, task: str) -> list[HeadScores] | str:
    """A capability's heads by every draw of masks, or why it has none: nothing changes its metric, or too many runs failed."""
    measured, found, reason = setup.masked(task), [], ""
    for draw in range(setup.plan.mask_draws if task == owner(task) else setup.plan.kin_draws):
        try:
            found.append(setup.located(measured, LEAD, task, draw))
        except (NothingToExplain, RuntimeError) as error:
            reason = str(error)
            continue
        found[-1].save(setup.out / "scores" / f"{task.replace(', ', '-')}-{draw}.json")
    return found or reason


def searches(heads: int, k: int) -> dict[str, int]:
    """The evaluations of the methods that try heads one by one."""
    return {"one_shot": heads, "greedy": sum(heads - added for added in range(k))}


def affordable(plan: Preset, heads: int, needles: bool) -> list[str]:
    """The preset's methods that stay within its number of evaluations; the single-pass method also requires needles."""
    cost = {**searches(heads, plan.k), PASS: 0}
    cost |= dict.fromkeys(DESIGNED, plan.n_masks)
    allowed = [name for name in plan.methods if name == LEAD or cost[name] <= plan.most_evaluations]
    return [name for name in allowed if name != PASS or needles]


def by_method(setup: CapabilitySetup, methods: Sequence[str]) -> Repeated:
    """The heads of one capability by every other method that uses masks, from the same trials and shared masks.

    A method that fails is skipped with a warning.
    """
    name, found = setup.plan.compared, {}
    measured = setup.masked(name)
    for method in methods:
        if method in (LEAD, PASS):
            continue
        try:
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", "(?s).*(masks repeat another|greedy search stopped)", UserWarning)
                found[method] = [setup.located(measured, method, name)]
        except (ValueError, RuntimeError) as error:
            warnings.warn(f"{method} is skipped: {error}", stacklevel=users_line())
    return found


def by_pass(setup: CapabilitySetup) -> HeadScores:
    """The heads that write the answer and read it from the needle, from one pass over each trial."""
    options: dict[str, Any] = {"teacher_forced": True, "batch_size": setup.plan.batch_size, "out": setup.out / PASS}
    return score_heads(setup.model, setup.asked.selection[setup.plan.compared], [PASS], **options)[PASS]


def leads(name: str, draws: Iterable[HeadScores], k: int, trials: int | None = None) -> list[HeadSet]:
    """The top k heads by every draw of masks: one condition, whose draws are those of the masks."""
    return [head_set(Condition.top(name, k), found.ranking()[:k], draw, trials) for draw, found in enumerate(draws)]


def uniform(setup: CapabilitySetup, k: int, draws: int) -> list[HeadSet]:
    """Random sets of all heads, on the first trials."""
    plan, shape = setup.plan, head_geometry(setup.model)
    everyone, few = shape.every_head(), plan.random_trials
    chosen = Controls("random", draws, plan.seed).random(everyone, k)
    return [head_set(Condition.random(k), heads, draw, few) for draw, heads in enumerate(chosen)]


def matched(setup: CapabilitySetup, name: str, found: Sequence[HeadScores]) -> list[HeadSet]:
    """Random sets with the layers of a capability's heads: of its draws of masks in turn."""
    plan, like, everyone = setup.plan, Condition.random_like(name, setup.plan.k), found[0].ranking()
    drawn = [
        Controls("random_like", 1, plan.seed + draw).random_like(
            found[draw % len(found)].ranking()[: plan.k], everyone
        )[0]
        for draw in range(plan.random_draws)
    ]
    return [head_set(like, heads, draw, plan.random_trials) for draw, heads in enumerate(drawn)]


def grid(setup: CapabilitySetup, task: str, choices: bool = False) -> Grid:
    """The trials of a task, ready to run under any heads. Choices that no metric reads are dropped, since each costs a run."""
    one, trials = setup.capability(task), setup.asked.tests[task]
    options = setup.running(task, "choices" if choices else "ablations")
    ablation, run = ablation_run(setup.model, setup.plan.kind, options)
    generate = one.max_new_tokens > 0
    found = Grid.of(setup.model, {task: with_choices(trials) if choices else trials}, ablation, run, generate)
    if not choices and not {one.metric, one.right} & set(CHOICE_METRICS):
        found.tasks[task] = without_choices(found.tasks[task])
    return found


def ablated(setup: CapabilitySetup, sets: Mapping[str, Sequence[HeadSet]], choices: bool = False) -> AblationCurve:
    """Every task under its sets of heads and under none, on all its trials."""
    tables = [grid(setup, task, choices).run([NO_ABLATION, *listed]) for task, listed in sets.items()]
    return AblationCurve(pd.concat(tables, ignore_index=True), {"k": setup.plan.k})


def intact(setup: CapabilitySetup) -> AblationCurve:
    """Every task without ablation: what the model can do, before anything is said of heads."""
    return ablated(setup, dict.fromkeys(setup.asked.tests, ()))


def harmed(setup: CapabilitySetup, scores: Repeated) -> AblationCurve:
    """Every capability's heads on every task, and random heads of both kinds. Heads of other data run on their capability.

    A capability's own trials stop at the wanted precision.
    """
    plan, found, sets = setup.plan, [], {}
    own = {name: draws for name, draws in scores.items() if name == owner(name)}
    for task in setup.asked.tests:
        name = owner(task)
        sets[task] = [one for source, draws in own.items() for one in leads(source, draws, plan.k)]
        if name in own:
            sets[task] += leads(kin_of(name), scores.get(kin_of(name), ()), plan.k)
        if task == name:
            sets[task] += uniform(setup, plan.k, plan.random_draws)
            sets[task] += matched(setup, name, own[name]) if name in own else []
    for task, listed in sets.items():
        whole, metric, done = grid(setup, task), setup.capability(task).metric, 0
        if task not in own or not metric.endswith("logprob"):
            found.append(whole.run([NO_ABLATION, *listed]))
            continue
        # Block after block of trials, until the damage of the heads found is known well enough, or the trials are used up.
        rule, blocks, enough = Precision(max(plan.precision, 1e-9), len(whole.tasks[task])), [], False
        while not enough:
            end = done + rule.next_block(done)
            blocks.append(whole.run([NO_ABLATION, *listed], done, end))
            so_far, done = AblationCurve(pd.concat(blocks, ignore_index=True), {}), end
            enough = rule.enough(within_heads(so_far, Condition.top(task, plan.k), metric, task).half_width, done)
        found += blocks
    return AblationCurve(pd.concat(found, ignore_index=True), {"k": plan.k})


def curves(setup: CapabilitySetup, scores: Repeated) -> AblationCurve:
    """More and more of each capability's heads on its own trials, and random heads."""
    plan, sets = setup.plan, defaultdict(list)
    for name, draws in scores.items():
        for k in plan.ks if name == owner(name) else ():
            sets[name] += [*leads(name, draws, k, plan.random_trials), *uniform(setup, k, plan.curve_draws)]
    return ablated(setup, sets)


def each_alone(setup: CapabilitySetup, scores: Repeated) -> AblationCurve:
    """Every head of every capability alone, on the capability's first trials, beside all of them together."""
    plan, sets = setup.plan, {}
    for name, draws in scores.items():
        if name == owner(name):
            heads = sorted({head for found in draws for head in found.ranking()[: plan.k]})
            together = leads(name, draws, plan.k, plan.random_trials)
            sets[name] = [*together, *(single(head, plan.random_trials) for head in heads)]
    return ablated(setup, sets)


def single(head: Head, trials: int | None = None) -> HeadSet:
    """One head alone."""
    return head_set(Condition.given(str(head), 1), [head], trials=trials)


def candidates(setup: CapabilitySetup, heads: Sequence[Head]) -> AblationCurve:
    """Heads that may be universal, one by one, on every capability and general task, with choices in every trial."""
    return ablated(setup, {task: [single(head) for head in heads] for task in setup.asked.evaluation}, choices=True)


def methods(setup: CapabilitySetup, found: Repeated) -> AblationCurve:
    """The heads of every method on the capability that they were found for and on the others, beside random heads."""
    plan = setup.plan
    sets = [one for method, draws in found.items() for one in leads(method, draws, plan.k)]
    tasks = dict.fromkeys(setup.asked.evaluation, sets)
    return ablated(setup, {**tasks, plan.compared: [*sets, *uniform(setup, plan.k, plan.random_draws)]})
