"""What the page of the LOCOS study shows; its texts are in `page.json`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd

from lens_heads import plots, report
from lens_heads.evidence.recovery_results import Recovery
from lens_heads.heads.conditions import Condition
from lens_heads.studies import pages
from lens_heads.studies.asked import meaning
from lens_heads.studies.locos_paper.claims import registered
from lens_heads.studies.locos_paper.finding import LEAD, LocosFinding
from lens_heads.studies.locos_paper.presets import ATTENTION, TASK, Preset
from lens_heads.studies.pages import Shown, bars, claims_table, counted
from lens_heads.studies.presets import beside, described

METRIC = "logprob"
SETS = {"random": "random", "random_like": "random, same layers"}


def page(findings: Sequence[LocosFinding], plan: Preset) -> report.Page:
    """The page for all models."""
    more = ("share", "p", "trials", "would_tell", "sets_would_tell", "measured_on")
    packaged = "packaged" in (plan.select[0], plan.test[0])
    words = {
        "plan": plan,
        "models": ", ".join(each.model for each in findings),
        "select": described(plan.select),
        "test": described(plan.test),
        "claims": "; ".join(f"{each.model}: {counted(each.claims)}" for each in findings),
        "chosen": ", ".join(f"{each.model}: {each.k}, baseline {each.baseline}" for each in findings),
        "control": plan.control or "",
        "packaged": beside(__name__, "page.json")["packaged"] if packaged else "",
    }
    claims = [claims_table(each.claims, f"{each.model}, k = {each.k}", more) for each in findings]
    maps = [
        plots.head_map(scores, title=f"{each.name}: {plots.method_style(method).label}")
        for each in findings
        for method, scores in each.scores.items()
    ]
    maps += [plots.method_agreement(each.scores, title=f"{each.name}: agreement between methods") for each in findings]
    return pages.page(
        __name__,
        Shown(words, {"registered": registered(plan), "claims": claims}, {"maps": maps}),
        [("models", _shown(each, plan)) for each in findings],
        heads=[f"{each.model} {head}" for each in findings for head in each.scores[LEAD].ranking()[:3]],
        verdict=" ".join(map(_sentence, findings)),
        figures=[
            plots.ablation_curves(each.curve, METRIC, title=f"{each.model}: the cost of ablating heads")
            for each in findings
        ],
    )


def _sentence(finding: LocosFinding) -> str:
    """One model's answer: the first claim with its numbers, and how many decoded answers are right before and after."""
    first, texts = finding.claims.iloc[0], finding.texts[TASK]
    before, after = (texts.values(one, "contains") for one in (Condition.none(), Condition.top(LEAD, finding.k)))
    return (
        f"{finding.model}: {first['claim'].lower()}: {first['verdict']} ({first['found']}). Without LOCOS's top "
        f"{finding.k} heads, {after.sum():.0f} of {len(before)} answers are right instead of {before.sum():.0f}. "
        f"{meaning(finding.question)}"
    )


def _shown(each: LocosFinding, plan: Preset) -> Shown:
    """One model's tables and figures; those of stages that the preset skips are missing."""
    frames, curve = each.frames, each.curve
    headline, decoded = frames["headline"], frames["texts"]
    headline = headline[(headline["metric"] == METRIC) & (headline["k"] > 0)]
    sets = headline["method"].where(headline["set"] == "top", headline["set"].map(SETS))
    right = decoded[(decoded["metric"] == "correct") & (decoded["k"] == each.k)]
    jaccard = {str(name): part for name, part in frames["jaccard"].groupby("method", sort=False)}
    columns = ["method_b", "k_a", "jaccard", "expected_jaccard", "p_value", "layer_matched_jaccard"]
    columns += ["layer_matched_p_value", "rank_biased_overlap", "spearman", "both", "only_a", "only_b"]
    words: dict[str, Any] = {"each": each}
    tables = {
        "headline": headline,
        "ablation": curve.frame[curve.frame["metric"] == METRIC],
        "differences": curve.differences(METRIC, lead=LEAD),
        "texts": decoded[decoded["metric"].isin(["correct", "exact_match", "token_f1", "rougeL"])],
        "overlaps": frames["overlaps"].assign(method_b=list(jaccard))[columns],
        "stability": frames["stability"].rename(columns={"expected": "by chance", "needed": "trials for .8"}),
        "spread": frames["spread"],
    }
    figures: dict[str, Any] = {
        "cost": plots.drop_bars(bars(headline, headline["task"], sets, "drop"), title="Cost", unit="nats per token"),
        "lost": plots.drop_bars(
            bars(right, right["task"], right["method"], "drop"), title="Right answers lost", unit="share of answers"
        ),
        "jaccard": plots.jaccard_curves(jaccard),
    }
    if "rougeL" in curve.metrics:
        figures["judged"] = plots.ablation_curves(curve, "rougeL")
    causal = f"No head was patched: {each.cri}. " if isinstance(each.cri, str) else ""
    if (cri := each.patched) is not None:
        thirds = frames["thirds"][frames["thirds"]["method"] == "cri"]
        words["patched"] = len(cri.trial_ids)
        tables |= {"against_cri": frames["against_cri"], "thirds": thirds}
        figures |= {"cri": plots.head_map(cri), "scatter": plots.score_scatter(each.scores[LEAD], cri, thirds)}
    if isinstance(recovered := each.recovered, Recovery):
        counts = ", ".join(f"{what.replace('_', ' ')} {n}" for what, n in recovered.examples.items())
        causal += f"Number of examples for recovery: {counts}."
        figures["recovery"] = recovered.plot()
        tables |= {"recovery": recovered.frame, "beyond": recovered.differences()}
    elif recovered:
        causal += f"Recovery could not be measured: {recovered}."
    if each.cri is not None:
        words["causal"] = causal
    if (literal := each.literal) is not None:
        best = [str(head) for head in each.scores[LEAD].ranking()[: plan.read_heads]]
        tables["share"] = pd.DataFrame(
            [
                {"method": name, "mean literal share of the top k": sum(literal[h] for h in top) / len(top)}
                for name, scores in each.scores.items()
                if name in (LEAD, *ATTENTION) and (top := scores.top(each.k))
            ]
        )
        for name, frame in {"read": "provenance", "read_beyond": "beyond_sink"}.items():
            tables[frame] = frames[frame]
            figures[name] = plots.provenance_bars(frames[frame][frames[frame]["head"].isin(best)])
        figures["literal"] = plots.head_map(literal)
    texts = report.Texts.from_curve(
        each.texts[TASK], Condition.top(LEAD, each.k), metric="contains", questions=each.questions
    )
    return Shown(words, tables, figures, {"texts": texts})
