"""The page of the LOCOS study: the answer, the head maps, the claims, then each question with its figures."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from lens_heads import plots, report
from lens_heads.evidence.recovery_results import Recovery
from lens_heads.heads.conditions import Condition
from lens_heads.heads.scores import HeadScores
from lens_heads.studies.locos_paper.claims import registered
from lens_heads.studies.locos_paper.finding import LEAD, LocosFinding
from lens_heads.studies.locos_paper.presets import ATTENTION, TASK, Preset
from lens_heads.studies.pages import bars, claims_table, counted, folded, table
from lens_heads.studies.presets import described

METRIC = "logprob"
SETS = {"random": "random", "random_like": "random, same layers"}
PACKAGED = (
    "Packaged trials do not need their question: the answer is the only first name of the passage. Heads that are shown write "
    "that name; whether they retrieve by meaning, these trials cannot tell. "
)
CLAIMS = (
    'Each claim was written down before the run, with its estimand, k and threshold (first table). "Judged by" is a cost in nats '
    "per answer token with its 95 % interval, p the one-sided rank among random sets. Share is what ablation takes from the "
    "answer over what leaving the needle out takes. It exceeds 1 where the answer is less likely without the "
    "heads than without the needle; what ablation does to prompts without the needle is not counted. All claims are judged at "
    "one k, which LOCOS's own cost chose; at other k the order can turn (ablation curves). "
    '"Would tell" are the trials, and the random sets beside them, that would have decided a claim that cannot be told, if the '
    "numbers seen are true."
)


def page(findings: Sequence[LocosFinding], plan: Preset) -> report.Page:
    """The page for all models."""
    more = ("share", "p", "trials", "would_tell", "sets_would_tell", "measured_on")
    claims = [claims_table(each.claims, f"{each.model}, k = {each.k}", more) for each in findings]
    before = report.Table(registered(plan), "Registered before the run")
    about = PACKAGED + CLAIMS if "packaged" in (plan.select[0], plan.test[0]) else CLAIMS
    sections = [report.Section("The paper's claims", about, tables=[before, *claims]), _maps(findings)]
    for each in findings:
        sections += [_headline(each), _ablation(each), _texts(each), _agreement(each)]
        sections += [_causal(each)] if each.cri is not None else []
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
            "Headline k": ", ".join(f"{each.model}: {each.k}, baseline {each.baseline}" for each in findings),
            "Ablation": f"{plan.kind}, at all positions and while decoding",
            "Intervals": "95 %, over trials (whole groups of them) and draws of random heads; differences are paired",
            **({"Negative control": plan.control} if plan.control else {}),
        },
    )
    return report.Page("Which heads write the answer that the needle holds?", summary, sections)


def _sentence(finding: LocosFinding) -> str:
    """One model's answer: the first claim with its numbers, and how many decoded answers are right before and after."""
    first, texts = finding.claims.iloc[0], finding.texts[TASK]
    before, after = (texts.values(one, "contains") for one in (Condition.none(), Condition.top(LEAD, finding.k)))
    return (
        f"{finding.model}: {first['claim'].lower()}: {first['verdict']} ({first['found']}). Without LOCOS's top "
        f"{finding.k} heads, {after.sum():.0f} of {len(before)} answers are right instead of {before.sum():.0f}."
    )


def _maps(findings: Sequence[LocosFinding]) -> report.Section:
    """Head maps of all methods and models, side by side."""
    figures = [
        report.Figure(plots.head_map(scores, title=f"{each.name}: {plots.look(method).label}"))
        for each in findings
        for method, scores in each.scores.items()
    ]
    figures += [
        report.Figure(plots.method_agreement(each.scores, title=f"{each.name}: agreement between methods"))
        for each in findings
    ]
    return report.Section("Which heads each method finds", figures=figures, side_by_side=True)


def _headline(finding: LocosFinding) -> report.Section:
    rows = finding.frames["headline"]
    rows = rows[(rows["metric"] == METRIC) & (rows["k"] > 0)]
    names = rows["method"].where(rows["set"] == "top", rows["set"].map(SETS))
    return report.Section(
        f"{finding.model}: the cost of k = {finding.k} heads (RQ1 to RQ5)",
        "locos uses the OV circuit and the contrast, dla the OV circuit alone (over all positions), attention_spatial the "
        "contrast alone, attention_mass neither, and the variants without sink leave the first position out. Attention sums to "
        "one in each row, so attention_spatial orders heads exactly as attention_mass does: the contrast only matters together "
        "with the OV circuit. Random heads are drawn from all heads, uniformly or as many per layer as LOCOS's.",
        figures=[
            report.Figure(plots.drop_bars(bars(rows, rows["task"], names, "drop"), title="Cost", unit="nats per token"))
        ],
        tables=[table(rows, "Headline", "value", "drop")],
    )


def _ablation(finding: LocosFinding) -> report.Section:
    curve, judged = finding.curve, "rougeL" in finding.curve.metrics
    return folded(
        f"{finding.model}: ablation compared with baselines and controls (RQ1, RQ3)",
        'Sets marked "given" are the top k heads that two methods share, or that only one of them has.',
        figures=[report.Figure(plots.ablation_curves(curve, "rougeL"), "ROUGE-L of the generated text")]
        if judged
        else [],
        tables=[
            table(curve.frame[curve.frame["metric"] == METRIC], "Ablation", "value", "drop"),
            table(curve.differences(METRIC, lead=LEAD), "Paired differences from LOCOS", "difference"),
        ],
    )


def _texts(finding: LocosFinding) -> report.Section:
    frame, best = finding.frames["texts"], Condition.top(LEAD, finding.k)
    rows = frame[(frame["metric"] == "correct") & (frame["k"] == finding.k)]
    lost = plots.drop_bars(
        bars(rows, rows["task"], rows["method"], "drop"), title="Right answers lost", unit="share of answers"
    )
    shown = frame[frame["metric"].isin(["correct", "exact_match", "token_f1", "rougeL"])]
    texts = report.Texts.from_curve(finding.texts[TASK], best, metric="contains", questions=finding.questions)
    return folded(
        f"{finding.model}: generated answers at k = {finding.k} (RQ1, RQ5)",
        figures=[report.Figure(lost, "Judged by each task's own rule")],
        tables=[table(shown, "Texts", "value", "drop")],
        texts=[texts],
    )


def _agreement(finding: LocosFinding) -> report.Section:
    frames = finding.frames
    curves = {str(name): part for name, part in frames["jaccard"].groupby("method", sort=False)}
    shown = ["method_b", "k_a", "jaccard", "expected_jaccard", "p_value", "layer_matched_jaccard"]
    shown += ["layer_matched_p_value", "rank_biased_overlap", "spearman", "both", "only_a", "only_b"]
    overlaps = frames["overlaps"].assign(method_b=list(curves))[shown]
    stable = frames["stability"].rename(columns={"expected": "by chance", "needed": "trials for .8"})
    return folded(
        f"{finding.model}: do methods find the same heads?",
        figures=[report.Figure(plots.jaccard_curves(curves), "Jaccard index of the top k heads with LOCOS's")],
        tables=[
            table(overlaps, f"LOCOS (a) compared with each other ranking (b), k = {finding.k}"),
            table(
                stable,
                "Would other trials choose the same top k? Jaccard index of random halves of the selection trials",
            ),
            table(frames["spread"], "How concentrated the scores are, and over how many kv groups"),
        ],
    )


def _causal(finding: LocosFinding) -> report.Section:
    figures, tables, recovered = [], [], finding.recovered
    text = f"No head was patched: {finding.cri}. " if isinstance(finding.cri, str) else ""
    if (cri := finding.patched) is not None:
        thirds = finding.frames["thirds"]
        thirds = thirds[thirds["method"] == "cri"]
        pairs = f"CRI: each head patched at the answer rows, {len(cri.trial_ids)} pairs"
        figures = [
            report.Figure(plots.head_map(cri), pairs),
            report.Figure(plots.score_scatter(finding.scores[LEAD], cri, thirds), "LOCOS and CRI"),
        ]
        tables = [
            table(finding.frames["against_cri"], "Which ranking finds the heads that patching finds? Top k of each"),
            table(thirds, "LOCOS and CRI by layer third"),
        ]
    if isinstance(recovered, Recovery):
        figures.append(report.Figure(recovered.plot(), "Recovery: ablated everywhere, patched at the answer rows"))
        tables.append(table(recovered.frame, "Recovery", "recovery"))
        tables.append(table(recovered.differences(), "Recovery compared with each control", "difference"))
        counts = ", ".join(f"{what.replace('_', ' ')} {n}" for what, n in recovered.examples.items())
        text += f"Number of examples for recovery: {counts}."
    elif recovered:
        text += f"Recovery could not be measured: {recovered}."
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
