"""The stages of the LOCOS study: what is measured, and in which order."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from lens_heads import compare
from lens_heads.evidence.curve import ablation_curve
from lens_heads.evidence.curve_results import AblationCurve
from lens_heads.evidence.recovery import RECOVERY_CONTROLS as RESTORED
from lens_heads.evidence.recovery import recovery
from lens_heads.evidence.recovery_results import NothingFlipped, Recovery
from lens_heads.heads.conditions import NO_NEEDLE, TOP_NO_NEEDLE, Condition
from lens_heads.heads.controls import Controls
from lens_heads.heads.head import Head
from lens_heads.heads.scores import HeadScores
from lens_heads.heads.styles import add_style
from lens_heads.inspection import anatomy
from lens_heads.interventions.activations import MeanActivations, mean_activations
from lens_heads.interventions.row_activations import row_activations
from lens_heads.model.geometry import Model, head_geometry
from lens_heads.ranking.causal.patching import patch_heads
from lens_heads.ranking.one_pass.score_heads import score_heads
from lens_heads.stats import Precision
from lens_heads.studies.locos_paper.claims import (
    ATTENTION,
    HEADLINE_METHODS,
    LEAD,
    OTHER_QUESTION,
    RIVALS,
    TASK,
    Preset,
)
from lens_heads.studies.presets import trials_of
from lens_heads.trials.exchanges import permuted_questions
from lens_heads.trials.trial import Trial

TUNED = "locos (tuned lens)"
add_style("cri", "CRI")


def detect(
    model: Model, select: Sequence[Trial], plan: Preset, out: Path, tuned_lens: str | None
) -> dict[str, HeadScores]:
    """Score every head by every method, raw and exact in one pass, and by LOCOS with the tuned lens where one is given."""
    options: dict[str, Any] = {"teacher_forced": plan.teacher_forced, "max_new_tokens": plan.detect_new_tokens}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # The tables show a method without any trial.
        scores = score_heads(model, select, plan.methods, out=out / "scores", **options)
        if tuned_lens:
            found = score_heads(model, select, [LEAD], direction=tuned_lens, out=out / "scores-tuned", **options)
            scores[TUNED] = found[LEAD]
    return scores


@dataclass(frozen=True, eq=False)
class LocosSetup:
    """What the stages share: the model, the preset, the selection and test trials, and the model's folder."""

    model: Model
    plan: Preset
    select: Sequence[Trial]
    test: Sequence[Trial]
    out: Path

    @cached_property
    def others(self) -> dict[str, list[Trial]]:
        """The trials of the tasks to be spared and of those downstream."""
        return {task: trials_of(call) for task, call in {**self.plan.spared, **self.plan.downstream}.items()}

    def reference(self, task: str) -> MeanActivations | None:
        """The mean activations that ablation substitutes on a task, of that task's own kind of prompt; stored."""
        plan, file = self.plan, self.out / f"means-{task}.safetensors"
        if plan.kind not in ("mean", "query_mean"):
            return None
        if not file.exists():
            tested = {trial.id for trial in self.others.get(task, ())}
            call = plan.calibration.get(task)
            trials = self.select if call is None else [one for one in trials_of(call) if one.id not in tested]
            mean_activations(self.model, trials, n=plan.calibrate).save(file)
        return MeanActivations.load(file)

    def ablate(
        self, task: str, trials: Sequence[Trial], rankings: dict[str, HeadScores], **options: Any
    ) -> AblationCurve:
        """An ablation curve of one task."""
        plan = self.plan
        how: dict[str, Any] = {"max_new_tokens": plan.max_new_tokens, "batch_size": plan.batch_size}
        how |= {"kind": plan.kind, "reference": self.reference(task), "generate": False}
        return ablation_curve(self.model, {task: trials}, rankings, **{**how, **options})


def chosen(setup: LocosSetup, scores: Mapping[str, HeadScores]) -> AblationCurve:
    """What LOCOS's and the baselines' heads cost on selection trials: chooses k and the best baseline, and proves nothing."""
    rankings = {name: scores[name] for name in (LEAD, *ATTENTION) if name in scores}
    trials, controls = setup.select[: setup.plan.choose], Controls((NO_NEEDLE, TOP_NO_NEEDLE), trials=20)
    out = setup.out / "choice"
    return setup.ablate(TASK, trials, rankings, ks=setup.plan.ks, controls=controls, selecting=True, out=out)


def rivals(setup: LocosSetup, scores: Mapping[str, HeadScores]) -> dict[str, HeadScores]:
    """What hundreds of runs find on selection trials: what each head costs when it is ablated alone, and its patching effect."""
    lead, trials, heads = scores[LEAD], setup.select[: setup.plan.rivals], scores[LEAD].ranking()
    how: dict[str, Any] = {"ks": [1], "controls": (), "selecting": True, "out": setup.out / "alone"}
    found = setup.ablate(TASK, trials, {LEAD: lead}, sets={str(head): head for head in heads}, **how)
    none = found.values(Condition.none(), "logprob")
    costs = torch.zeros(len(none), lead.n_layers, lead.n_heads).masked_fill(~lead.there, torch.nan)
    for head in heads:
        cost = none - found.values(Condition.given(str(head), 1), "logprob")[none.index]
        costs[:, head.layer, head.head] = torch.tensor(cost.to_numpy())
    about: dict[str, Any] = {"model": lead.model, "made_on": lead.made_on, "score_unit": "nats"}
    alone = HeadScores.from_trials("one_shot", costs, list(none.index), **about)
    return {"one_shot": alone, "patching": patch_heads(setup.model, trials, out=setup.out / "patching")}


def headline(setup: LocosSetup, scores: Mapping[str, HeadScores], k: int, baseline: str) -> dict[str, AblationCurve]:
    """The headline at one k, by task: the test trials with every control, other tasks with LOCOS and random heads alone."""
    plan, found = setup.plan, {}
    names = [name for name in dict.fromkeys((*HEADLINE_METHODS, baseline, TUNED, *RIVALS)) if name in scores]
    controls = Controls(("random", "random_like", NO_NEEDLE, TOP_NO_NEEDLE), plan.draws, trials=plan.few)
    precision, rankings = Precision(plan.precision, plan.max_trials), {name: scores[name] for name in names}
    out = setup.out / "headline"
    found[TASK] = setup.ablate(TASK, setup.test, rankings, ks=[k], controls=controls, precision=precision, out=out)
    for task, trials in setup.others.items():
        few = Controls("random", plan.draws, trials=plan.few_others)
        out = setup.out / f"headline-{task}"
        found[task] = setup.ablate(task, trials, {LEAD: scores[LEAD]}, ks=[k], controls=few, out=out)
    return found


def outranked(setup: LocosSetup, scores: Mapping[str, HeadScores], k: int) -> AblationCurve:
    """LOCOS's heads beside many random sets, on the first test trials: with 40 sets the least p is 0.024."""
    plan = setup.plan
    controls, out = Controls("random", plan.sets), setup.out / "sets"
    return setup.ablate(TASK, setup.test[: plan.few], {LEAD: scores[LEAD]}, ks=[k], controls=controls, out=out)


def other_kinds(setup: LocosSetup, scores: Mapping[str, HeadScores], k: int, baseline: str) -> dict[str, AblationCurve]:
    """The same heads where the answer begins: ablated to zero; with what they write in another passage; and with what they write
    in this one if another trial's question is asked, which only matters to heads that read the question."""
    plan, trials = setup.plan, setup.test[: setup.plan.text_trials]
    half, asked = len(trials) // 2, permuted_questions(trials)
    donors = {"resample": [*trials[half:], *trials[:half]], OTHER_QUESTION: asked}
    found = {name: scores[name] for name in dict.fromkeys((LEAD, "locos_exact", baseline)) if name in scores}
    ways: dict[str, dict[str, Any]] = {"zero": {"kind": "zero", "reference": None, "span": "last"}}
    ways |= {
        name: {
            "kind": "interchange",
            "reference": row_activations(setup.model, those, out=setup.out / f"donors-{name}"),
        }
        for name, those in donors.items()
    }
    controls = Controls("random", plan.draws, trials=plan.few)
    return {
        name: setup.ablate(TASK, trials, found, ks=[k], controls=controls, out=setup.out / f"kind-{name}", **how)
        for name, how in ways.items()
    }


MORE_SEEDS = (10, 20)
"""What is added to the seed of the selection trials."""


def reselected(setup: LocosSetup, scores: Mapping[str, HeadScores], k: int) -> AblationCurve | None:
    """LOCOS's heads again, from selection trials of other seeds, on the test trials; None for a task without seeds."""
    task, arguments = setup.plan.select
    if "seed" not in arguments:
        return None
    found = {f"{LEAD}, seed {arguments['seed']}": scores[LEAD]}
    for more in MORE_SEEDS:
        trials = trials_of((task, {**arguments, "seed": arguments["seed"] + more}))
        name, out = f"{LEAD}, seed {arguments['seed'] + more}", setup.out / f"seed-{more}"
        found[name] = detect(setup.model, trials, replace(setup.plan, methods=(LEAD,)), out, None)[LEAD]
    test = setup.test[: setup.plan.text_trials]
    return setup.ablate(TASK, test, found, ks=[k], controls=(), out=setup.out / "seeds")


def curve(setup: LocosSetup, scores: Mapping[str, HeadScores], k: int) -> AblationCurve:
    """RQ1 to RQ3: more and more of every ranking's heads on fewer test trials, with controls."""
    plan = setup.plan
    rankings = {
        name: scores[name] for name in dict.fromkeys((*plan.ablated, "locos_exact", TUNED, *RIVALS)) if name in scores
    }
    return setup.ablate(
        TASK,
        setup.test[: plan.curve_trials],
        rankings,
        ks=sorted({*plan.ks, k}),
        controls=Controls(plan.controls, plan.seeds, trials=20),
        sets=exclusive_sets(rankings, k) if plan.exclusive else None,
        generate=plan.judge_text_everywhere,
        out=setup.out / "ablation",
    )


def exclusive_sets(scores: Mapping[str, HeadScores], k: int) -> dict[str, list[Head]]:
    """For LOCOS and each of two baselines: the top k heads they share, and those only one of them has."""
    sets: dict[str, list[Head]] = {}
    for name in ("copy", "attention_spatial"):
        if name in scores:
            found = compare.overlap(scores[LEAD], scores[name], k=k)
            sets[f"{LEAD} and {name}"] = found.both
            sets[f"{LEAD} only, not {name}"] = found.only_a
            sets[f"{name} only, not {LEAD}"] = found.only_b
    return {name: heads for name, heads in sets.items() if heads}


def judged_texts(setup: LocosSetup, scores: Mapping[str, HeadScores], k: int) -> dict[str, AblationCurve]:
    """RQ1 and RQ5: the answers with no heads and with LOCOS's k heads ablated, decoded and judged, by task."""
    plan, found = setup.plan, {}
    for task, trials in {TASK: setup.test, **setup.others}.items():
        few, out = trials[: plan.text_trials], setup.out / f"texts-{task}"
        found[task] = setup.ablate(task, few, {LEAD: scores[LEAD]}, ks=[k], controls=(), generate=True, out=out)
    return found


def patched(setup: LocosSetup, texts: AblationCurve) -> HeadScores | str:
    """CRI of every head, on test trials that the unablated model answers, or the reason why there is none."""
    plan, right = setup.plan, texts.values(Condition.none(), "correct")
    answered = [trial for trial in setup.test if plan.teacher_forced or right.get(trial.id, 0) > 0.5]
    if not answered:
        return f"the model answers none of {len(right)} test trials"
    found = patch_heads(setup.model, answered[: plan.cri_trials], out=setup.out / "cri")
    return replace(found, method="cri")  # The paper's name for it.


def mended(setup: LocosSetup, scores: HeadScores, k: int) -> Recovery | str:
    """Recovery of LOCOS's top heads, or the reason why it cannot be measured."""
    plan, heads = setup.plan, scores.top(k)
    try:
        return recovery(
            setup.model,
            setup.test[: plan.recovery_trials],
            heads,
            heads,
            ranking=scores,
            controls=Controls(RESTORED, plan.recovery_draws),
            flipped=plan.only_flipped,
            max_new_tokens=plan.max_new_tokens,
            out=setup.out / "recovery",
            kind="zero",
        )
    except NothingFlipped as error:
        return str(error)


def read(setup: LocosSetup, scores: Mapping[str, HeadScores]) -> tuple[dict[str, pd.DataFrame], HeadScores]:
    """Provenance of the top heads of three methods, with and without the sink, and the literal share of every head."""
    model, out = setup.model, setup.out
    options: dict[str, Any] = {"teacher_forced": True, "batch_size": 1}
    answered = [trial for trial in setup.select if trial.id in scores[LEAD].trial_ids]
    methods = [name for name in (LEAD, "copy", "attention_spatial") if name in scores]
    heads = list(dict.fromkeys(head for name in methods for head in scores[name].ranking()[: setup.plan.read_heads]))
    frames = {
        "provenance": anatomy.provenance(model, answered, heads, out=out / "provenance", **options),
        "beyond_sink": anatomy.provenance(
            model, answered, heads, sink=False, out=out / "provenance-beyond-sink", **options
        ),
    }
    return frames, anatomy.literalness(model, answered, out=out / "literal", **options)


def agreement(
    model: Model, scores: Mapping[str, HeadScores], cri: HeadScores | None, k: int
) -> dict[str, pd.DataFrame]:
    """Tables from scores alone: overlaps with LOCOS, Jaccard curves, agreement with CRI, thirds, concentration, stability."""
    lead, group = scores[LEAD], head_geometry(model).group
    others = {name: found for name, found in scores.items() if name != LEAD}
    others |= {"cri": cri} if cri is not None else {}
    jaccard = [compare.jaccard_curve(lead, found).assign(method=name) for name, found in others.items()]
    thirds = [
        compare.by_layer_third(lead, found).assign(method=name) for name, found in others.items() if lead.n_layers > 2
    ]
    overlaps, spread, stability, against_cri = [], [], [], []
    for found in others.values():
        shared = compare.overlap(lead, found, k=k)
        named = {key: ", ".join(map(str, getattr(shared, key))) for key in ("both", "only_a", "only_b")}
        ranks = {"rank_biased_overlap": compare.rank_biased_overlap(lead, found)}
        overlaps.append({**asdict(shared), **named, **ranks, "spearman": compare.rank_correlation(lead, found)})
    for name, found in {LEAD: lead, **others}.items():
        if found.values.max() > 0:
            groups, where = anatomy.kv_groups(found, k=k, group=group), anatomy.concentration(found)
            spread.append({"method": name, **asdict(groups), **asdict(where)})
        stable = found.stability(k)
        row = {each: getattr(stable, each) for each in ("k", "trials", "jaccard", "expected", "needed")}
        low, high = stable.chance
        stability.append({"method": name, **row, "chance_low": low, "chance_high": high})
    if cri is not None:
        for name, found in scores.items():
            shared = compare.overlap(found, cri, k=k)
            row = {"method": name, "k": k, "jaccard": shared.jaccard}
            row |= {"chance": shared.expected_jaccard, "p": shared.p_value}
            row |= dict(zip(("spearman", "low", "high"), compare.rank_correlation_interval(found, cri), strict=True))
            against_cri.append(row | {"both": ", ".join(map(str, shared.both))})
    return {
        "overlaps": pd.DataFrame(overlaps),
        "jaccard": pd.concat(jaccard, ignore_index=True),
        "against_cri": pd.DataFrame(against_cri or {"method": []}),
        "thirds": pd.concat(thirds, ignore_index=True) if thirds else pd.DataFrame({"method": []}),
        "spread": pd.DataFrame(spread),
        "stability": pd.DataFrame(stability),
    }
