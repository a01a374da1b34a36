"""The LOCOS study, end to end: detection, ablation, judged texts, causal evidence, what the heads read, and its page.

`locos` runs it, `lens-heads demo` its smallest presets. Stages are functions whose results are stored.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Unpack

import pandas as pd

from lens_heads import plots, report
from lens_heads.evidence.areas import areas
from lens_heads.evidence.head_sets import capped
from lens_heads.evidence.recovery_results import Recovery
from lens_heads.evidence.verdicts import harms, smallest_k
from lens_heads.heads.conditions import Condition
from lens_heads.heads.geometry import HeadGeometry
from lens_heads.model.directions import check_direction
from lens_heads.model.geometry import Model, head_geometry
from lens_heads.report import tables
from lens_heads.runs.typed import typed
from lens_heads.studies.claims import Claim, beyond_random, by_seed, published
from lens_heads.studies.finding import ABLE, ASKED, asked, can_choose, meaning, together
from lens_heads.studies.locos_paper.claims import (
    ATTENTION,
    HEADLINE_METHODS,
    LEAD,
    PRESETS,
    RIVALS,
    TASK,
    LocosFinding,
    Preset,
    asked_claims,
    best_baseline,
    claims,
    measured,
    ranked,
)
from lens_heads.studies.locos_paper.stages import (
    MORE_SEEDS,
    LocosSetup,
    agreement,
    chosen,
    curve,
    detect,
    headline,
    judged_texts,
    mended,
    other_kinds,
    outranked,
    patched,
    read,
    reselected,
    rivals,
)
from lens_heads.studies.pages import Shown, bars, claims_table
from lens_heads.studies.presets import beside, described, sized, trials_of
from lens_heads.studies.runner import (
    MODELS,
    Models,
    PresetOf,
    StageRun,
    Study,
    StudyOptions,
    conduct,
    several,
)
from lens_heads.studies.seen import Seen
from lens_heads.trials.trial import Trial

METRIC = "logprob"
SETS = {"random": "random", "random_like": "random, same layers"}


@typed
def locos(
    models: Models = MODELS,
    preset: PresetOf[Preset] = "packaged",
    out: str | Path = "runs/locos",
    tuned_lens: str | Path | None = None,
    **options: Unpack[StudyOptions],
) -> list[LocosFinding]:
    """Re-run the LOCOS paper (Gema et al., arXiv 2607.01002) on one or more models.

    Args:
        models: names as `load_model` takes them, or loaded models.
        preset: "packaged" (offline, small models), "thorough" (hours), "quick", "paper", "scripts", "negative-model",
            "negative-needles", "demo", "demo-quick", "demo-full", or your own `Preset`.
        out: the run folder. It gets a folder per model (Parquet tables, scores, curves), `report.html` and `study_locos.json`.
            The same call continues it; other settings are refused.
        tuned_lens: a safetensors file as `score_heads(direction=...)` takes it, for a single model.
        precision, max_trials: in place of the preset's: the half-width, in nats, at which no more test trials are run, and the
            most of them (up to as many as the preset's `test` has).
        **options: those of `load_model` (device, dtype, ...) for models given by name; `workers` and `num_gpus` as in
            `lh.worker_pool`; `command`, shown on the page, by default the running command; `plan`: only print what it would
            cost, from the preset and one measured block, and return nothing.

    Returns one finding per model, and prints the claims of each.

    Raises ValueError for an unknown preset, no models, or a folder with other settings.

    Example:
        >>> lh.studies.locos(model, preset="quick", plan=True)
        locos: what it would cost ...
        []
    """
    size, name = sized(preset, PRESETS, options)
    models = several(models)
    if tuned_lens is not None and len(models) > 1:
        raise ValueError("a tuned lens belongs to one model: run the study on that model alone")
    if tuned_lens is not None:
        check_direction(tuned_lens)
    study = LocosStudy(size, name, {"tuned_lens": str(tuned_lens) if tuned_lens else None})
    return conduct(study, models, out, options)[0]


class LocosStudy(Study[Preset, LocosFinding]):
    """The LOCOS study for the runner."""

    name = "locos"

    def one(self, model: Model, run: StageRun) -> LocosFinding:
        plan, shape, folder = self.plan, head_geometry(model), run.folder
        select, test = trials_of(plan.select), plan.tested()
        able = run.stage("ability", can_choose, model, select, folder / "ability")
        question = run.stage("question", asked, model, select, folder / "question")
        tables.show(tables.plain(f"{shape.name}: {meaning(question, able)}"))
        scores = run.stage("detection", detect, model, select, plan, folder, self.extra["tuned_lens"])
        tables.show(tables.top_heads(scores, 3, f"{shape.name}: top heads by method"))
        setup = LocosSetup(model, plan, select, test, folder)
        choice = run.stage("choice", chosen, setup, scores)
        k = plan.fixed_k(shape.size) or smallest_k(choice, LEAD)
        baseline = best_baseline(choice, k)
        scores |= run.stage("rivals", rivals, setup, scores) if plan.rivals else {}
        at_k = run.stage("headline", headline, setup, scores, k, baseline)
        more = plan.sets > 0
        beside = run.stage("random sets", outranked, setup, scores, k) if more else None
        kinds = run.stage("other kinds", other_kinds, setup, scores, k, baseline) if more else {}
        again = run.stage("other seeds", reselected, setup, scores, k) if more else None
        growing = run.stage("ablation", curve, setup, scores, k)
        tables.show(tables.curve(growing, "logprob"))
        texts = run.stage("texts", judged_texts, setup, scores, k)
        cri = run.stage("patching", patched, setup, texts[TASK]) if plan.cri_trials else None
        recovered = run.stage("recovery", mended, setup, scores[LEAD], k) if plan.recovery_trials else None
        provenance, literal = run.stage("reading", read, setup, scores) if plan.read_heads else ({}, None)
        frames = {
            **agreement(model, scores, measured(cri), k),
            "choice": choice.frame,
            "headline": together({task: one.frame for task, one in at_k.items()}),
            "ablation": growing.frame,
            "texts": together({task: one.frame for task, one in texts.items()}),
            "differences": growing.differences("logprob", lead=LEAD),
            **provenance,
        }
        trials = {"ablation_trials": growing.per_trial, "choice_trials": choice.per_trial}
        trials["headline_trials"] = together({task: one.per_trial for task, one in at_k.items()})
        trials["texts_trials"] = together({task: one.per_trial for task, one in texts.items()})
        if recovered is not None and not isinstance(recovered, str):
            frames["recovery"], trials["recovery_examples"] = (recovered.frame, recovered.per_trial)
        found = LocosFinding(
            model=shape.name,
            frames=frames,
            trials=trials,
            k=k,
            baseline=baseline,
            scores=scores,
            headline=at_k,
            curve=growing,
            texts=texts,
            questions={trial.id: trial.question for trial in test},
            question=question,
            able=able,
            kinds=kinds,
            cri=cri,
            literal=literal,
            recovered=recovered,
        )
        if not isinstance(question, str):
            frames["question"] = question.frame
        if not isinstance(able, str):
            frames["ability"] = able.frame
        if len(plan.ks) > 1:
            frames["areas"] = areas(growing, lead=LEAD)
        if beside is not None:
            rank = harms(beside, LEAD, k)
            frames["ranks"] = pd.DataFrame(
                [{"method": LEAD, "k": k, "sets": rank.sets, "p": rank.p, "trials": rank.trials}]
            )
            frames["kinds"] = beyond_random(kinds, dict.fromkeys(scores, k), "logprob")
            trials["sets_trials"] = beside.per_trial
            trials["kinds_trials"] = together({kind: one.per_trial for kind, one in kinds.items()}, "kind")
        if again is not None:
            frames["seeds"], trials["seeds_trials"] = by_seed(again, {LEAD: k}, "logprob"), again.per_trial
        frames["claims"] = claims(found, plan.described())
        every_head = [ranked(name, one).assign(method=name) for name, one in found.ranked.items()]
        trials["scores"] = pd.concat(every_head, ignore_index=True)
        return found

    def seen(self, found: LocosFinding) -> Seen:
        names = dict.fromkeys((LEAD, f"{LEAD}_exact", found.baseline, "attention_spatial"))
        return Seen(
            self.plan.tested(), {name: found.scores[name] for name in names if name in found.scores}, found.curve
        )

    def claims(self) -> list[Claim]:
        return asked_claims(self.plan)

    def words(self) -> dict[str, Any]:
        rule = published(__name__)["rules_of_k"].get(self.plan.k, f"k = {self.plan.k}")
        return {**super().words(), "rule_of_k": rule, "calls": self.plan.described()}

    def costs(self, shape: HeadGeometry) -> dict[str, int]:
        """Trial-passes by stage: one trial under one set of heads each. At most, where precision may stop a stage earlier.

        Patching and recovery count a pass per head (or set) and trial, though several heads share one.
        """
        plan = self.plan
        heads, tests = shape.size, len(plan.tested())
        sizes, others = len(capped(plan.ks, shape.size)), {**plan.spared, **plan.downstream}
        counts = {task: len(trials_of(call)) for task, call in others.items()}
        few = plan.draws * min(plan.few, tests)
        rivals = len(RIVALS) * bool(plan.rivals)
        methods = len({name for name in HEADLINE_METHODS if name in plan.methods}) + 1 + rivals
        controls = sum({"bottom": 1, "random": plan.seeds, "random_like": plan.seeds}[name] for name in plan.controls)
        selected = len(trials_of(plan.select))
        return {
            "detection": selected,
            "ability": 2 * min(ABLE, selected),
            "question": 3 * min(ASKED, selected),
            "choice": min(plan.choose, selected) * (2 + 2 * (1 + len(ATTENTION)) * sizes),
            "rivals": min(plan.rivals, selected) * 2 * heads,
            "headline": min(plan.max_trials, tests) * (2 + 2 * methods) + 2 * few,
            "other tasks": sum(2 * n + plan.draws * min(plan.few_others, n) for n in counts.values()),
            "ablation": min(plan.curve_trials, tests) * (1 + (len(plan.ablated) + 1 + rivals + controls) * (sizes + 1)),
            "random sets": plan.sets * min(plan.few, tests),
            # Where only the last row is ablated, one prefill serves all sets of heads: about so many more in all.
            "other kinds": (plan.sets > 0) * 3 * (3 * min(plan.text_trials, tests) + 2 * min(plan.few, tests)),
            "other seeds": (plan.sets > 0) * len(MORE_SEEDS) * (selected + min(plan.text_trials, tests)),
            "texts": sum(2 * min(plan.text_trials, n) for n in (tests, *counts.values())),
            "patching": min(plan.cri_trials, tests) * heads,
            "recovery": min(plan.recovery_trials, tests) * (2 + 3 * plan.recovery_draws),
            "reading": 3 * selected if plan.read_heads else 0,
        }

    def probe(self) -> list[Trial]:
        return trials_of(self.plan.test)[:4]

    def shown(self, findings: Sequence[LocosFinding], pairs: Sequence[Any]) -> Shown:
        plan, more = self.plan, ("share", "p", "trials", "would_tell", "sets_would_tell", "measured_on")
        packaged = "packaged" in (plan.select[0], plan.test[0])
        words = {
            "select": described(plan.select),
            "test": described(plan.test),
            "chosen": ", ".join(f"{each.model}: {each.k}, baseline {each.baseline}" for each in findings),
            "packaged": beside(__name__, "page.json")["packaged"] if packaged else "",
        }
        maps = [
            plots.head_map(scores, title=f"{each.name}: {plots.method_style(method).label}")
            for each in findings
            for method, scores in each.scores.items()
        ]
        maps += [
            plots.method_agreement(each.scores, title=f"{each.name}: agreement between methods") for each in findings
        ]
        claims = [claims_table(each.claims, f"{each.model}, k = {each.k}", more) for each in findings]
        return Shown(
            words,
            {"claims": claims},
            {"maps": maps},
            heads=[f"{each.model} {head}" for each in findings for head in each.scores[LEAD].ranking()[:3]],
            verdict=" ".join(map(_sentence, findings)),
            first=[
                plots.ablation_curves(each.curve, METRIC, title=f"{each.model}: the cost of ablating heads")
                for each in findings
            ],
        )

    def shown_model(self, each: LocosFinding) -> Shown:
        """One model's tables and figures; those of stages that the preset skips are missing."""
        frames, curve = each.frames, each.curve
        headline, decoded = frames["headline"], frames["texts"]
        headline = headline[(headline["metric"] == METRIC) & headline["set"].isin(["top", *SETS])]
        sets = headline["method"].where(headline["set"] == "top", headline["set"].map(SETS))
        right = decoded[(decoded["metric"] == "correct") & (decoded["k"] == each.k)]
        jaccard = {str(name): part for name, part in frames["jaccard"].groupby("method", sort=False)}
        words: dict[str, Any] = {}
        tables: dict[str, Any] = {
            "overlaps": frames["overlaps"].assign(method_b=list(jaccard)),
            "stability": frames["stability"].rename(columns={"expected": "by chance", "needed": "trials for .8"}),
        }
        figures: dict[str, Any] = {
            "cost": plots.drop_bars(
                bars(headline, headline["task"], sets, "drop"), title="Cost", unit="nats per token"
            ),
            "lost": plots.drop_bars(
                bars(right, right["task"], right["method"], "drop"), title="Right answers lost", unit="share of answers"
            ),
            "jaccard": plots.jaccard_curves(jaccard),
        }
        if "rougeL" in curve.metrics:
            figures["judged"] = plots.ablation_curves(curve, "rougeL")
        causal = f"No head was patched: {each.cri}. " if isinstance(each.cri, str) else ""
        if (cri := each.patched) is not None:
            thirds = frames["thirds"][frames["thirds"]["method"] == "cri"]
            words["patched"] = len(cri.trial_ids)
            figures |= {"cri": plots.head_map(cri), "scatter": plots.score_scatter(each.scores[LEAD], cri, thirds)}
        if isinstance(recovered := each.recovered, Recovery):
            counts = ", ".join(f"{what.replace('_', ' ')} {n}" for what, n in recovered.examples.items())
            causal += f"Number of examples for recovery: {counts}."
            figures["recovery"] = recovered.plot()
            tables["beyond"] = recovered.differences()
        elif recovered:
            causal += f"Recovery could not be measured: {recovered}."
        if each.cri is not None:
            words["causal"] = causal
        if (literal := each.literal) is not None:
            best = [str(head) for head in each.scores[LEAD].ranking()[: self.plan.read_heads]]
            tables["share"] = pd.DataFrame(
                [
                    {"method": name, "mean literal share of the top k": sum(literal[h] for h in top) / len(top)}
                    for name, scores in each.scores.items()
                    if name in (LEAD, *ATTENTION) and (top := scores.top(each.k))
                ]
            )
            for name, frame in {"read": "provenance", "read_beyond": "beyond_sink"}.items():
                figures[name] = plots.provenance_bars(frames[frame][frames[frame]["head"].isin(best)])
            figures["literal"] = plots.head_map(literal)
        texts = report.Texts.from_curve(
            each.texts[TASK], Condition.top(LEAD, each.k), metric="contains", questions=each.questions
        )
        return Shown(words, tables, figures, {"texts": texts})


def _sentence(finding: LocosFinding) -> str:
    """One model's answer: the first claim with its numbers, and how many decoded answers are right before and after."""
    first, texts = finding.claims.iloc[0], finding.texts[TASK]
    before, after = (texts.values(one, "contains") for one in (Condition.none(), Condition.top(LEAD, finding.k)))
    return (
        f"{finding.model}: {first['claim'].lower()}: {first['verdict']} ({first['found']}). Without LOCOS's top "
        f"{finding.k} heads, {after.sum():.0f} of {len(before)} answers are right instead of {before.sum():.0f}. "
        f"{meaning(finding.question, finding.able)}"
    )
