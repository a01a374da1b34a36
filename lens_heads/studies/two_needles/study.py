"""The study of choices: which heads pick, of two needles of one kind, the one that the question asks for?

`choosing` runs it. A model that does not do the task gets no verdict on its heads. Stages take trials, of which every passage is
asked both of its questions.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Unpack

from lens_heads import plots
from lens_heads.answering.ability import Ability, ability
from lens_heads.evidence.curve import ablation_curve
from lens_heads.evidence.curve_results import AblationCurve
from lens_heads.evidence.head_sets import capped
from lens_heads.evidence.verdicts import smallest_k
from lens_heads.heads.controls import Controls
from lens_heads.heads.geometry import HeadGeometry
from lens_heads.heads.head import Head
from lens_heads.heads.scores import HeadScores
from lens_heads.inspection import anatomy
from lens_heads.interventions.activations import MeanActivations, mean_activations
from lens_heads.interventions.row_activations import row_activations
from lens_heads.model.geometry import Model, head_geometry
from lens_heads.ranking.causal.patching import patch_heads
from lens_heads.ranking.rank import rank
from lens_heads.report import tables
from lens_heads.runs.typed import typed
from lens_heads.stats.intervals import FEWEST
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
    CARRYING,
    EVERYWHERE,
    KINDS,
    LEAD,
    METHODS,
    METRIC,
    PATCHED,
    PRESETS,
    TASK,
    ChoosingFinding,
    Preset,
    ability_table,
    by_kind,
    by_meaning,
    by_rank,
    by_seed,
    claims,
    kinds,
    looked_at,
)
from lens_heads.trials.checked_tokens import encode_all
from lens_heads.trials.exchanges import exchange_questions
from lens_heads.trials.trial import AnyTrial, Trial

LEADS = (LEAD, "attention_mass", PATCHED)
"""The rankings whose heads are looked at one by one, and found again on other selection questions."""
MORE_SEEDS = (21, 31)
"""Seeds of the further selections: other passages of the selection half."""
MORE_SETS = 199
"""Random sets for the rank of a claim's heads, since with 40 the least p is 0.024."""


@dataclass(frozen=True, eq=False)
class Passages:
    """The passages of a half, what the model can do of them, and those whose two questions it answers."""

    trials: Sequence[AnyTrial]
    able: Ability

    @property
    def passing(self) -> list[AnyTrial]:
        """The passages of which the right answer is the likelier one under both questions."""
        assert self.able.exchanged is not None
        margins = (part.metrics[METRIC].tolist() for part in (self.able.asked, self.able.exchanged))
        rows = zip(self.able.asked.trial_ids, *margins, strict=True)
        right = {id for id, asked, exchanged in rows if asked > 0 and exchanged > 0}
        return [trial for trial in self.trials if trial.id in right]


def asked_twice(passages: Sequence[AnyTrial], most: int | None = None) -> list[AnyTrial]:
    """Each passage with its own question and with its distractor's, one after the other; at most so many trials."""
    return [one for pair in zip(passages, exchange_questions(passages), strict=True) for one in pair][:most]


def comparable(model: Model, passages: Sequence[AnyTrial]) -> list[AnyTrial]:
    """Those whose two answers begin with different tokens, which scores of the choice compare. Some tokenizers begin all numbers
    alike."""
    if not passages:
        return []
    shape = head_geometry(model)
    encoded = encode_all(passages, model.tokenizer, shape.n_ctx, d_vocab=shape.d_vocab)
    return [trial for trial, one in zip(passages, encoded, strict=True) if one.wrong is not None]


def can(model: Model, trials: Sequence[AnyTrial], plan: Preset, out: Path) -> Passages:
    """Which of the passages the model can do."""
    return Passages(trials, ability(model, trials, batch_size=plan.batch_size, out=out))


@dataclass(frozen=True, eq=False)
class Setup:
    """What the stages after the gate share: the questions that rank, those that judge, and the model's folder.

    `more`: by seed, the passages of further selections. `sets`: random sets for the ranks of the claims' heads.
    """

    model: Model
    plan: Preset
    select: Sequence[AnyTrial]
    test: Sequence[AnyTrial]
    out: Path
    more: Mapping[int, Sequence[AnyTrial]] = field(default_factory=dict)
    sets: int = MORE_SETS

    @cached_property
    def means(self) -> MeanActivations:
        """The mean activations of the questions that rank; stored."""
        file = self.out / "means.safetensors"
        if not file.exists():
            mean_activations(self.model, self.select, n=None).save(file)
        return MeanActivations.load(file)

    def kind(self, name: str) -> dict[str, Any]:
        """The keywords of `ablation_curve` for a kind of this study, on the questions that judge."""
        if name == "mean":
            return {"kind": "mean", "reference": self.means, "span": "last"}
        if name == "zero":
            return {"kind": "zero", "span": "last"}
        donors = exchange_questions(self.test)
        if name == "resample":  # Those of another passage, half the list away.
            half = len(donors) // 2
            donors = [*donors[half:], *donors[:half]]
        return {"kind": "interchange", "reference": row_activations(self.model, donors)}

    def capped(self, ks: Sequence[int]) -> list[int]:
        """Those that the model has heads for."""
        shape = head_geometry(self.model)
        return capped(ks, shape.n_layers * shape.n_heads)

    def ablate(
        self, name: str, trials: Sequence[AnyTrial], rankings: Mapping[str, HeadScores], **options: Any
    ) -> AblationCurve:
        how: dict[str, Any] = {"batch_size": self.plan.batch_size, "generate": False, "out": self.out / name}
        return ablation_curve(self.model, {TASK: trials}, rankings, **{**how, **options})


def ranked(setup: Setup, methods: Sequence[str] = METHODS) -> dict[str, HeadScores]:
    """The methods' rankings and that of patching, from the questions that rank."""
    options: dict[str, Any] = {"out": setup.out / "scores", "batch_size": setup.plan.batch_size}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # Tables show a method that ranks nothing.
        scores = dict(rank(setup.model, setup.select, list(methods), **options))
    patched = patch_heads(
        setup.model,
        setup.select,
        metric="first_token_logit_diff",
        out=setup.out / "patching",
        corruption="counterfactual",
    )
    return {name: one for name, one in {**scores, PATCHED: patched}.items() if float(one.values.max()) > 0}


def chosen(setup: Setup, scores: Mapping[str, HeadScores]) -> dict[str, int]:
    """Each method's own k: the smallest of the preset's at which its heads take half of the choice, on questions that rank."""
    how = setup.kind("mean") | {"controls": (), "selecting": True}
    curve = setup.ablate("choice", setup.select, scores, ks=setup.capped(setup.plan.ks), **how)
    return {name: smallest_k(curve, name, metric=METRIC) for name in scores}


def judged(setup: Setup, scores: Mapping[str, HeadScores]) -> dict[str, AblationCurve]:
    """What every method's heads cost under every kind of ablation, beside random heads."""
    plan, found = setup.plan, {}
    for name in KINDS:
        alone = single(setup, scores) if name == "counterfactual" else {}
        controls = Controls(("random", "random_like"), plan.draws, trials=plan.few)
        how = setup.kind(name) | {"controls": controls, "sets": alone}
        found[name] = setup.ablate(name, setup.test, scores, ks=setup.capped(plan.ks), **how)
    if plan.whole:
        how = {"kind": "mean", "reference": setup.means, "controls": Controls("random", plan.whole_draws)}
        few = {name: scores[name] for name in dict.fromkeys((*LEADS, f"{LEAD}_exact")) if name in scores}
        found[EVERYWHERE] = setup.ablate(
            "everywhere", setup.test[: plan.whole], few, ks=setup.capped(plan.whole_ks), **how
        )
    return found


def single(setup: Setup, scores: Mapping[str, HeadScores]) -> dict[str, Head]:
    """The first heads of each leading ranking, by name, to be exchanged alone."""
    heads = [head for name in LEADS if name in scores for head in scores[name].ranking()[: setup.plan.alone]]
    return {str(head): head for head in dict.fromkeys(heads)}


def outranked(setup: Setup, scores: Mapping[str, HeadScores], k: Mapping[str, int]) -> AblationCurve:
    """The heads of every claim at their own k beside many random sets, under the first kind, on the first questions."""
    plan = setup.plan
    names = [name for name in CARRYING if name in scores]
    how = setup.kind(KINDS[0]) | {"controls": Controls("random", setup.sets), "ks": sorted({k[name] for name in names})}
    return setup.ablate("sets", setup.test[: plan.few], {name: scores[name] for name in names}, **how)


def reselected(setup: Setup) -> dict[str, HeadScores]:
    """The leading rankings again, from the passages of other seeds, by method and seed. Seeds of which the model answers too few
    passages are left out."""
    found: dict[str, HeadScores] = {}
    methods = [name for name in LEADS if name != PATCHED]
    for seed, trials in setup.more.items():
        folder = setup.out / f"seed-{seed}"
        drawn = can(setup.model, trials, setup.plan, folder / "ability")
        passages = comparable(setup.model, drawn.passing)[: setup.plan.choose]
        if len(passages) >= FEWEST:
            again = replace(setup, select=asked_twice(passages), out=folder)
            found |= {f"{name}, seed {seed}": one for name, one in ranked(again, methods).items()}
    return found


def rejudged(setup: Setup, scores: Mapping[str, HeadScores]) -> AblationCurve:
    """What the heads of every seed cost under the first kind, each method's own and those found again."""
    how = setup.kind(KINDS[0]) | {"controls": ()}
    return setup.ablate("seeds", setup.test, scores, ks=setup.capped(setup.plan.ks), **how)


def literal(setup: Setup) -> HeadScores:
    """The share of what each head writes that is a copy of the token it reads."""
    return anatomy.literalness(setup.model, setup.select, teacher_forced=True, out=setup.out / "literal")


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
            trials={"ability_trials": ability_table(judging.able)},
            able=judging.able,
            question=question,
            passages={"all": len(test), "both right": len(passing)},
        )
        if not isinstance(question, str):
            found.frames["question"] = question.frame
        if first.able.does and judging.able.does and min(len(ranking), len(passing)) >= FEWEST:
            rank, judge = asked_twice(ranking[: plan.choose]), asked_twice(passing, plan.max_trials)
            task, arguments = plan.select
            more = {seed: trials_of((task, {**arguments, "seed": seed})) for seed in MORE_SEEDS}
            found = measured(found, Setup(model, plan, rank, judge, folder, more), run)
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
        heads, (select, test) = shape.n_layers * shape.n_heads, (call[1]["n"] for call in (plan.select, plan.test))
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
    copied = run.stage("reading", literal, setup)
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
        seeds=by_seed(again, every, k),
    )
    found.trials["set_trials"] = beside.per_trial
    found.trials["seed_trials"] = again.per_trial
    found.trials["judged_trials"] = together({kind: curve.per_trial for kind, curve in curves.items()}, "kind")
    return found
