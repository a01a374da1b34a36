"""The stages of the LOCOS study. Each is a function whose result is stored, so that an interrupted study can continue."""

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
from lens_heads.studies.locos_paper.finding import LEAD
from lens_heads.studies.locos_paper.presets import ATTENTION, TASK, Preset
from lens_heads.trials.trial import Trial

EXACT, TUNED = "locos (exact)", "locos (tuned lens)"


def detect(
    model: Model, select: Sequence[Trial], plan: Preset, out: Path, tuned_lens: str | None
) -> dict[str, HeadScores]:
    """Score every head by every method, and by LOCOS with the exact read-out and the tuned lens where asked for."""
    options: dict[str, Any] = {"teacher_forced": plan.teacher_forced, "max_new_tokens": plan.detect_new_tokens}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # The tables show a method without any trial.
        scores = score_heads(model, select, plan.methods, out=out / "scores", **options)
        for name, direction, folder in (
            (EXACT, "exact" if plan.exact else None, "scores-exact"),
            (TUNED, tuned_lens, "scores-tuned"),
        ):
            if direction:
                found = score_heads(model, select, [LEAD], direction=direction, out=out / folder, **options)
                scores[name] = found[LEAD]
    return scores


def means(model: Model, select: Sequence[Trial], plan: Preset, out: Path) -> MeanActivations:
    """The mean activations that ablation substitutes, from selection trials; computed once per folder."""
    file = out / "means.safetensors"
    if not file.exists():
        partial = file.with_suffix(".partial")
        mean_activations(model, select, n=plan.calibrate).save(partial)
        partial.replace(file)
    return MeanActivations.load(file)


@dataclass(frozen=True, eq=False)
class Bench:
    """What the stages on test trials share; `k` is the headline's number of heads."""

    model: Model
    plan: Preset
    k: int
    reference: MeanActivations
    out: Path

    def ablate(
        self, test: Sequence[Trial], rankings: dict[str, HeadScores], calls: Mapping[str, TaskCall], **options: Any
    ) -> AblationCurve:
        """An ablation curve on the test trials (task "retrieval") and on the called tasks."""
        plan = self.plan
        options |= {"max_new_tokens": plan.max_new_tokens, "batch_size": plan.batch_size}
        options["controls"] = Controls(options["controls"], plan.seeds)
        options["reference"] = self.reference if plan.kind in ("mean", "query_mean") else None
        others = {name: plan.trials(call) for name, call in calls.items()}
        return ablation_curve(self.model, {TASK: test}, rankings, kind=plan.kind, specificity=others, **options)


def curve(bench: Bench, test: Sequence[Trial], scores: Mapping[str, HeadScores]) -> AblationCurve:
    """RQ1 to RQ4: ablate every ranking and its controls on the test trials, and LOCOS on the tasks to be spared."""
    plan = bench.plan
    rankings = {name: scores[name] for name in (*plan.ablated, EXACT, TUNED) if name in scores}
    return bench.ablate(
        test,
        rankings,
        plan.spared,
        ks=sorted({*plan.ks, bench.k}),
        controls=plan.controls,
        specificity_for=LEAD,
        sets=exclusive_sets(rankings, bench.k) if plan.exclusive else None,
        generate=plan.judge_text_everywhere,
        out=bench.out / "ablation",
    )


def exclusive_sets(scores: Mapping[str, HeadScores], k: int) -> dict[str, list[Head]]:
    """For LOCOS and each of two baselines: the top k heads they share, and those only one of them has."""
    sets: dict[str, list[Head]] = {}
    for name in ("copy", "attention_spatial"):
        if name in scores:
            found = compare.overlap(scores[LEAD], scores[name], k)
            sets[f"{LEAD} and {name}"] = found.both
            sets[f"{LEAD} only, not {name}"] = found.only_a
            sets[f"{name} only, not {LEAD}"] = found.only_b
    return {name: heads for name, heads in sets.items() if heads}


def best_baseline(found: AblationCurve, k: int) -> str:
    """The attention method whose top k heads cost most: in ROUGE-L if text was judged everywhere, else in log-probability.

    It is chosen on the trials that the claim is judged on, which favours the baseline over LOCOS.
    """
    known = [name for name in ATTENTION if name in found.rankings]
    if not known:
        raise ValueError(f"no attention method was ablated: add one of {', '.join(ATTENTION)} to the preset's ablated")
    metric = "rougeL" if "rougeL" in found.metrics else "logprob"
    return min(known, key=lambda name: found.values(Condition.top(name, k), metric).mean())


def judged_texts(bench: Bench, test: Sequence[Trial], scores: Mapping[str, HeadScores], baseline: str) -> AblationCurve:
    """RQ1 and RQ5: texts at the headline k with the heads of LOCOS, of the best baseline, and random ones ablated."""
    plan, chosen = bench.plan, {LEAD: scores[LEAD], baseline: scores[baseline]}
    calls = {**plan.spared, **plan.downstream} if plan.downstream else {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # The curve already warned about ties.
        return bench.ablate(test, chosen, calls, ks=[bench.k], controls=("random",), out=bench.out / "texts")


def patched(bench: Bench, test: Sequence[Trial], texts: AblationCurve) -> HeadScores:
    """CRI of every head, on test trials that the unablated model answers."""
    plan, right = bench.plan, texts.values(Condition.none(), "correct")
    answered = [trial for trial in test if plan.teacher_forced or right.get(trial.id, 0) > 0.5]
    if not answered:
        raise ValueError("the model answers none of the test trials, so no head can be patched: use easier trials")
    return patch_heads(bench.model, answered[: plan.cri_trials], out=bench.out / "cri")


def mended(bench: Bench, test: Sequence[Trial], scores: HeadScores) -> Recovery | str:
    """Recovery of LOCOS's top heads, or the reason why it cannot be measured."""
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


def read(
    bench: Bench, select: Sequence[Trial], scores: Mapping[str, HeadScores]
) -> tuple[dict[str, pd.DataFrame], HeadScores]:
    """Provenance of the top heads of three methods, with and without the sink, and the literal share of every head."""
    model, out = bench.model, bench.out
    options: dict[str, Any] = {"teacher_forced": True, "batch_size": 1}
    answered = [trial for trial in select if trial.id in scores[LEAD].trial_ids]
    methods = [name for name in (LEAD, "copy", "attention_spatial") if name in scores]
    heads = list(dict.fromkeys(head for name in methods for head in scores[name].ranking()[: bench.plan.read_heads]))
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
    """Tables from scores alone: overlaps with LOCOS, Jaccard curves, agreement with CRI, layer thirds, and concentration."""
    lead, group = scores[LEAD], geometry(model).group
    others = {name: found for name, found in scores.items() if name != LEAD}
    others |= {"cri": cri} if cri is not None else {}
    jaccard = [compare.jaccard_curve(lead, found).assign(method=name) for name, found in others.items()]
    thirds = [
        compare.by_layer_third(lead, found).assign(method=name) for name, found in others.items() if lead.n_layers > 2
    ]
    spread = [
        {"method": name, **asdict(anatomy.kv_groups(found, k, group)), **asdict(anatomy.concentration(found))}
        for name, found in {LEAD: lead, **others}.items()
        if found.values.max() > 0
    ]
    return {
        "overlaps": pd.DataFrame([_overlap(lead, found, k) for found in others.values()]),
        "jaccard": pd.concat(jaccard, ignore_index=True),
        "against_cri": _against_cri(scores, cri, k),
        "thirds": pd.concat(thirds, ignore_index=True) if thirds else pd.DataFrame({"method": []}),
        "spread": pd.DataFrame(spread),
    }


def _overlap(lead: HeadScores, other: HeadScores, k: int) -> dict[str, Any]:
    """How far another ranking agrees with LOCOS's, as a row."""
    shared = compare.overlap(lead, other, k)
    named = {key: ", ".join(map(str, getattr(shared, key))) for key in ("both", "only_a", "only_b")}
    biased, spearman = (compare.rank_biased_overlap(lead, other), compare.rank_correlation(lead, other))
    return {**asdict(shared), **named, "rank_biased_overlap": biased, "spearman": spearman}


def _against_cri(scores: Mapping[str, HeadScores], cri: HeadScores | None, k: int) -> pd.DataFrame:
    """How many of each method's top heads are among those that patching finds; empty without patching."""
    if cri is None:
        return pd.DataFrame({"method": []})
    rows: list[dict[str, Any]] = []
    for name, found in scores.items():
        shared = compare.overlap(found, cri, k)
        row = {"method": name, "k": k, "jaccard": shared.jaccard}
        row |= {"chance": shared.expected_jaccard, "p": shared.p_value}
        row |= dict(zip(("spearman", "low", "high"), compare.rank_correlation_interval(found, cri), strict=True))
        rows.append(row | {"both": ", ".join(map(str, shared.both))})
    return pd.DataFrame(rows)
