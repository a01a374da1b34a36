"""What the page of the study of choices shows; its texts are in `page.json`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lens_heads import plots, report
from lens_heads.studies import pages
from lens_heads.studies.pages import Shown, claims_table, counted
from lens_heads.studies.two_needles.claims import kinds, registered
from lens_heads.studies.two_needles.finding import ChoosingFinding, by_meaning
from lens_heads.studies.two_needles.presets import EVERYWHERE, KINDS, LEAD, METRIC, Preset


def page(findings: Sequence[ChoosingFinding], plan: Preset) -> report.Page:
    """The page for all models."""
    calls = plan.described()
    words = {
        "models": ", ".join(each.model for each in findings),
        "select": calls["select"],
        "test": calls["test"],
        "claims": "; ".join(f"{each.model}: {counted(each.claims)}" for each in findings),
        "passages": "; ".join(
            f"{each.model}: {each.passages['both right']} of {each.passages['all']}" for each in findings
        ),
        "control": plan.control or "",
    }
    claims = [claims_table(each.claims, each.model, ("p", "k", "trials")) for each in findings]
    shown = [each for each in findings if each.curves]
    return pages.page(
        __name__,
        Shown(words, {"registered": registered(plan), "claims": claims}),
        [("models", _shown(each)) for each in findings],
        heads=[f"{each.model} {head}" for each in shown for head in each.scores[LEAD].ranking()[:3]],
        verdict=" ".join(each.sentence for each in findings),
        figures=[
            plots.ablation_curves(each.curves[KINDS[0]], METRIC, title=f"{each.model}: the choice without heads")
            for each in shown
        ],
    )


def _shown(each: ChoosingFinding) -> Shown:
    """One model's tables and figures; of a model that does not do the task, what it can do."""
    words: dict[str, Any] = {"each": each, "question": str(each.question)}
    tables: dict[str, Any] = {"ability": each.frames["ability"]}
    if "question" in each.frames:
        tables["prompts"] = each.frames["question"]
    figures: dict[str, Any] = {}
    if each.curves:
        heads = each.frames["heads"]
        words |= {"measured": "", "meaning": by_meaning(heads), "looked": len(heads)}
        tables |= {name: each.frames[name] for name in ("areas", "answer_areas", "heads")}
        figures["kinds"] = [plots.ablation_curves(one, METRIC, title=kind) for kind, one in kinds(each).items()]
        figures["answer"] = plots.ablation_curves(each.curves[KINDS[0]], "logprob", title="The right answer")
        if EVERYWHERE in each.curves:
            everywhere = each.curves[EVERYWHERE].frame
            tables["everywhere"] = everywhere[everywhere["metric"].isin([METRIC, "logprob"])]
    return Shown(words, tables, figures)
