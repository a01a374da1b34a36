"""The stages of the study, each a function from what came before to a value of this package, stored and resumable."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from lens_heads import compare
from lens_heads.ablation.conditions import Condition, Controls
from lens_heads.ablation.curve import ablation_curve
from lens_heads.ablation.curves import AblationCurve
from lens_heads.causal import NothingFlipped, Recovery, patch_heads, recovery
from lens_heads.heads.head import Head
from lens_heads.heads.scores import HeadScores
from lens_heads.interventions.activations import MeanActivations, mean_activations
from lens_heads.model.geometry import Model, geometry
from lens_heads.scoring import anatomy
from lens_heads.scoring.score import score_heads
from lens_heads.studies.calls import TaskCall
from lens_heads.studies.locos_paper.claims import LEAD
from lens_heads.studies.locos_paper.presets import ATTENTION, TASK, Preset
from lens_heads.trials.trial import Trial

EXACT, TUNED = "locos (exact)", "locos (tuned lens)"


def detect(
    model: Model, select: Sequence[Trial], plan: Preset, out: Path, tuned_lens: str | None
) -> dict[str, HeadScores]:
    """Every method on the selection trials, and LOCOS again with the exact read-out and with a tuned lens if there is one."""
    options: dict[str, Any] = {"teacher_forced": plan.teacher_forced, "max_new_tokens": plan.detect_new_tokens}
    directions: dict[str, str | Path] = {EXACT: "exact"} if plan.exact else {}
    directions |= {TUNED: tuned_lens} if tuned_lens else {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # A method without any trial is visible in the tables.
        scores = score_heads(model, select, plan.methods, out=out / "scores", **options)
        for name, direction in directions.items():
            folder = out / ("scores-exact" if name == EXACT else "scores-tuned")
            scores[name] = score_heads(model, select, [LEAD], direction=direction, out=folder, **options)[LEAD]
    return scores


def means(model: Model, select: Sequence[Trial], plan: Preset, out: Path) -> MeanActivations:
    """The ablation reference, from selection trials; read from the folder when it is there."""
    file = out / "means.safetensors"
    if not file.exists():
        partial = file.with_suffix(".partial")
        mean_activations(model, select, n=plan.calibrate).save(partial)
        partial.replace(file)
    return MeanActivations.load(file)


@dataclass(frozen=True, eq=False)
class Bench:
    """What every stage on test trials works with; `k` is the headline's number of heads."""

    model: Model
    plan: Preset
    k: int
    reference: MeanActivations
    out: Path

    def ablate(
        self, test: Sequence[Trial], rankings: dict[str, HeadScores], calls: Mapping[str, TaskCall], **options: Any
    ) -> AblationCurve:
        """An ablation curve on the test trials (task "retrieval") and on these tasks."""
        plan = self.plan
        options |= {"max_new_tokens": plan.max_new_tokens, "batch_size": plan.batch_size}
        options["controls"] = Controls(options["controls"], plan.seeds)
        options["reference"] = self.reference if plan.kind in ("mean", "query_mean") else None
        others = {name: plan.trials(call) for name, call in calls.items()}
        return ablation_curve(self.model, {TASK: test}, rankings, kind=plan.kind, specificity=others, **options)


def curve(bench: Bench, test: Sequence[Trial], scores: Mapping[str, HeadScores]) -> AblationCurve:
    """RQ1 to RQ4: every ranking with its controls; the lead's ablations also on what should be spared.

    Beside the rankings the heads that only one of LOCOS and a baseline finds are ablated as sets of their own.
    """
    plan, out = bench.plan, bench.out / "ablation"
    rankings = {name: scores[name] for name in (*plan.ablated, EXACT, TUNED) if name in scores}
    return bench.ablate(
        test,
        rankings,
        plan.spared,
        ks=sorted({*plan.ks, bench.k}),
        controls=plan.controls,
        specificity_for=LEAD,
        sets=exclusive_sets({name: scores[name] for name in rankings}, bench.k) if plan.exclusive else None,
        generate=plan.judge_text_everywhere,
        out=out,
    )


def exclusive_sets(scores: Mapping[str, HeadScores], k: int) -> dict[str, list[Head]]:
    """For LOCOS and each baseline: heads both find in their top k, and heads only one of them finds."""
    sets: dict[str, list[Head]] = {}
    for name in ("copy", "attention_spatial"):
        if name in scores:
            found = compare.overlap(scores[LEAD], scores[name], k)
            sets |= {
                f"{LEAD} and {name}": found.both,
                f"{LEAD} only, not {name}": found.only_a,
                f"{name} only, not {LEAD}": found.only_b,
            }
    return {name: heads for name, heads in sets.items() if heads}


def best_baseline(found: AblationCurve, k: int) -> str:
    """The attention method whose k best heads cost most on the test trials: ROUGE-L where texts were judged under every
    ablation, else the answer's log-probability.

    Chosen on the trials that the claim is judged on, which favours the baseline, not LOCOS.
    """
    known = [name for name in ATTENTION if name in found.rankings]
    if not known:
        raise ValueError(f"no attention method was ablated: add one of {', '.join(ATTENTION)} to the preset's ablated")
    metric = "rougeL" if "rougeL" in found.metrics else "logprob"
    return min(known, key=lambda name: found.values(Condition.top(name, k), metric).mean())


def judged_texts(bench: Bench, test: Sequence[Trial], scores: Mapping[str, HeadScores], baseline: str) -> AblationCurve:
    """RQ1 and RQ5 in generated text at the headline k: LOCOS, the best baseline and random heads on every task."""
    plan, chosen = bench.plan, {LEAD: scores[LEAD], baseline: scores[baseline]}
    calls = {**plan.spared, **plan.downstream} if plan.downstream else {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # Ties were warned about with the curve.
        return bench.ablate(test, chosen, calls, ks=[bench.k], controls=("random",), out=bench.out / "texts")


def patched(bench: Bench, test: Sequence[Trial], texts: AblationCurve) -> HeadScores:
    """CRI of every head on test trials that the unablated model answers: other trials than the rankings were made on."""
    plan, right = bench.plan, texts.values(Condition.none(), "correct")
    answered = [trial for trial in test if plan.teacher_forced or right.get(trial.id, 0) > 0.5]
    if not answered:
        raise ValueError("the model answers none of the test trials, so there is nothing to patch: use easier trials")
    return patch_heads(bench.model, answered[: plan.cri_trials], out=bench.out / "cri")


def mended(bench: Bench, test: Sequence[Trial], scores: HeadScores) -> Recovery | str:
    """Recovery of LOCOS's heads; a sentence where no example flips."""
    plan, heads = bench.plan, scores.top(bench.k)
    try:
        return recovery(
            bench.model,
            heads,
            heads,
            test[: plan.recovery_trials],
            scores=scores,
            draws=plan.recovery_draws,
            flipped=plan.only_flipped,
            max_new_tokens=plan.max_new_tokens,
            out=bench.out / "recovery",
        )
    except NothingFlipped as error:
        return str(error)


@dataclass(frozen=True)
class Reading:
    """What the heads look at, with and without the attention sink, and how literally they copy."""

    provenance: pd.DataFrame
    beyond_sink: pd.DataFrame
    literal: HeadScores


def read(bench: Bench, select: Sequence[Trial], scores: Mapping[str, HeadScores]) -> Reading:
    """Provenance of the best heads of LOCOS and copy, and the literal share of every head."""
    model, plan, out = bench.model, bench.plan, bench.out
    options: dict[str, Any] = {"teacher_forced": True, "batch_size": 1}
    answered = [trial for trial in select if trial.id in scores[LEAD].trial_ids]
    heads = list(
        dict.fromkeys(
            head
            for name in (LEAD, "copy", "attention_spatial")
            if name in scores
            for head in scores[name].top(min(plan.read_heads, scores[name].values.numel()))
        )
    )
    return Reading(
        anatomy.provenance(model, answered, heads, out=out / "provenance", **options),
        anatomy.provenance(model, answered, heads, sink=False, out=out / "provenance-beyond-sink", **options),
        anatomy.literalness(model, answered, out=out / "literal", **options),
    )


def agreement(
    model: Model, scores: Mapping[str, HeadScores], cri: HeadScores | None, k: int
) -> dict[str, pd.DataFrame]:
    """Tables on scores alone: overlaps, Jaccard curves, every method against CRI, layer thirds, kv groups, concentration."""
    lead, group = scores[LEAD], geometry(model).group
    ranked = {**scores, "cri": cri} if cri is not None else scores
    others = {name: found for name, found in ranked.items() if name != LEAD}
    overlaps, curves, thirds, causal = [], [], [], []
    for name, found in scores.items():
        if cri is None:
            break
        shared = compare.overlap(found, cri, k)
        causal.append(
            {"method": name, "k": k, "jaccard": shared.jaccard, "chance": shared.expected_jaccard, "p": shared.p_value}
            | dict(zip(("spearman", "low", "high"), compare.rank_correlation_interval(found, cri), strict=True))
            | {"both": ", ".join(map(str, shared.both))}
        )
    for name, found in others.items():
        shared = compare.overlap(lead, found, k)
        row = {key: value for key, value in asdict(shared).items() if key not in ("both", "only_a", "only_b")}
        row |= {key: ", ".join(map(str, getattr(shared, key))) for key in ("both", "only_a", "only_b")}
        row |= {
            "rank_biased_overlap": compare.rank_biased_overlap(lead, found),
            "spearman": compare.rank_correlation(lead, found),
        }
        overlaps.append(row)
        curves.append(compare.jaccard_curve(lead, found).assign(method=name))
        if lead.n_layers > 2:
            thirds.append(compare.by_layer_third(lead, found).assign(method=name))
    spread = [
        {"method": name, **asdict(anatomy.kv_groups(found, k, group)), **asdict(anatomy.concentration(found))}
        for name, found in {LEAD: lead, **others}.items()
        if found.values.max() > 0
    ]
    return {
        "overlaps": pd.DataFrame(overlaps),
        "jaccard": pd.concat(curves, ignore_index=True),
        "against_cri": pd.DataFrame(causal) if causal else pd.DataFrame({"method": []}),
        "thirds": pd.concat(thirds, ignore_index=True) if thirds else pd.DataFrame({"method": []}),
        "spread": pd.DataFrame(spread),
    }
