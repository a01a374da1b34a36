"""The study as one page: the answer in one figure, the claims, then each question with its figures; tables are folded."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from lens_heads import plots, report
from lens_heads.ablation.conditions import Condition
from lens_heads.causal import Recovery
from lens_heads.heads.scores import HeadScores
from lens_heads.studies.calls import described
from lens_heads.studies.locos_paper.claims import LEAD
from lens_heads.studies.locos_paper.finding import LocosFinding
from lens_heads.studies.locos_paper.presets import ATTENTION, FACTORIAL, Preset
from lens_heads.studies.verdicts import counted

METRIC = "logprob"
CLAIMS = (
    "A claim holds, or does not, if the whole 95 % interval of the number in 'judged by' says so. Intervals are bootstrapped "
    "over trials, and no narrower than what so many trials may well not have shown (a share of 1 - 0.025 ** (1 / trials))."
)
INTERVALS = {"value": ("low", "high"), "drop": ("drop_low", "drop_high")}


def page(findings: Sequence[LocosFinding], plan: Preset) -> report.Page:
    """The page for all models."""
    verdicts = [report.Section("The paper's claims", CLAIMS, tables=[_claims(finding) for finding in findings])]
    sections = [*verdicts, _maps(findings), *(section for finding in findings for section in _sections(finding, plan))]
    summary = report.Summary(
        model=", ".join(finding.model for finding in findings),
        trials=f"{described(plan.select)} to select heads; {described(plan.test)} to evaluate them",
        heads=[f"{finding.model} {head}" for finding in findings for head in finding.scores[LEAD].top(3)],
        verdict=" ".join(map(_sentence, findings)),
        figures=[
            plots.ablation_curves(finding.curve, METRIC, title=f"{finding.model}: what ablated heads cost")
            for finding in findings
        ],
        facts={
            "Claims": "; ".join(f"{one.model}: {counted(list(one.frames['claims']['verdict']))}" for one in findings),
            "Headline k": ", ".join(f"{finding.model} {finding.k}" for finding in findings),
            "Ablation": f"{plan.kind}, at all positions, also while decoding",
            "Intervals": "95 % percentile bootstrap over trials (and draws of random heads); differences are paired",
        },
    )
    return report.Page("Which heads retrieve by meaning?", summary, sections)


def _sentence(finding: LocosFinding) -> str:
    """One model's answer: right answers before and after."""
    k, texts = finding.k, finding.texts
    before, after, random = (
        int(texts.values(one, "contains").round().sum())
        for one in (Condition.none(), Condition.top(LEAD, k), Condition.random(k))
    )
    trials = len(texts.values(Condition.none(), "contains"))
    return (
        f"{finding.model}: without LOCOS's {k} best heads {after} of {trials} answers are right instead of {before}; "
        f"without {k} random heads, {random}."
    )


def _maps(findings: Sequence[LocosFinding]) -> report.Section:
    """Every method's head map, of all models, beside each other."""
    maps = [
        report.Figure(plots.head_map(scores, f"{finding.name}: {plots.look(method).label}"))
        for finding in findings
        for method, scores in finding.scores.items()
    ]
    agreement = [
        report.Figure(plots.method_agreement(finding.scores, f"{finding.name}: agreement of the methods"))
        for finding in findings
    ]
    return report.Section("Where each method looks", figures=[*maps, *agreement], side_by_side=True)


def _claims(finding: LocosFinding) -> report.Table:
    shown = finding.frames["claims"].rename(
        columns={"value": "judged by", "holds_if": "holds if", "measured_on": "measured on"}
    )
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


def _sections(finding: LocosFinding, plan: Preset) -> list[report.Section]:
    found = [_ablation(finding), _factorial(finding), _spared(finding, plan), _texts(finding), _agreement(finding)]
    found += [_causal(finding, finding.cri)] if finding.cri is not None else []
    found += [_reading(finding, finding.literal, plan)] if finding.literal is not None else []
    return found


def _ablation(finding: LocosFinding) -> report.Section:
    curve = finding.curve
    figures = []
    if "rougeL" in curve.metrics:
        figures.append(report.Figure(plots.ablation_curves(curve, "rougeL"), "ROUGE-L of the generated text"))
    main = curve.frame[(curve.frame["task"] == curve.main_task) & (curve.frame["metric"] == METRIC)]
    differences = report.Table(
        curve.differences(METRIC, lead=LEAD), "Paired differences to LOCOS", intervals={"difference": ("low", "high")}
    )
    return report.Section(
        f"{finding.model}: ablation against every baseline and control (RQ1, RQ3)",
        "Sets named 'given' are the heads that both, or only one, of two methods have among their k best.",
        figures=figures,
        tables=[report.Table(main, "Ablation", intervals=INTERVALS), differences],
        folded=True,
    )


def _factorial(finding: LocosFinding) -> report.Section:
    frame = finding.curve.frame
    rows = frame[
        (frame["task"] == finding.curve.main_task)
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


def _spared(finding: LocosFinding, plan: Preset) -> report.Section:
    curve, tables, figures = finding.curve, [], []
    for task in plan.spared:
        apart = finding.frames[f"dissociation_{task}"]
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
        side_by_side=True,
        folded=True,
    )


def _texts(finding: LocosFinding) -> report.Section:
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
    texts = report.Texts.from_curve(
        finding.texts, Condition.top(LEAD, finding.k), metric="contains", questions=finding.questions
    )
    return report.Section(
        f"{finding.model}: generated answers at k = {finding.k} (RQ1, RQ5)",
        figures=[
            report.Figure(
                plots.drop_bars(bars, "Right answers lost", unit="share of answers"), "By each task's own judge"
            )
        ],
        tables=[report.Table(frame[wanted], "Texts", intervals=INTERVALS)],
        texts=[texts],
        folded=True,
    )


def _agreement(finding: LocosFinding) -> report.Section:
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
        folded=True,
    )


def _causal(finding: LocosFinding, cri: HeadScores) -> report.Section:
    lead = finding.scores[LEAD]
    thirds = finding.frames["thirds"]
    figures = [
        report.Figure(plots.head_map(cri), f"CRI: patching each head at the answer rows; {len(cri.trial_ids)} pairs"),
        report.Figure(plots.score_scatter(lead, cri, thirds[thirds["method"] == "cri"]), "LOCOS against CRI"),
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
    elif finding.recovered:
        text = f"Recovery could not be measured: {finding.recovered}."
    return report.Section(
        f"{finding.model}: causal evidence", text, figures=figures, tables=tables, side_by_side=True, folded=True
    )


def _reading(finding: LocosFinding, literal: HeadScores, plan: Preset) -> report.Section:
    best = [str(head) for head in finding.scores[LEAD].top(plan.read_heads)]
    frame, beyond = finding.frames["provenance"], finding.frames["beyond_sink"]
    share = pd.DataFrame(
        [
            {"method": name, "literal share of the k best, mean": sum(literal[h] for h in top) / len(top)}
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
            report.Figure(plots.head_map(literal), "Literal share"),
        ],
        tables=[share, report.Table(frame, "Provenance"), report.Table(beyond, "Provenance beyond the sink")],
        folded=True,
    )
