"""The stages that ablate heads: sets of heads on the trials that test them. No set runs twice on a trial, in whatever stage."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import pandas as pd

from lens_heads.answering.choices import CHOICE_METRICS, without_choices
from lens_heads.evidence.curve_results import AblationCurve
from lens_heads.evidence.grid import Grid
from lens_heads.heads.conditions import NO_ABLATION, Condition, HeadSet, head_set
from lens_heads.heads.controls import Controls
from lens_heads.heads.head import Head
from lens_heads.heads.scores import HeadScores
from lens_heads.heads.sets import every_head, random_like
from lens_heads.interventions.options import ablation_run
from lens_heads.model.geometry import head_geometry
from lens_heads.stats import Precision
from lens_heads.studies.capability_paper.capabilities import with_choices
from lens_heads.studies.capability_paper.effects import within_heads
from lens_heads.studies.capability_paper.stages import Bench, Repeated, kin_of, owner

Sets = Mapping[str, Sequence[HeadSet]]
"""By task."""


def leads(name: str, draws: Iterable[HeadScores], k: int, trials: int | None = None) -> list[HeadSet]:
    """The top k heads by every draw of masks: one condition, whose draws are those of the masks."""
    return [head_set(Condition.top(name, k), found.ranking()[:k], draw, trials) for draw, found in enumerate(draws)]


def uniform(bench: Bench, k: int, draws: int) -> list[HeadSet]:
    """Random sets of all heads, on the first trials."""
    plan, shape = bench.plan, head_geometry(bench.model)
    everyone, few = every_head(shape.n_layers, shape.n_heads), plan.random_trials
    chosen = Controls("random", draws, plan.seed).random(everyone, k)
    return [head_set(Condition.random(k), heads, draw, few) for draw, heads in enumerate(chosen)]


def matched(bench: Bench, name: str, found: Sequence[HeadScores]) -> list[HeadSet]:
    """Random sets with the layers of a capability's heads: of its draws of masks in turn."""
    plan, like, everyone = bench.plan, Condition.random_like(name, bench.plan.k), found[0].ranking()
    drawn = [
        random_like(found[draw % len(found)].ranking()[: plan.k], everyone, plan.seed + draw)
        for draw in range(plan.random_draws)
    ]
    return [head_set(like, heads, draw, plan.random_trials) for draw, heads in enumerate(drawn)]


def grid(bench: Bench, task: str, choices: bool = False) -> Grid:
    """The trials of a task, ready to run under any heads. Choices that no metric reads are dropped, since each costs a run."""
    one, trials = bench.capability(task), bench.asked.tests[task]
    options = bench.running(task, "choices" if choices else "ablations")
    ablation, run = ablation_run(bench.model, bench.plan.kind, options)
    generate = one.max_new_tokens > 0
    found = Grid.of(bench.model, {task: with_choices(trials) if choices else trials}, ablation, run, generate)
    if not choices and not {one.metric, one.right} & set(CHOICE_METRICS):
        found.tasks[task] = without_choices(found.tasks[task])
    return found


def ablated(bench: Bench, sets: Sets, choices: bool = False) -> AblationCurve:
    """Every task under its sets of heads and under none, on all its trials."""
    tables = [grid(bench, task, choices).run([NO_ABLATION, *listed]) for task, listed in sets.items()]
    return AblationCurve(pd.concat(tables, ignore_index=True), {"k": bench.plan.k})


def damage(bench: Bench, scores: Repeated) -> AblationCurve:
    """Every capability's heads on every task, and random heads of both kinds. Heads of other data run on their capability.

    A capability's own trials stop at the wanted precision.
    """
    plan, found, sets = bench.plan, [], {}
    own = {name: draws for name, draws in scores.items() if name == owner(name)}
    for task in bench.asked.tests:
        name = owner(task)
        sets[task] = [one for source, draws in own.items() for one in leads(source, draws, plan.k)]
        if name in own:
            sets[task] += leads(kin_of(name), scores.get(kin_of(name), ()), plan.k)
        if task == name:
            sets[task] += uniform(bench, plan.k, plan.random_draws)
            sets[task] += matched(bench, name, own[name]) if name in own else []
    for task, listed in sets.items():
        if task in own and bench.capability(task).metric.endswith("logprob"):
            found.append(_precise(bench, task, [NO_ABLATION, *listed]))
        else:
            found.append(grid(bench, task).run([NO_ABLATION, *listed]))
    return AblationCurve(pd.concat(found, ignore_index=True), {"k": plan.k})


def _precise(bench: Bench, task: str, sets: Sequence[HeadSet]) -> pd.DataFrame:
    """Block after block of trials, until the damage of the heads found is known well enough, or the trials are used up."""
    whole, metric, done = grid(bench, task), bench.capability(task).metric, 0
    rule, tables = Precision(max(bench.plan.precision, 1e-9), len(whole.tasks[task])), []
    while True:
        end = done + rule.next_block(done)
        tables.append(whole.run(sets, done, end))
        so_far, done = AblationCurve(pd.concat(tables, ignore_index=True), {}), end
        width = within_heads(so_far, Condition.top(task, bench.plan.k), metric, task).half_width
        if rule.enough(width, done):
            return so_far.per_trial


def curves(bench: Bench, scores: Repeated) -> AblationCurve:
    """More and more of each capability's heads on its own trials, and random heads."""
    plan = bench.plan
    sets = {
        name: [
            one
            for k in plan.ks
            for one in (*leads(name, draws, k, plan.random_trials), *uniform(bench, k, plan.curve_draws))
        ]
        for name, draws in scores.items()
        if name == owner(name)
    }
    return ablated(bench, sets)


def each_alone(bench: Bench, scores: Repeated) -> AblationCurve:
    """Every head of every capability alone, on the capability's first trials, beside all of them together."""
    plan, sets = bench.plan, {}
    for name, draws in scores.items():
        if name == owner(name):
            heads = sorted({head for found in draws for head in found.ranking()[: plan.k]})
            together = leads(name, draws, plan.k, plan.random_trials)
            sets[name] = [*together, *(single(head, plan.random_trials) for head in heads)]
    return ablated(bench, sets)


def single(head: Head, trials: int | None = None) -> HeadSet:
    """One head alone."""
    return head_set(Condition.given(str(head), 1), [head], trials=trials)


def candidates(bench: Bench, heads: Sequence[Head]) -> AblationCurve:
    """Heads that may be universal, one by one, on every capability and general task, with choices in every trial."""
    return ablated(bench, {task: [single(head) for head in heads] for task in bench.asked.evaluation}, choices=True)


def methods(bench: Bench, found: Repeated) -> AblationCurve:
    """The heads of every method on the capability that they were found for and on the others, beside random heads."""
    plan = bench.plan
    sets = [one for method, draws in found.items() for one in leads(method, draws, plan.k)]
    tasks = dict.fromkeys(bench.asked.evaluation, sets)
    return ablated(bench, {**tasks, plan.compared: [*sets, *uniform(bench, plan.k, plan.random_draws)]})
