"""The page of the LOCOS study: the answer, the head maps, the claims, then each question with its figures."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from lens_heads import plots, report
from lens_heads.ablation.conditions import Condition
from lens_heads.causal import Recovery
from lens_heads.heads.scores import HeadScores
from lens_heads.studies.calls import described
from lens_heads.studies.locos_paper.finding import LEAD, LocosFinding
from lens_heads.studies.locos_paper.presets import ATTENTION, FACTORIAL, Preset
from lens_heads.studies.pages import bars, claims_table, counted, folded, table

METRIC = "logprob"
CLAIMS = (
    'A claim holds, or does not hold, if the whole 95 % interval of the number in "judged by" says so. Intervals are '
    "bootstrapped over trials, and widened to allow for what so few trials may have missed (at least 1 - 0.025 ** (1 / trials) "
    "on either side)."
)


def page(findings: Sequence[LocosFinding], plan: Preset) -> report.Page:
    """The page for all models."""
    claims = [
        claims_table(each.claims, f"{each.model}, k = {each.k}", ("metric", "measured_on", "trials"))
        for each in findings
    ]
    sections = [_maps(findings), report.Section("The paper's claims", CLAIMS, tables=claims)]
    for each in findings:
        sections += [_ablation(each), _factorial(each), _spared(each, plan), _texts(each), _agreement(each)]
        sections += [_causal(each, each.cri)] if each.cri is not None else []
        sections += [_reading(each, each.literal, plan)] if each.literal is not None else []
    summary = report.Summary(
        model=", ".join(each.model for each in findings),
        trials=f"{described(plan.select)} to select heads; {described(plan.test)} to evaluate them",
        heads=[f"{each.model} {head}" for each in findings for head in each.scores[LEAD].ranking()[:3]],
        verdict=" ".join(map(_sentence, findings)),
        figures=[
            plots.ablation_curves(each.curve, METRIC, title=f"{each.model}: the cost of ablating heads")
            for each in findings
        ],
        facts={
            "Claims": "; ".join(f"{each.model}: {counted(each.claims)}" for each in findings),
            "Headline k": ", ".join(f"{each.model}: {each.k}" for each in findings),
            "Ablation": f"{plan.kind}, at all positions and while decoding",
            "Intervals": "95 % percentile bootstrap over trials (and draws of random heads); differences are paired",
        },
    )
    return report.Page("Which heads retrieve by meaning?", summary, sections)


def _sentence(finding: LocosFinding) -> str:
    """One model's answer: how many answers are right before and after; with random heads, on average over their draws."""
    k, texts = finding.k, finding.texts
    conditions = (Condition.none(), Condition.top(LEAD, k), Condition.random(k))
    before, after, random = (texts.values(one, "contains") for one in conditions)
    heads = "head" if k == 1 else f"{k} heads"
    return (
        f"{finding.model}: without LOCOS's top {heads}, {after.sum():.0f} of {len(before)} answers are right instead of "
        f"{before.sum():.0f}; without {k} random head{'s' * (k != 1)}, {random.sum():.1f} on average."
    )


def _maps(findings: Sequence[LocosFinding]) -> report.Section:
    """Head maps of all methods and models, side by side."""
    figures = [
        report.Figure(plots.head_map(scores, f"{each.name}: {plots.look(method).label}"))
        for each in findings
        for method, scores in each.scores.items()
    ]
    figures += [
        report.Figure(plots.method_agreement(each.scores, f"{each.name}: agreement between methods"))
        for each in findings
    ]
    return report.Section("Which heads each method finds", figures=figures, side_by_side=True)


def _main(finding: LocosFinding) -> pd.DataFrame:
    """What ablation costs on the test trials, in log-probability."""
    frame = finding.curve.frame
    return frame[(frame["task"] == finding.curve.main_task) & (frame["metric"] == METRIC)]


def _ablation(finding: LocosFinding) -> report.Section:
    curve, judged = finding.curve, "rougeL" in finding.curve.metrics
    return folded(
        f"{finding.model}: ablation compared with baselines and controls (RQ1, RQ3)",
        'Sets marked "given" are the top k heads that two methods share, or that only one of them has.',
        figures=[report.Figure(plots.ablation_curves(curve, "rougeL"), "ROUGE-L of the generated text")]
        if judged
        else [],
        tables=[
            table(_main(finding), "Ablation", "value", "drop"),
            table(curve.differences(METRIC, lead=LEAD), "Paired differences from LOCOS", "difference"),
        ],
    )


def _factorial(finding: LocosFinding) -> report.Section:
    rows = _main(finding)
    rows = rows[(rows["set"] == "top") & rows["method"].isin(FACTORIAL)]
    drops = bars(rows, "k = " + rows["k"].astype(str), rows["method"], "drop")
    return report.Section(
        f"{finding.model}: is it the OV circuit or the contrast? (RQ2)",
        "locos uses the OV circuit and the contrast, dla the OV circuit alone (over all positions), attention_spatial the "
        "contrast alone, and attention_mass neither. Attention sums to one in each row, so there attention_spatial orders heads "
        "exactly as attention_mass does: the contrast can only matter together with the OV circuit.",
        figures=[plots.drop_bars(drops, "The cost of ablating each method's top k heads", unit="nats per token")],
    )


def _spared(finding: LocosFinding, plan: Preset) -> report.Section:
    tables, figures = [], []
    for task in plan.spared:
        frame = finding.frames[f"dissociation_{task}"]
        best = frame[(frame["method"] == LEAD) & (frame["set"] == "top")].sort_values("score").iloc[-1]
        caption = (
            f"Dissociation from {task}. It is largest at k = {best['k']} (chosen on these trials): {best['score']:.2f} "
            f"[{best['low']:.2f}, {best['high']:.2f}]"
        )
        tables.append(table(frame, caption, "score"))
        curve = plots.ablation_curves(finding.curve, METRIC, task)
        figures.append(report.Figure(curve, f"{task} under the same ablations"))
    return folded(
        f"{finding.model}: what is spared (RQ4)",
        "The dissociation score is the share of retrieval lost minus the share of the other task lost, in "
        "exp(log-probability).",
        figures=figures,
        tables=tables,
        side_by_side=True,
    )


def _texts(finding: LocosFinding) -> report.Section:
    frame, best = finding.texts.frame, Condition.top(LEAD, finding.k)
    rows = frame[(frame["metric"] == "correct") & (frame["k"] == finding.k)]
    names = rows["method"].where(rows["set"] == "top", "random")
    lost = plots.drop_bars(bars(rows, rows["task"], names, "drop"), "Right answers lost", unit="share of answers")
    shown = frame[frame["metric"].isin(["correct", "exact_match", "token_f1", "rougeL"])]
    return folded(
        f"{finding.model}: generated answers at k = {finding.k} (RQ1, RQ5)",
        figures=[report.Figure(lost, "Judged by each task's own rule")],
        tables=[table(shown, "Texts", "value", "drop")],
        texts=[report.Texts.from_curve(finding.texts, best, metric="contains", questions=finding.questions)],
    )


def _agreement(finding: LocosFinding) -> report.Section:
    frames = finding.frames
    curves = {str(name): part for name, part in frames["jaccard"].groupby("method", sort=False)}
    shown = ["method_b", "k_a", "jaccard", "expected_jaccard", "p_value", "layer_matched_jaccard"]
    shown += ["layer_matched_p_value", "rank_biased_overlap", "spearman", "both", "only_a", "only_b"]
    overlaps = frames["overlaps"].assign(method_b=list(curves))[shown]
    return folded(
        f"{finding.model}: do methods find the same heads?",
        figures=[report.Figure(plots.jaccard_curves(curves), "Jaccard index of the top k heads with LOCOS's")],
        tables=[
            table(overlaps, f"LOCOS (a) compared with each other ranking (b), k = {finding.k}"),
            table(frames["spread"], "How concentrated the scores are, and over how many kv groups"),
        ],
    )


def _causal(finding: LocosFinding, cri: HeadScores) -> report.Section:
    lead, thirds = finding.scores[LEAD], finding.frames["thirds"]
    thirds = thirds[thirds["method"] == "cri"]
    figures = [
        report.Figure(plots.head_map(cri), f"CRI: each head patched at the answer rows, {len(cri.trial_ids)} pairs"),
        report.Figure(plots.score_scatter(lead, cri, thirds), "LOCOS and CRI"),
    ]
    tables = [
        table(finding.frames["against_cri"], "Which ranking finds the heads that patching finds? Top k of each"),
        table(thirds, "LOCOS and CRI by layer third"),
    ]
    text, recovered = "", finding.recovered
    if isinstance(recovered, Recovery):
        figures.append(report.Figure(recovered.plot(), "Recovery: ablated everywhere, patched at the answer rows"))
        tables.append(table(recovered.frame, "Recovery", "recovery"))
        tables.append(table(recovered.differences(), "Recovery compared with each control", "difference"))
        counts = ", ".join(f"{what.replace('_', ' ')} {n}" for what, n in recovered.examples.items())
        text = f"Number of examples for recovery: {counts}."
    elif recovered:
        text = f"Recovery could not be measured: {recovered}."
    return folded(f"{finding.model}: causal evidence", text, figures=figures, tables=tables, side_by_side=True)


def _reading(finding: LocosFinding, literal: HeadScores, plan: Preset) -> report.Section:
    best = [str(head) for head in finding.scores[LEAD].ranking()[: plan.read_heads]]
    frame, beyond = finding.frames["provenance"], finding.frames["beyond_sink"]
    share = pd.DataFrame(
        [
            {"method": name, "mean literal share of the top k": sum(literal[h] for h in top) / len(top)}
            for name, scores in finding.scores.items()
            if name in (LEAD, *ATTENTION) and (top := scores.top(finding.k))
        ]
    )
    read, read_beyond = (plots.provenance_bars(one[one["head"].isin(best)]) for one in (frame, beyond))
    return folded(
        f"{finding.model}: what the heads read",
        "Provenance is the most attended key of each answer row. The literal share of a head is the part of its positive "
        "contribution from the needle that comes from the token it writes.",
        figures=[
            report.Figure(read, "LOCOS's top heads"),
            report.Figure(read_beyond, "The same heads without the first position"),
            report.Figure(plots.head_map(literal), "Literal share"),
        ],
        tables=[share, table(frame, "Provenance"), table(beyond, "Provenance beyond the sink")],
    )
