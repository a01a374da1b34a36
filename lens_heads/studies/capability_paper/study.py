"""Which few heads carry a capability? Heads, what they cost it and other tasks, curves, methods, models compared; and the page.

`capability` runs it. Runs are stored, and no set of heads runs twice on a trial, in whatever stage.
"""

from __future__ import annotations

import itertools
import warnings
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Unpack

import pandas as pd

from lens_heads import plots
from lens_heads.answering.choices import CHOICE_METRICS, without_choices
from lens_heads.evidence.curve_results import AblationCurve
from lens_heads.evidence.grid import Grid
from lens_heads.heads.conditions import NO_ABLATION, Condition, HeadSet, head_set
from lens_heads.heads.controls import Controls
from lens_heads.heads.geometry import HeadGeometry
from lens_heads.heads.head import Head
from lens_heads.heads.scores import HeadScores
from lens_heads.heads.sets import every_head
from lens_heads.interventions.independence import check_made_on
from lens_heads.interventions.options import ablation_run
from lens_heads.model.geometry import Model, head_geometry, require_raw_weights
from lens_heads.ranking.masks.localize import DESIGNED, localize
from lens_heads.ranking.masks.measure import MaskedMetric
from lens_heads.ranking.masks.sparse_fit import NothingToExplain
from lens_heads.ranking.one_pass.score_heads import score_heads
from lens_heads.runs.typed import typed
from lens_heads.runs.warned import users_line
from lens_heads.sanity.answers import permuted_answers
from lens_heads.stats import Precision
from lens_heads.studies.capability_paper import damage
from lens_heads.studies.capability_paper.claims import (
    CapabilityFinding,
    TaskMap,
    asked_claims,
    beside,
    claim_words,
    depths,
    judged,
)
from lens_heads.studies.capability_paper.damage import within_heads
from lens_heads.studies.capability_paper.presets import (
    LEAD,
    PASS,
    PRESETS,
    Capability,
    Preset,
    Repeated,
    chance,
    kin_of,
    of_capabilities,
    owner,
    with_choices,
)
from lens_heads.studies.claims import HOLDS, Claim, published
from lens_heads.studies.finding import records
from lens_heads.studies.pages import Shown, bars, claims_table
from lens_heads.studies.presets import described, sized
from lens_heads.studies.runner import MODELS, Models, PresetOf, StageRun, Study, StudyOptions, conduct
from lens_heads.studies.seen import Seen
from lens_heads.trials.checked_tokens import encode_all
from lens_heads.trials.digests import made_on
from lens_heads.trials.sandbox import permission
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


def affordable(plan: Preset, heads: int, needles: bool) -> list[str]:
    """The preset's methods that stay within its number of evaluations; the single-pass method also requires needles."""
    cost = {"one_shot": heads, "greedy": sum(heads - added for added in range(plan.k)), PASS: 0}
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
    everyone, few = every_head(shape.n_layers, shape.n_heads), plan.random_trials
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


def _sentence(each: CapabilityFinding) -> str:
    """One model's answer: the capabilities that few heads carry, out of those asked."""
    carries = each.claims[each.claims["id"] == "carries"]
    names = list(carries.loc[carries["verdict"] == HOLDS, "capability"])
    carried = f": {', '.join(names)}" if names else ""
    return f"{each.model}: {each.plan.k} heads demonstrably carry {len(names)} of {len(carries)} capabilities{carried}."


def _unit(metrics: Iterable[str]) -> str:
    """The unit of damage: nats if all metrics are log-probabilities."""
    return "nats" if all(metric.endswith("logprob") for metric in metrics) else "of each task's metric"


@typed
def capability(
    models: Models = MODELS,
    capabilities: Sequence[str] | None = None,
    preset: PresetOf[Preset] = "packaged",
    out: str | Path = "runs/capability",
    words: str | Path | None = None,
    allow_code_execution: bool | str = False,
    **options: Unpack[StudyOptions],
) -> list[CapabilityFinding]:
    """Find the few heads that carry each capability, and what else they serve   (Compressed Sensing for Capability Localization)

    Args:
        models: names as `load_model` takes them, or loaded models. Several are compared at the end.
        capabilities: some of the preset's, by name; None for all (with "paper", all whose arguments are given).
        preset: "packaged" (offline, small models), "quick", "thorough" (hours), "paper", a negative control
            ("negative-model", "negative-answers"), or your own `Preset`.
        out: the run folder. It gets a folder per model (masks, scores, curves, Parquet tables), `report.html` and
            `study_capability.json`. The same call continues it; other settings are refused.
        words: a list of swear words, required by the paper's capability "swearing".
        allow_code_execution: True permits running generated programs, confined (`trials.sandbox`), "unsafe" on a disposable
            machine also unconfined; required by the paper's capability "mbpp".
        precision, max_trials: in place of the preset's: the half-width, in nats, at which a capability's own trials stop, and the
            most test trials of each task.
        **options: those of `load_model` (device, dtype, ...) for models given by name; `workers` and `num_gpus` as in
            `lh.worker_pool`; `command`, shown on the page, by default the running command; `plan`: only print what it would
            cost, from the preset and one measured block, and return nothing.

    Returns one finding per model, and prints the claims of each.

    Raises ValueError for an unknown preset or capability, no models, or a folder with other settings, OSError where generated
    programs cannot be confined.

    Example:
        >>> lh.studies.capability(model, preset="quick", plan=True)
        capability: what it would cost ...
        []
    """
    allowed = permission("allow_code_execution", allow_code_execution)
    given = {"words": None if words is None else str(words), "allow_code_execution": allowed}
    size, name = sized(preset, PRESETS, options)
    study = CapabilityStudy(of_capabilities(size, capabilities, **given), name)
    if words is not None:  # A faulty list shows before a model is loaded.
        _ = study.asked
    return conduct(study, models, out, options)[0]


class CapabilityStudy(Study[Preset, CapabilityFinding]):
    """The study of capabilities for the runner."""

    name = "capability"

    @cached_property
    def asked(self) -> Asked:
        """The trials, the same for all models."""
        return Asked.of(self.plan)

    def check(self, model: Model) -> None:
        """Refuse processed weights, prompts that exceed the context, and trials that both find and test heads."""
        require_raw_weights(model)
        check_trials(CapabilitySetup(model, self.plan, self.asked, Path()))

    def claims(self) -> list[Claim]:
        return asked_claims(self.plan)

    def words(self) -> dict[str, Any]:
        return {"plan": self.plan, **claim_words(self.plan)}

    def costs(self, shape: HeadGeometry) -> dict[str, int]:
        """Trial-passes by stage (one trial under one set), as if no two sets had the same heads and all trials were used."""
        plan, asked = self.plan, self.asked
        sizes = {task: len(trials) for task, trials in asked.tests.items()}
        few = {task: min(plan.random_trials, size) for task, size in sizes.items()}
        own, main = list(plan.localized), plan.mask_draws
        draws = {name: main if name == owner(name) else plan.kin_draws for name in asked.selection}
        found = {
            f"heads of {name}": (draws[name] * plan.n_masks + 1) * len(trials)
            for name, trials in asked.selection.items()
        }
        more = [k for k in plan.ks if k != plan.k]
        sets = {task: 1 + main * len(own) + draws.get(kin_of(owner(task)), 0) * (owner(task) in own) for task in sizes}
        controls = {name: plan.random_draws * (1 + (name in own)) for name in asked.evaluation}
        found["damage"] = sum(sets[task] * size + controls.get(task, 0) * few[task] for task, size in sizes.items())
        found["curves"] = sum(few[name] * len(more) * (main + plan.curve_draws) for name in own)
        found["each alone"] = sum(few[name] * main * (plan.k - (1 in plan.ks)) for name in own)
        found["candidates"] = sum(sizes[name] * (1 + plan.candidates) for name in asked.evaluation)
        # Other methods: regressions share masks, and greedy search begins with each head alone.
        heads, trials = shape.n_layers * shape.n_heads, asked.selection[plan.compared]
        listed = affordable(plan, heads, all(trial.needle for trial in trials))
        searches = {"one_shot": heads, "greedy": sum(heads - added for added in range(plan.k))}
        runs = sum(searches[name] for name in listed if name in searches)
        runs -= heads if set(searches) <= set(listed) else 0
        runs += plan.n_masks * len([name for name in listed if name in ("csb", "csl")])
        tests = sum(sizes[name] for name in asked.evaluation)
        found |= {"methods": runs * len(trials), "methods, ablated": tests * len([n for n in listed if n != LEAD])}
        return found | ({PASS: len(trials)} if PASS in listed else {})

    def probe(self) -> list[Trial]:
        return [trials[0] for trials in self.asked.evaluation.values()]

    def one(self, model: Model, run: StageRun) -> CapabilityFinding:
        setup, name = CapabilitySetup(model, self.plan, self.asked, run.folder), head_geometry(model).name
        found = {task: run.stage(f"heads of {task}", localized, setup, task) for task in self.asked.selection}
        reasons = {task: one for task, one in found.items() if isinstance(one, str)}
        scores = {
            task: one for task, one in found.items() if isinstance(one, list) and isinstance(found[owner(task)], list)
        }
        if not scores:
            raise ValueError(f"{name}: no capability has heads: {' '.join(reasons.values())}")
        own = [task for task in scores if task == owner(task)]
        if self.plan.compared not in own:
            setup = replace(setup, plan=replace(self.plan, compared=own[0]))
        plan = setup.plan
        curve = run.stage("damage", harmed, setup, scores)
        more = run.stage("curves", curves, setup, scores)
        each = run.stage("each alone", each_alone, setup, scores)
        mine = {task: scores[task] for task in own}
        alone = run.stage("candidates", candidates, setup, list(damage.shared(mine, plan.k, plan.candidates)))
        lead, needles = scores[plan.compared], all(trial.needle for trial in self.asked.selection[plan.compared])
        listed = affordable(plan, lead[0].values.numel(), needles)
        by_name = {LEAD: lead, **run.stage("methods", by_method, setup, listed)}
        if PASS in listed:
            by_name[PASS] = [run.stage(PASS, by_pass, setup)]
        compared = run.stage("methods, ablated", methods, setup, by_name)
        finding = judged(
            name,
            plan,
            scores=scores,
            chances={task: chance(made, setup.capability(task).right) for task, made in self.asked.tests.items()},
            curves={"curve": curve, "alone": alone, "compared": compared},
            evaluations={method: found[0].evaluations for method, found in by_name.items()},
            reasons=reasons,
            parameters=sum(weights.numel() for weights in model.parameters()),
            methods=by_name,
        )
        metrics = finding.metrics
        finding.frames.update(
            fits=damage.fits(scores, damage.by_draw(curve, scores, plan, metrics)),
            best_heads=damage.best_heads(scores, plan.k),
            agreement=damage.agreement(mine, plan.k),
            everywhere=damage.everywhere(curve, plan, metrics, own),
            right_answers=damage.right_answers(more, plan, own, finding.chances),
            curves=damage.growing(more, plan, metrics, own),
            additivity=damage.additivity(each, plan, metrics, mine),
        )
        return finding

    def seen(self, found: CapabilityFinding) -> Seen:
        lead = dict.fromkeys((found.plan.compared, *found.own))
        trials = [self.asked.evaluation[name][0] for name in lead]
        return Seen(trials, {name: replace(found.scores[name][0], method=name) for name in lead})

    def shown(self, findings: Sequence[CapabilityFinding], pairs: Sequence[Any]) -> Shown:
        plan, listed, asked = self.plan, self.plan.capabilities, []
        for name, one in listed.items():
            kin = f", other data {described(one.kin)}" if one.kin else ""
            asked.append(f"{name}: {described(one.test)}{kin}, {one.metric}")
        shares = ", ".join(f"{name}: {one.share:g} times as many" for name, one in listed.items() if one.share != 1)
        words = {
            "shares": f" ({shares})" if shares else "",
            "asked": "; ".join(asked),
            "several": len(findings) + 1,
        }
        models = beside(findings)
        measured = models[models["damage"].notna()]
        claims = [claims_table(each.claims, f"{each.model}, k = {each.plan.k}", ("p", "trials")) for each in findings]
        tables = {"claims": claims, "scale": models}
        if len(findings) > 1:
            tables["depths"] = depths(findings, plan.k)
        figures = {
            "maps": [
                plots.head_map(each.scores[name][0], title=f"{each.name}: {name}")
                for each in findings
                for name in each.own
            ],
            "scale": plots.drop_bars(
                bars(measured, measured["capability"], measured["model"], "damage"),
                title=f"The cost of ablating each capability's top {plan.k} heads",
                unit=_unit(one.metric for one in plan.localized.values()),
                axis="damage",
            ),
        }
        top = [(each, each.frames["best_heads"].groupby("capability", sort=False).head(1)) for each in findings]
        return Shown(
            words,
            tables,
            figures,
            heads=[
                f"{one.name} {row['head']} ({row['capability']})"
                for one, best in top
                for row in best.to_dict("records")
            ],
            verdict=" ".join(map(_sentence, findings)),
            first=[
                plots.generality_map(
                    TaskMap(each.frames["everywhere"], each.metrics),
                    title=f"{each.name}: the cost of ablating each capability's heads",
                )
                for each in findings
            ],
        )

    def shown_model(self, each: CapabilityFinding) -> Shown:
        frames, unit = each.frames, _unit(each.metrics.values())
        words = {
            "lost": " ".join(f"{name}: {reason}." for name, reason in each.reasons.items()),
            "universal": each.universal or "Too few capabilities that the model has.",
            "metric": each.metrics[each.plan.compared],
        }
        alone = frames["alone"]
        wide = frames["right_answers"].pivot(index="capability", columns="k", values="value").loc[each.own]
        wide.loc["the paper's GSM8K"] = pd.Series(published(__name__)["gsm8k"]).reindex(wide.columns)
        wide = wide.rename(columns=lambda k: f"{k} heads").rename_axis("capability").reset_index()
        own = alone[alone["own"]].pivot(index="head", columns="task", values="damage").reset_index()
        spread, methods = frames["spread"], frames["methods"]
        labels = [plots.method_style(method).label for method in each.methods]
        parts = {"damage": "own capability", "others": "mean of the others"}
        compared = pd.concat([bars(methods, labels, label, part) for part, label in parts.items()])
        figures = {
            "spread": plots.drop_bars(
                bars(spread, spread["heads"], spread["on"], "damage"),
                title="Damage by kind of task",
                unit=unit,
                axis="damage",
            ),
            "curves": plots.task_curves(
                frames["curves"],
                title="Every capability's own curve",
                unit=_unit(each.metrics[name] for name in each.own),
            ),
            "methods": plots.drop_bars(
                compared, title="The cost of ablating each method's heads", unit=unit, axis="damage"
            ),
        }
        return Shown(words, {"one_by_one": own, "right_by_k": wide}, figures)

    def beside(self, findings: Sequence[CapabilityFinding]) -> dict[str, Any]:
        return {"scale": records(beside(findings)), "depths": records(depths(findings, self.plan.k))}
