"""The stages of the study, each a function from what came before to a value of this package, stored and resumable."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from lens_heads import compare
from lens_heads.ablation.curves import AblationCurve
from lens_heads.ablation.grid import ablation_curve
from lens_heads.causal import Recovery, patch_heads, recovery
from lens_heads.heads.head import Head
from lens_heads.heads.scores import HeadScores
from lens_heads.interventions.activations import MeanActivations, mean_activations
from lens_heads.model.geometry import Model, geometry
from lens_heads.scoring import anatomy
from lens_heads.scoring.score import score_heads
from lens_heads.studies.locos_paper.claims import LEAD
from lens_heads.studies.locos_paper.presets import ATTENTION, Preset
from lens_heads.trials.trial import Trial

EXACT, TUNED = "locos (exact)", "locos (tuned lens)"


def detect(
    model: Model, select: Sequence[Trial], plan: Preset, out: Path, tuned_lens: Path | None
) -> dict[str, HeadScores]:
    """Every method on the selection trials, and LOCOS again with the exact read-out and with a tuned lens if there is one."""
    options: dict[str, Any] = {"teacher_forced": plan.teacher_forced, "max_new_tokens": plan.detect_new_tokens}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # A method without any trial is visible in the tables.
        scores = score_heads(model, select, plan.methods, out=out / "scores", **options)
        directions: dict[str, str | Path] = {EXACT: "exact", **({TUNED: tuned_lens} if tuned_lens else {})}
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


def curve(
    model: Model,
    test: Sequence[Trial],
    scores: Mapping[str, HeadScores],
    plan: Preset,
    k: int,
    reference: MeanActivations,
    out: Path,
) -> AblationCurve:
    """RQ1 to RQ4: every ranking with its controls; the lead's ablations also on what should be spared.

    Beside the rankings the heads that only one of LOCOS and a baseline finds are ablated as sets of their own.
    """
    rankings = {name: scores[name] for name in (*plan.ablated, EXACT, TUNED) if name in scores}
    return ablation_curve(
        model,
        test,
        rankings,
        ks=sorted({*plan.ks, k}),
        kind=plan.kind,
        reference=reference if plan.kind in ("mean", "query_mean") else None,
        seeds=plan.seeds,
        specificity={name: plan.trials(call) for name, call in plan.spared.items()},
        specificity_for=LEAD,
        sets=exclusive_sets(scores, k),
        generate=plan.judge_text_everywhere,
        max_new_tokens=plan.max_new_tokens,
        batch_size=plan.batch_size,
        out=out / "ablation",
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
    known = [name for name in ATTENTION if name in found.meta["rankings"]]
    if not known:
        raise ValueError(f"no attention method was ablated: add one of {', '.join(ATTENTION)} to the preset's ablated")
    metric = "rougeL" if "rougeL" in found.metrics else "logprob"
    return min(known, key=lambda name: found.values(name, "top", k, metric).mean())


def judged_texts(
    model: Model,
    test: Sequence[Trial],
    scores: Mapping[str, HeadScores],
    plan: Preset,
    k: int,
    baseline: str,
    reference: MeanActivations,
    out: Path,
) -> AblationCurve:
    """RQ1 and RQ5 in generated text at the headline k: LOCOS, the best baseline and random heads on every task."""
    calls = {**plan.spared, **plan.downstream}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # Ties were warned about with the curve.
        return ablation_curve(
            model,
            test,
            {LEAD: scores[LEAD], baseline: scores[baseline]},
            ks=[k],
            kind=plan.kind,
            reference=reference if plan.kind in ("mean", "query_mean") else None,
            controls=("random",),
            seeds=plan.seeds,
            specificity={name: plan.trials(call) for name, call in calls.items()},
            max_new_tokens=plan.max_new_tokens,
            batch_size=plan.batch_size,
            out=out / "texts",
        )


def patched(model: Model, test: Sequence[Trial], texts: AblationCurve, plan: Preset, out: Path) -> HeadScores:
    """CRI of every head on test trials that the unablated model answers: other trials than the rankings were made on."""
    right = texts.values("none", "none", 0, "correct")
    answered = [trial for trial in test if plan.teacher_forced or right.get(trial.id, 0) > 0.5]
    if not answered:
        raise ValueError("the model answers none of the test trials, so there is nothing to patch: use easier trials")
    return patch_heads(model, answered[: plan.cri_trials], out=out / "cri")


def mended(model: Model, test: Sequence[Trial], scores: HeadScores, plan: Preset, k: int, out: Path) -> Recovery | str:
    """Recovery of LOCOS's heads; a sentence where no example flips."""
    heads = scores.top(k)
    try:
        return recovery(
            model,
            heads,
            heads,
            test[: plan.recovery_trials],
            scores=scores,
            draws=plan.recovery_draws,
            flipped=plan.only_flipped,
            max_new_tokens=plan.max_new_tokens,
            out=out / "recovery",
        )
    except ValueError as error:
        if "no example" not in str(error):
            raise
        return str(error)


@dataclass(frozen=True)
class Reading:
    """What the heads look at, with and without the attention sink, and how literally they copy."""

    provenance: pd.DataFrame
    beyond_sink: pd.DataFrame
    literal: HeadScores


def read(model: Model, select: Sequence[Trial], scores: Mapping[str, HeadScores], plan: Preset, out: Path) -> Reading:
    """Provenance of the best heads of LOCOS and copy, and the literal share of every head."""
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


def agreement(model: Model, scores: Mapping[str, HeadScores], cri: HeadScores, k: int) -> dict[str, pd.DataFrame]:
    """Tables on scores alone: overlaps, Jaccard curves, every method against CRI, layer thirds, kv groups, concentration."""
    lead, group = scores[LEAD], geometry(model).group
    others = {name: found for name, found in {**scores, "cri": cri}.items() if name != LEAD}
    overlaps, curves, thirds, causal = [], [], [], []
    for name, found in scores.items():
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
        "against_cri": pd.DataFrame(causal),
        "thirds": pd.concat(thirds, ignore_index=True) if thirds else pd.DataFrame({"method": []}),
        "spread": pd.DataFrame(spread),
    }
