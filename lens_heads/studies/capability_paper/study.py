"""Which few heads carry a capability? Heads, what they cost it and other tasks, curves, methods, models compared; and the page.

`capability` runs it. Runs are stored, and no set of heads runs twice on a trial, in whatever stage.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, Unpack

import pandas as pd

from lens_heads import plots
from lens_heads.heads.geometry import HeadGeometry
from lens_heads.model.geometry import Model, head_geometry, require_raw_weights
from lens_heads.report import tables as shown_tables
from lens_heads.runs.typed import typed
from lens_heads.studies.capability_paper import damage
from lens_heads.studies.capability_paper.claims import (
    CapabilityFinding,
    TaskMap,
    able,
    asked_claims,
    beside,
    claim_words,
    depths,
    judged,
)
from lens_heads.studies.capability_paper.presets import (
    LEAD,
    PASS,
    PRESETS,
    Preset,
    chance,
    kin_of,
    of_capabilities,
    owner,
)
from lens_heads.studies.capability_paper.stages import (
    Asked,
    CapabilitySetup,
    affordable,
    by_method,
    by_pass,
    candidates,
    check_trials,
    curves,
    each_alone,
    harmed,
    intact,
    localized,
    methods,
    searches,
)
from lens_heads.studies.claims import HOLDS, Claim, published
from lens_heads.studies.finding import records
from lens_heads.studies.pages import Shown, bars, claims_table
from lens_heads.studies.presets import described, sized
from lens_heads.studies.runner import MODELS, Models, PresetOf, StageRun, Study, StudyOptions, conduct
from lens_heads.studies.seen import Seen
from lens_heads.trials.sandbox import permission
from lens_heads.trials.trial import Trial


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
        found["ability"] = sum(sizes.values())
        found["damage"] = sum(sets[task] * size + controls.get(task, 0) * few[task] for task, size in sizes.items())
        found["curves"] = sum(few[name] * len(more) * (main + plan.curve_draws) for name in own)
        found["each alone"] = sum(few[name] * main * (plan.k - (1 in plan.ks)) for name in own)
        found["candidates"] = sum(sizes[name] * (1 + plan.candidates) for name in asked.evaluation)
        # Other methods: regressions share masks, and greedy search begins with each head alone.
        heads, trials = shape.size, asked.selection[plan.compared]
        listed = affordable(plan, heads, all(trial.needle for trial in trials))
        tried = searches(heads, plan.k)
        runs = sum(tried[name] for name in listed if name in tried)
        runs -= heads if set(tried) <= set(listed) else 0
        runs += plan.n_masks * len([name for name in listed if name in ("csb", "csl")])
        tests = sum(sizes[name] for name in asked.evaluation)
        found |= {"methods": runs * len(trials), "methods, ablated": tests * len([n for n in listed if n != LEAD])}
        return found | ({PASS: len(trials)} if PASS in listed else {})

    def probe(self) -> list[Trial]:
        return [trials[0] for trials in self.asked.evaluation.values()]

    def one(self, model: Model, run: StageRun) -> CapabilityFinding:
        setup, name = CapabilitySetup(model, self.plan, self.asked, run.folder), head_geometry(model).name
        chances = {task: chance(made, setup.capability(task).right) for task, made in self.asked.tests.items()}
        first = run.stage("ability", intact, setup)
        for task in self.asked.evaluation:
            word = "does" if able(first, self.plan, chances, task) else "is not shown to do"
            shown_tables.show(shown_tables.plain(f"{name} {word} {task}"))
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
        listed = affordable(plan, len(lead[0].flat), needles)
        by_name = {LEAD: lead, **run.stage("methods", by_method, setup, listed)}
        if PASS in listed:
            by_name[PASS] = [run.stage(PASS, by_pass, setup)]
        compared = run.stage("methods, ablated", methods, setup, by_name)
        finding = judged(
            name,
            plan,
            scores=scores,
            chances=chances,
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
