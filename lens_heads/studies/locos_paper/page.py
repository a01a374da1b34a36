"""The study as one page: claims first, then each question with its figures and tables."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from lens_heads import plots
from lens_heads.causal import Recovery
from lens_heads.report import report
from lens_heads.studies.locos_paper.claims import LEAD
from lens_heads.studies.locos_paper.presets import ATTENTION, FACTORIAL
from lens_heads.studies.running import DOES_NOT, HOLDS, UNTOLD, described

if TYPE_CHECKING:
    from lens_heads.studies.locos_paper.study import Finding

METRIC = "logprob"
CLAIMS = (
    "Judged by the number in 'judged by', with its 95 % interval: a claim holds, or does not, if the whole interval says so. "
    "Intervals are bootstrapped over trials, and no narrower than what so many trials may well not have shown (a share of "
    "1 - 0.025 ** (1 / trials)). A difference also needs a sign test, a loss to exceed that of random heads, and a task that is "
    "spared to be one the model does."
)
INTERVALS = {"value": ("low", "high"), "drop": ("drop_low", "drop_high")}


def write_page(findings: Sequence[Finding], preset: str, path: Path, command: str | None) -> Path:
    """Write the page for all models."""
    verdicts = [report.Section("The paper's claims", CLAIMS, tables=[_claims(finding) for finding in findings])]
    sections = verdicts + [section for finding in findings for section in _sections(finding)]
    first = findings[0].settings["preset"]
    counted = [f"{finding.model} (k = {finding.k}): {_counted(finding.claims)}." for finding in findings]
    summary = report.Summary(
        model=", ".join(finding.model for finding in findings),
        trials=f"{described(first['select'])} to select heads; {described(first['test'])} to evaluate them",
        heads=[f"{finding.model} {head}" for finding in findings for head in finding.scores[LEAD].top(3)],
        verdict=" ".join(counted),
        facts={
            "Headline k": "the paper's 50 of 1,152 heads, as a share of this model's",
            "Ablation": f"{first['kind']}, at all positions, also while decoding",
            "Intervals": "95 % percentile bootstrap over trials (and draws of random heads); differences are paired",
            "Verdicts": "by the whole interval: a claim that the interval does not decide cannot be told",
        },
    )
    provenance = report.Provenance.now({"preset": preset, "settings": first}, command)
    return report.write_report(path, "The argument of the LOCOS paper, re-run", summary, sections, provenance)


def _counted(claims: pd.DataFrame) -> str:
    counts = claims["verdict"].value_counts()
    return ", ".join(f"{counts.get(verdict, 0)} {verdict}" for verdict in (HOLDS, DOES_NOT, UNTOLD))


def _claims(finding: Finding) -> report.Table:
    shown = finding.claims.rename(columns={"value": "judged by", "holds_if": "holds if", "measured_on": "measured on"})
    columns = [
        "claim",
        "paper",
        "found",
        "metric",
        "judged by",
        "low",
        "high",
        "verdict",
        "holds if",
        "measured on",
        "trials",
    ]
    caption = f"{finding.model}, k = {finding.k}"
    return report.Table(shown[columns], caption, 2, intervals={"judged by": ("low", "high")})


def _sections(finding: Finding) -> list[report.Section]:
    maps = [report.Figure(plots.head_map(scores, method), method) for method, scores in finding.scores.items()]
    return [
        report.Section(f"{finding.model}: detection", figures=[*maps, plots.method_agreement(finding.scores)]),
        _ablation(finding),
        _factorial(finding),
        _spared(finding),
        _downstream(finding),
        _agreement(finding),
        _causal(finding),
        _reading(finding),
    ]


def _ablation(finding: Finding) -> report.Section:
    curve = finding.curve
    figures = [report.Figure(plots.ablation_curves(curve, METRIC), "Gold answer's log-probability per token")]
    if "rougeL" in curve.metrics:
        figures.append(report.Figure(plots.ablation_curves(curve, "rougeL"), "ROUGE-L of the generated text"))
    main = curve.frame[(curve.frame["task"] == "retrieval") & (curve.frame["metric"] == METRIC)]
    differences = report.Table(
        curve.differences(METRIC, lead=LEAD), "Paired differences to LOCOS", intervals={"difference": ("low", "high")}
    )
    return report.Section(
        f"{finding.model}: ablation against every baseline and control (RQ1, RQ3)",
        "Sets named 'given' are the heads that both, or only one, of two methods have among their k best.",
        figures=figures,
        tables=[report.Table(main, "Ablation", intervals=INTERVALS), differences],
    )


def _factorial(finding: Finding) -> report.Section:
    frame = finding.curve.frame
    rows = frame[
        (frame["task"] == "retrieval")
        & (frame["metric"] == METRIC)
        & (frame["set"] == "top")
        & frame["method"].isin(FACTORIAL)
    ]
    table = pd.DataFrame(
        {
            "group": [f"k = {k}" for k in rows["k"]],
            "name": rows["method"].to_list(),
            "value": rows["drop"].to_list(),
            "low": rows["drop_low"].to_list(),
            "high": rows["drop_high"].to_list(),
        }
    )
    return report.Section(
        f"{finding.model}: is it the OV circuit or the contrast? (RQ2)",
        "locos: OV and contrast; dla: OV alone, over all positions; attention_spatial: contrast alone; attention_mass: "
        "neither. Within one row attention_spatial orders heads exactly as attention_mass does, because attention sums to "
        "one: the contrast can only matter together with OV.",
        figures=[plots.drop_bars(table, "What ablating the k best of each costs", unit="nats per token")],
    )


def _spared(finding: Finding) -> report.Section:
    curve, tables, figures = finding.curve, [], []
    for task in finding.settings["preset"]["spared"]:
        apart = curve.dissociation(task, METRIC)
        lead = apart[(apart["method"] == LEAD) & (apart["set"] == "top")]
        best = lead.sort_values("score").iloc[-1]
        interval = f"{best['score']:.2f} [{best['low']:.2f}, {best['high']:.2f}]"
        caption = f"Dissociation from {task}: largest at k = {best['k']}, chosen on these trials: {interval}"
        tables.append(report.Table(apart, caption, intervals={"score": ("low", "high")}))
        figures.append(report.Figure(plots.ablation_curves(curve, METRIC, task), f"{task} under the same ablations"))
    return report.Section(
        f"{finding.model}: what is spared (RQ4)",
        "Dissociation score: share of retrieval lost minus share of the other task lost, exp(log-probability).",
        figures=figures,
        tables=tables,
    )


def _downstream(finding: Finding) -> report.Section:
    frame = finding.texts.frame
    wanted = frame["metric"].isin(["correct", "exact_match", "token_f1", "rougeL"])
    rows = frame[wanted & (frame["metric"] == "correct") & (frame["k"] == finding.k)]
    bars = pd.DataFrame(
        {
            "group": rows["task"].to_list(),
            "name": [m if s == "top" else "random" for m, s in zip(rows["method"], rows["set"], strict=True)],
            "value": rows["drop"].to_list(),
            "low": rows["drop_low"].to_list(),
            "high": rows["drop_high"].to_list(),
        }
    )
    texts = report.Texts.from_curve(finding.texts, finding.k, LEAD, metric="correct", questions=finding.questions)
    return report.Section(
        f"{finding.model}: generated answers at k = {finding.k} (RQ1, RQ5)",
        figures=[
            report.Figure(
                plots.drop_bars(bars, "Right answers lost", unit="share of answers"), "By each task's own judge"
            )
        ],
        tables=[report.Table(frame[wanted], "Texts", intervals=INTERVALS)],
        texts=[texts],
    )


def _agreement(finding: Finding) -> report.Section:
    frames = finding.frames
    curves = {str(name): part for name, part in frames["jaccard"].groupby("method", sort=False)}
    shown = [
        "method_b",
        "k_a",
        "jaccard",
        "expected_jaccard",
        "p_value",
        "layer_matched_jaccard",
        "layer_matched_p_value",
    ]
    shown += ["rank_biased_overlap", "spearman", "both", "only_a", "only_b"]
    overlaps = frames["overlaps"].assign(method_b=frames["jaccard"]["method"].unique())[shown]
    return report.Section(
        f"{finding.model}: do methods find the same heads?",
        figures=[report.Figure(plots.jaccard_curves(curves), "Jaccard of the k best heads with LOCOS's")],
        tables=[
            report.Table(overlaps, f"LOCOS (a) against each other ranking (b), k = {finding.k}"),
            report.Table(frames["spread"], "How concentrated, and over how many kv groups"),
        ],
    )


def _causal(finding: Finding) -> report.Section:
    cri, lead = finding.cri, finding.scores[LEAD]
    thirds = finding.frames["thirds"]
    figures = [
        report.Figure(plots.head_map(cri), f"CRI: patching each head at the answer rows; {len(cri.trial_ids)} pairs"),
        report.Figure(plots.score_scatter(lead, cri), "LOCOS against CRI"),
    ]
    tables = [
        report.Table(
            finding.frames["against_cri"], "Which ranking finds the heads that patching finds: k best against CRI's"
        ),
        report.Table(thirds[thirds["method"] == "cri"], "LOCOS and CRI by layer third"),
    ]
    text = ""
    if isinstance(finding.recovered, Recovery):
        figures.append(report.Figure(finding.recovered.plot(), "Recovery: ablate everywhere, patch at the answer rows"))
        tables.append(report.Table(finding.recovered.frame, "Recovery", intervals={"recovery": ("low", "high")}))
        gaps = report.Table(
            finding.recovered.differences(), "Against each control", intervals={"difference": ("low", "high")}
        )
        tables.append(gaps)
        counts = ", ".join(f"{n} {what.replace('_', ' ')}" for what, n in finding.recovered.examples.items())
        text = f"Recovery, examples: {counts}."
    else:
        text = f"Recovery could not be measured: {finding.recovered}."
    return report.Section(f"{finding.model}: causal evidence", text, figures=figures, tables=tables)


def _reading(finding: Finding) -> report.Section:
    best = [str(head) for head in finding.scores[LEAD].top(finding.settings["preset"]["read_heads"])]
    frame, beyond = finding.frames["provenance"], finding.frames["beyond_sink"]
    literal = pd.DataFrame(
        [
            {"method": name, "literal share of the k best, mean": sum(finding.literal[h] for h in top) / len(top)}
            for name, scores in finding.scores.items()
            if name in (LEAD, *ATTENTION) and (top := scores.top(finding.k))
        ]
    )
    return report.Section(
        f"{finding.model}: what the heads read",
        "The most attended key of each answer row. Literal: share of a head's positive contribution from the needle that "
        "comes from the very token it writes.",
        figures=[
            report.Figure(plots.provenance_bars(frame[frame["head"].isin(best)]), "LOCOS's best heads"),
            report.Figure(
                plots.provenance_bars(beyond[beyond["head"].isin(best)]), "The same heads, the first position left out"
            ),
            report.Figure(plots.head_map(finding.literal), "Literal share"),
        ],
        tables=[literal, report.Table(frame, "Provenance"), report.Table(beyond, "Provenance beyond the sink")],
    )
