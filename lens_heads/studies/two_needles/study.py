"""The study of choices: which heads pick, of two needles of one kind, the one that the question asks for?

`choosing` runs it. A model that does not do the task gets no verdict on its heads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Unpack

from lens_heads import plots
from lens_heads.heads.geometry import HeadGeometry
from lens_heads.model.geometry import Model, head_geometry
from lens_heads.report import tables
from lens_heads.runs.typed import typed
from lens_heads.stats.intervals import FEWEST
from lens_heads.studies.claims import beyond_random, by_seed
from lens_heads.studies.finding import ASKED, asked, together
from lens_heads.studies.pages import Shown, claims_table
from lens_heads.studies.presets import sized, trials_of
from lens_heads.studies.runner import (
    MODELS,
    Models,
    PresetOf,
    StageRun,
    Study,
    StudyRunOptions,
    conduct,
)
from lens_heads.studies.seen import Seen
from lens_heads.studies.two_needles.claims import (
    EVERYWHERE,
    KINDS,
    LEAD,
    METRIC,
    PATCHED,
    PRESETS,
    ChoosingFinding,
    Preset,
    ability_table,
    by_kind,
    by_meaning,
    by_rank,
    by_style,
    claims,
    kinds,
    looked_at,
)
from lens_heads.studies.two_needles.roles import SENDERS, parts, roles
from lens_heads.studies.two_needles.stages import (
    LEADS,
    MORE_SEEDS,
    UNGATED,
    Setup,
    asked_twice,
    can,
    chosen,
    comparable,
    judged,
    literal,
    outranked,
    ranked,
    rejudged,
    reselected,
    ungated,
)
from lens_heads.trials.trial import Trial


@typed
def choosing(
    models: Models = MODELS,
    preset: PresetOf[Preset] = "direct",
    out: str | Path = "runs/choosing",
    *,
    max_trials: int | None = None,
    **options: Unpack[StudyRunOptions],
) -> list[ChoosingFinding]:
    """Which heads choose what the question asks for? Passages hold two needles of one kind, and each is asked for in turn.

    First comes what the model can do: only passages of which it answers both questions are used, and of a model that is not
    better than chance nothing more is said. Heads are ranked by every one-pass method, by scores that use the second needle, and
    by patching with exchanged questions; their top heads are ablated where the answer begins, under four kinds of ablation. The
    measure is the choice, log p(right) - log p(other), beside the right answer's log-probability.

    Args:
        models: names as `load_model` takes them, or loaded models.
        preset: "direct", "onehop", "twohop" (kinds of question), each also with "-chat" for models that answer in a chat,
            "quick", "negative-model", or your own `Preset`.
        out: the run folder, as in `locos`. The same call continues it; other settings are refused.
        max_trials: in place of the preset's: the most test questions.
        **options: those of `load_model` (device, dtype, ...) for models given by name; `workers` and `num_gpus` as in
            `lh.worker_pool`; `command`, shown on the page, by default the running command; `plan`: only print what it would
            cost, from the preset and one measured block, and return nothing.

    Returns one finding per model, and prints the claims of each.

    Raises ValueError for an unknown preset, no models, or a folder with other settings.

    Example:
        >>> lh.studies.choosing(model, preset="quick", plan=True)
        choosing: what it would cost ...
        []
    """
    size, name = sized(preset, PRESETS, {"max_trials": max_trials})  # It has no precision: an own one is refused.
    return conduct(ChoosingStudy(size, name), models, out, options)[0]


class ChoosingStudy(Study[Preset, ChoosingFinding]):
    """The study of choices for the runner."""

    name = "choosing"

    def check(self, model: Model) -> None:
        framed = any(call[1].get("chat") for call in (self.plan.select, self.plan.test))
        if framed and not model.tokenizer.chat_template:
            raise ValueError(
                f"preset={self.preset!r} frames prompts by a chat template, and {head_geometry(model).name} has none: use "
                f"{self.preset.removesuffix('-chat')!r}"
            )

    def one(self, model: Model, run: StageRun) -> ChoosingFinding:
        plan, folder = self.plan, run.folder
        select, test = trials_of(plan.select), trials_of(plan.test)
        first = run.stage("ability", can, model, select, plan, folder / "ability")
        tables.show(tables.plain(f"{head_geometry(model).name}, selection passages: {first.able}"))
        question = run.stage("question", asked, model, select, folder / "question")
        judging = run.stage("test ability", can, model, test, plan, folder / "ability-test")
        ranking, passing = (comparable(model, one.passing) for one in (first, judging))
        found = ChoosingFinding(
            model=head_geometry(model).name,
            frames={"ability": judging.able.frame},
            trials={"ability_trials": ability_table(judging.able, test)},
            able=judging.able,
            question=question,
            passages={"all": len(test), "both right": len(judging.passing), "told apart": len(passing)},
        )
        if not isinstance(question, str):
            found.frames["question"] = question.frame
        if first.able.does and judging.able.does and min(len(ranking), len(passing)) >= FEWEST:
            rank, judge = asked_twice(ranking[: plan.choose]), asked_twice(passing, plan.max_trials)
            task, arguments = plan.select
            more = {seed: trials_of((task, {**arguments, "seed": seed})) for seed in MORE_SEEDS}
            found = measured(found, Setup(model, plan, rank, judge, folder, more, every=test), run)
        tables.show(tables.plain(found.sentence))
        found.frames["claims"] = claims(found)
        return found

    def seen(self, found: ChoosingFinding) -> Seen | None:
        if not found.curves:
            return None
        names = [name for name in LEADS if name in found.scores]
        return Seen(trials_of(self.plan.test), {name: found.scores[name] for name in names}, found.curves[KINDS[0]])

    def costs(self, shape: HeadGeometry) -> dict[str, int]:
        plan = self.plan
        heads, (select, test) = shape.size, (call[1]["n"] for call in (plan.select, plan.test))
        judged = min(plan.max_trials, 2 * test)
        whole = min(plan.whole, judged)
        return {
            "ability": 2 * (select + test),
            "question": 3 * min(ASKED, select),
            "ranking": 2 * min(plan.choose, select) * 4,
            "other seeds": len(MORE_SEEDS) * (2 * select + 2 * min(plan.choose, select) * (4 + heads // 20))
            + judged * 2,
            # Where only the last row is ablated, one prefill serves all sets of heads: about so many more in all.
            "judging": len(KINDS) * judged * 3 + 2 * min(plan.few, judged),
            "everywhere": whole * (1 + len(plan.whole_ks) * (len(LEADS) + 1 + plan.whole_draws)),
            "patching": 2 * min(plan.choose, select) * (2 + heads // 20),
            "before the gate": 2 * (min(2 * UNGATED, judged) * 3 + min(plan.few, judged)),
            "roles": 2 * min(plan.few, judged) * (2 + heads // 20 + min(SENDERS, heads)),
        }

    def probe(self) -> list[Trial]:
        return trials_of(self.plan.test)[:4]

    def shown(self, findings: Sequence[ChoosingFinding], pairs: Sequence[Any]) -> Shown:
        passed = [f"{each.model}: {each.passages['both right']} of {each.passages['all']}" for each in findings]
        words = {**self.plan.described(), "passages": "; ".join(passed)}
        shown = [each for each in findings if each.curves]
        return Shown(
            words,
            {"claims": [claims_table(each.claims, each.model, ("p", "k", "trials")) for each in findings]},
            heads=[f"{each.model} {head}" for each in shown for head in each.scores[LEAD].ranking()[:3]],
            verdict=" ".join(each.sentence for each in findings),
            first=[
                plots.ablation_curves(each.curves[KINDS[0]], METRIC, title=f"{each.model}: the choice without heads")
                for each in shown
            ],
        )

    def shown_model(self, each: ChoosingFinding) -> Shown:
        words: dict[str, Any] = {"question": str(each.question)}
        tables: dict[str, Any] = {}
        figures: dict[str, Any] = {}
        if each.curves:
            heads = each.frames["heads"]
            words |= {"meaning": by_meaning(heads), "looked": len(heads)}
            figures["kinds"] = [plots.ablation_curves(one, METRIC, title=kind) for kind, one in kinds(each).items()]
            figures["answer"] = plots.ablation_curves(each.curves[KINDS[0]], "logprob", title="The right answer")
            if EVERYWHERE in each.curves:
                tables["everywhere"] = each.curves[EVERYWHERE].frame
        return Shown(words, tables, figures)


def measured(found: ChoosingFinding, setup: Setup, run: StageRun) -> ChoosingFinding:
    """The finding with all that follows the gate."""
    scores = run.stage("ranking", ranked, setup)
    k = run.stage("choice", chosen, setup, scores)
    curves = run.stage("judging", judged, setup, scores)
    beside = run.stage("random sets", outranked, setup, scores, k)
    freely = run.stage("before the gate", ungated, setup, scores, k) if setup.every else {}
    copied = run.stage("reading", literal, setup)
    have = run.stage("roles", roles, setup, scores[PATCHED]) if PATCHED in scores else {}
    first = {f"{name}, seed {setup.plan.select[1]['seed']}": scores[name] for name in LEADS if name in scores}
    every = first | run.stage("other seeds", reselected, setup)
    again = run.stage("judging of seeds", rejudged, setup, every)
    tables.show(tables.curve(curves[KINDS[0]], METRIC))
    found = replace(found, k=k, scores=scores, curves=curves, literal=copied)
    found.frames.update(
        areas=by_kind(curves, METRIC, LEAD),
        answer_areas=by_kind(curves, "logprob", LEAD),
        judged=together({kind: curve.frame for kind, curve in curves.items()}, "kind"),
        heads=looked_at(found),
        ranks=by_rank(beside, k),
        styles=by_style(found.trials["ability_trials"], curves[KINDS[0]], k[LEAD]),
        seeds=by_seed(again, k, METRIC),
    )
    if freely:
        found.frames["ungated"] = beyond_random(freely, k, METRIC)
        found.trials["ungated_trials"] = together({kind: curve.per_trial for kind, curve in freely.items()}, "kind")
    if have:
        found.frames["roles"] = parts(have)
    found.trials["set_trials"] = beside.per_trial
    found.trials["seed_trials"] = again.per_trial
    found.trials["judged_trials"] = together({kind: curve.per_trial for kind, curve in curves.items()}, "kind")
    return found
