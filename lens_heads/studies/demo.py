"""The demo: find the heads that retrieve by meaning in two real models, and let ablation say which method was right.

Heads are scored on the `select` half of the packaged needles and ablated on the `test` half, which shares no needle
and no name with it. Whatever comes out is reported as it is.
"""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from lens_heads import plots, tasks
from lens_heads.ablation.curves import AblationCurve
from lens_heads.ablation.evaluation import evaluate
from lens_heads.ablation.grid import ablation_curve
from lens_heads.heads.head import Head
from lens_heads.heads.scores import HeadScores
from lens_heads.interventions.ablate import ablate
from lens_heads.interventions.activations import MeanActivations, mean_activations
from lens_heads.model.geometry import Model
from lens_heads.model.load import load_model
from lens_heads.report import report, tables
from lens_heads.runs.store import write_atomic
from lens_heads.scoring.score import score_heads
from lens_heads.scoring.scorers import SCORERS
from lens_heads.trials.trial import Trial

MODELS = ("gemma-3-270m", "smollm2-135m-instruct")


@dataclass(frozen=True)
class Size:
    """How much is run: trials of each kind, ks, which rankings are ablated, draws per random control.

    `generate`: also judge generated texts under every ablation, not only before and after the lead's `text_k` heads.
    """

    select: int
    test: int
    calibrate: int
    specificity: int
    context_length: int
    ks: tuple[int, ...]
    ablated: tuple[str, ...]
    spared: tuple[str, ...] = ("parametric",)
    controls: tuple[str, ...] = ("bottom", "random")
    generate: bool = False
    seeds: int = 3
    text_k: int = 5


_FULL = Size(
    select=100,
    test=100,
    calibrate=50,
    specificity=50,
    context_length=400,
    ks=(1, 2, 5, 10, 20),
    ablated=tuple(SCORERS),
    spared=("parametric", "arithmetic"),
    controls=("bottom", "random", "random_like"),
    generate=True,
)
SIZES = {
    "quick": Size(8, 6, 6, 4, 320, (1, 5), ("locos", "copy")),
    "standard": Size(28, 12, 12, 6, 320, (1, 2, 5, 10, 20), ("locos", "attention_spatial", "copy")),
    "full": _FULL,
}
SPARED: dict[str, dict[str, Any]] = {"parametric": {}, "arithmetic": {"digits": 1}}
METRIC = "logprob"


@dataclass(frozen=True)
class Finding:
    """One model's scores, ablation curve and the sentence that sums them up."""

    model: str
    scores: dict[str, HeadScores]
    curve: AblationCurve
    texts: report.Texts
    verdict: str
    seconds: float


def run(models: Sequence[str] = MODELS, size: str = "standard", out: str | Path = "runs/demo") -> list[Finding]:
    """Run the demo; write `report.html`, `summary.json` and a run folder per model under `out`. The same call continues it.

    Prints the tables as it goes. ValueError for an unknown size.
    """
    if size not in SIZES:
        raise ValueError(f"size={size!r}: use {', '.join(SIZES)}")
    console, out, plan = Console(), Path(out), SIZES[size]
    console.print(
        f"[bold]{size}[/] demo: {plan.select} trials to select heads, {plan.test} others to evaluate them, prompts near "
        f"{plan.context_length - 130} tokens, k = {', '.join(map(str, plan.ks))}; ablated rankings: {', '.join(plan.ablated)}"
    )
    findings = [study(model, plan, out / Path(model).name, console) for model in models]
    page = write_page(
        findings, plan, out / "report.html", f"lens-heads demo{'' if size == 'standard' else f' --{size}'}"
    )
    write_atomic(out / "summary.json", json.dumps([_summary(finding) for finding in findings], indent=1) + "\n")
    total = sum(finding.seconds for finding in findings)
    console.print(f"\nThe page with every figure: [bold]{page}[/]   (run folder {out}; {total / 60:.1f} minutes)")
    return findings


def _summary(finding: Finding) -> dict[str, Any]:
    """The numbers of one model: best heads with intervals, the curve's table, paired differences."""
    return {
        "model": finding.model,
        "verdict": finding.verdict,
        "right_before_and_after": _counted(finding.texts),
        "top": {m: s.to_frame().head(5).round(4).to_dict("records") for m, s in finding.scores.items()},
        "curve": finding.curve.frame.round(4).to_dict("records"),
        "differences": finding.curve.differences(METRIC).round(4).to_dict("records"),
    }


def study(name: str, plan: Size, out: Path, console: Console) -> Finding:
    """Score, ablate and judge one model."""
    started = time.monotonic()
    console.rule(name)
    model = load_model(name)
    select = tasks.packaged(split="select", n=plan.select, context_length=plan.context_length, seed=0)
    test = tasks.packaged(split="test", n=plan.test, context_length=plan.context_length, seed=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # A method without any trial is visible in the table.
        scores = score_heads(model, select, out=out / "scores", max_new_tokens=12)
    outcomes = next(iter(scores.values())).meta["outcomes"]
    console.print(f"{outcomes.get('passed', 0)} of {len(select)} trials answered; outcomes: {outcomes}")
    tables.show(tables.top_heads(scores, 3, f"{name}: the best heads of each method"))
    reference = mean_activations(model, select, n=plan.calibrate)
    rankings = {method: scores[method] for method in plan.ablated if method in scores}
    curve = ablation_curve(
        model,
        test,
        rankings,
        ks=plan.ks,
        reference=reference,
        controls=plan.controls,
        seeds=plan.seeds,
        specificity={name: tasks.load(name, n=plan.specificity, **SPARED[name]) for name in plan.spared},
        generate=plan.generate,
        max_new_tokens=8,
        batch_size=8,
        out=out / "ablation",
    )
    for task in ("retrieval", *plan.spared):
        tables.show(tables.curve(curve, METRIC, task))
    lead = next(iter(rankings))  # ablation_curve has refused an empty set of rankings.
    texts = before_and_after(model, test, lead, rankings[lead].top(plan.text_k), reference, out)
    sentence = verdict(name, curve)
    console.print(f"Right answers before and after ablating {lead}'s top {plan.text_k}: {_counted(texts)}. {sentence}")
    return Finding(name, scores, curve, texts, sentence, time.monotonic() - started)


def before_and_after(
    model: Model, trials: Sequence[Trial], lead: str, heads: list[Head], reference: MeanActivations, out: Path
) -> report.Texts:
    """What the model writes on each trial, unablated and without the heads, and whether it holds the answer."""
    options: dict[str, Any] = {"max_new_tokens": 8, "batch_size": 8, "progress": False}
    before = evaluate(model, trials, out=out / "texts-before", **options)
    with ablate(model, heads, "mean", reference=reference):
        after = evaluate(model, trials, out=out / f"texts-without-{'-'.join(map(str, heads))}", **options)
    examples = [
        report.Example(
            question=trial.question,
            expected=trial.answer,
            before=before.texts[i],
            after=after.texts[i],
            right_before=bool(before.metrics["contains"][i] > 0.5),
            right_after=bool(after.metrics["contains"][i] > 0.5),
        )
        for i, trial in enumerate(trials)
    ]
    return report.Texts(examples, f"Ablated: the top {len(heads)} of {lead}: {', '.join(map(str, heads))}")


def _counted(texts: report.Texts) -> str:
    right = [sum(getattr(example, side) for example in texts.examples) for side in ("right_before", "right_after")]
    return f"{right[0]} and {right[1]} of {len(texts.examples)}"


def verdict(model: str, curve: AblationCurve) -> str:
    """What ablating the lead's heads does to retrieval, against every other ranking and random heads, in numbers."""
    frame = curve.frame[(curve.frame["metric"] == METRIC) & (curve.frame["task"] == "retrieval")]
    lead, differences = curve.meta["rankings"][0], curve.differences(METRIC)
    sentences: list[str] = []
    for k in sorted({k for k in frame["k"] if k})[:3]:
        mine = frame[(frame["method"] == lead) & (frame["set"] == "top") & (frame["k"] == k)].iloc[0]
        others = []
        for row in differences[(differences["k"] == k) & (differences["set"].isin(["top", "random"]))].itertuples():
            sure = "more harmful" if row.low > 0 else "less harmful" if row.high < 0 else "not told apart"
            name = "random heads" if row.set == "random" else str(row.against)
            others.append(f"against {name} {row.difference:+.2f} [{row.low:+.2f}, {row.high:+.2f}] ({sure})")
        what = "head" if k == 1 else f"{k} heads"
        sentences.append(
            f"Ablating {lead}'s top {what} changes the gold answer's log-probability by {-mine['drop']:+.2f} "
            f"[{-mine['drop_high']:+.2f}, {-mine['drop_low']:+.2f}] nats per token. Cost {'; '.join(others)}."
        )
    return f"{model}: " + " ".join(sentences)


def headline(finding: Finding) -> str:
    """One model's result in a sentence: right answers before and after, and what the lead's heads cost more than."""
    lead, k = finding.curve.meta["rankings"][0], max(finding.curve.meta["ks"][:3])
    judged: dict[str, list[str]] = {"more than": [], "less than": [], "no more and no less than": []}
    rows = finding.curve.differences(METRIC)
    for row in rows[(rows["k"] == k) & (rows["set"].isin(["top", "random"]))].itertuples():
        name = "random heads" if row.set == "random" else f"{row.against}'s"
        judged["more than" if row.low > 0 else "less than" if row.high < 0 else "no more and no less than"].append(name)
    costs = "; ".join(f"{how} {' and '.join(names)}" for how, names in judged.items() if names)
    return (
        f"{finding.model}: right answers before and after ablating {lead}'s best heads: {_counted(finding.texts)}. "
        f"At k = {k} they cost the answer's log-probability {costs}."
    )


def write_page(findings: Sequence[Finding], plan: Size, path: Path, command: str) -> Path:
    """One self-contained page: per model the head maps, the curves with controls, specificity, texts before and after."""
    sections: list[report.Section] = []
    for finding in findings:
        sections += _sections(finding, plan)
    lead = plan.ablated[0]
    best = [f"{f.model} {head}" for f in findings if lead in f.scores for head in f.scores[lead].top(3)]
    summary = report.Summary(
        model=", ".join(finding.model for finding in findings),
        trials=f"{plan.select} to select heads, {plan.test} others to evaluate them, per model",
        heads=best,
        verdict=" ".join(headline(finding) for finding in findings),
        facts={
            "Ablation": f"mean of hook_z over {plan.calibrate} selection prompts, at all positions, also while decoding",
            "Intervals": "95 % percentile bootstrap over trials; differences between methods are paired",
            "Not shared": "needles and names of selection and evaluation",
        },
    )
    settings = {"size": vars(plan), "models": [finding.model for finding in findings]}
    return report.write_report(
        path,
        "Which heads retrieve by meaning?",
        summary,
        sections,
        report.Provenance.now(settings, command),
    )


def _sections(finding: Finding, plan: Size) -> list[report.Section]:
    curve, name = finding.curve, finding.model
    maps = [
        report.Figure(plots.head_map(scores), f"{method}; {len(scores.trial_ids)} trials")
        for method, scores in finding.scores.items()
    ]
    lines = [report.Figure(plots.ablation_curves(curve, METRIC), "Gold answer's log-probability per token")]
    if "contains" in curve.metrics:
        lines.append(report.Figure(plots.ablation_curves(curve, "contains"), "Share of texts that contain the answer"))
    spared = [
        report.Figure(plots.ablation_curves(curve, METRIC, task), f"{task}: log-probability under the same ablations")
        for task in plan.spared
    ]
    intervals = {"value": ("low", "high"), "drop": ("drop_low", "drop_high")}
    main = curve.frame[
        (curve.frame["task"] == "retrieval") & (curve.frame["metric"].isin([METRIC, "contains", "rougeL"]))
    ]
    tests = report.Table(
        curve.differences(METRIC), "Paired differences to the lead", intervals={"difference": ("low", "high")}
    )
    apart = report.Table(
        curve.dissociation("parametric", METRIC), "Dissociation score", intervals={"score": ("low", "high")}
    )
    return [
        report.Section(f"{name}: where each method looks", figures=[*maps, plots.method_agreement(finding.scores)]),
        report.Section(
            f"{name}: who was right",
            finding.verdict,
            figures=lines,
            tables=[report.Table(main, "Ablation", intervals=intervals), tests],
        ),
        report.Section(f"{name}: what is spared", figures=spared, tables=[apart]),
        report.Section(f"{name}: texts before and after", texts=[finding.texts]),
    ]
