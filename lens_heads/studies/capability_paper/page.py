"""What the page of the study of capabilities shows; its texts are in `page.json`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pandas as pd

from lens_heads import plots, report
from lens_heads.studies import pages
from lens_heads.studies.capability_paper.claims import registered
from lens_heads.studies.capability_paper.finding import CapabilityFinding, TaskMap, beside, depths
from lens_heads.studies.claims import HOLDS, published
from lens_heads.studies.pages import Shown, bars, claims_table, counted
from lens_heads.studies.presets import described


def page(findings: Sequence[CapabilityFinding]) -> report.Page:
    """The page for everything found so far."""
    plan, listed, asked = findings[0].plan, findings[0].plan.capabilities, []
    for name, one in listed.items():
        kin = f", other data {described(one.kin)}" if one.kin else ""
        asked.append(f"{name}: {described(one.test)}{kin}, {one.metric}")
    shares = ", ".join(f"{name}: {one.share:g} times as many" for name, one in listed.items() if one.share != 1)
    words = {
        "plan": plan,
        "models": ", ".join(each.model for each in findings),
        "shares": f" ({shares})" if shares else "",
        "claims": "; ".join(f"{each.model}: {counted(each.claims)}" for each in findings),
        "asked": "; ".join(asked),
        "control": plan.control or "",
        "several": len(findings) + 1,
    }
    models = beside(findings)
    measured = models[models["damage"].notna()]
    tables = {
        "claims": [claims_table(each.claims, f"{each.model}, k = {each.plan.k}", ("p", "trials")) for each in findings],
        "registered": registered(plan),
        "scale": models,
        **({"depths": depths(findings, plan.k)} if len(findings) > 1 else {}),
    }
    figures = {
        "maps": [
            plots.head_map(each.scores[name][0], title=f"{each.name}: {name}") for each in findings for name in each.own
        ],
        "scale": plots.drop_bars(
            bars(measured, measured["capability"], measured["model"], "damage"),
            title=f"The cost of ablating each capability's top {plan.k} heads",
            unit=_unit(one.metric for one in plan.localized.values()),
            axis="damage",
        ),
    }
    return pages.page(
        __name__,
        Shown(words, tables, figures),
        [("models", _shown(each)) for each in findings],
        heads=[
            f"{each.name} {row['head']} ({name})"
            for each in findings
            for name, heads in each.frames["best_heads"].groupby("capability", sort=False)
            for row in heads.head(1).to_dict("records")
        ],
        verdict=" ".join(map(_sentence, findings)),
        figures=[
            plots.generality_map(
                TaskMap(each.frames["everywhere"], each.metrics),
                title=f"{each.name}: the cost of ablating each capability's heads",
            )
            for each in findings
        ],
    )


def _sentence(each: CapabilityFinding) -> str:
    """One model's answer: the capabilities that few heads carry, out of those asked."""
    carries = each.claims[each.claims["id"] == "carries"]
    names = list(carries.loc[carries["verdict"] == HOLDS, "capability"])
    carried = f": {', '.join(names)}" if names else ""
    return f"{each.model}: {each.plan.k} heads demonstrably carry {len(names)} of {len(carries)} capabilities{carried}."


def _unit(metrics: Iterable[str]) -> str:
    """The unit of damage: nats if all metrics are log-probabilities."""
    return "nats" if all(metric.endswith("logprob") for metric in metrics) else "of each task's metric"


def _shown(each: CapabilityFinding) -> Shown:
    frames, unit = each.frames, _unit(each.metrics.values())
    words = {
        "each": each,
        "lost": " ".join(f"{name}: {reason}." for name, reason in each.reasons.items()),
        "universal": each.universal or "Too few capabilities that the model has.",
        "metric": each.metrics[each.plan.compared],
    }
    alone = frames["alone"]
    wide = frames["right_answers"].pivot(index="capability", columns="k", values="value").loc[each.own]
    wide.loc["the paper's GSM8K"] = pd.Series(published(__name__)["gsm8k"]).reindex(wide.columns)
    wide = wide.rename(columns=lambda k: f"{k} heads").rename_axis("capability").reset_index()
    own = alone[alone["own"]].pivot(index="head", columns="task", values="damage").reset_index()
    spread, methods = frames["spread"], frames["methods"]
    labels = [plots.method_style(method).label for method in each.methods]
    parts = {"damage": "own capability", "others": "mean of the others"}
    compared = pd.concat([bars(methods, labels, label, part) for part, label in parts.items()])
    figures = {
        "spread": plots.drop_bars(
            bars(spread, spread["heads"], spread["on"], "damage"),
            title="Damage by kind of task",
            unit=unit,
            axis="damage",
        ),
        "curves": plots.task_curves(
            frames["curves"], title="Every capability's own curve", unit=_unit(each.metrics[name] for name in each.own)
        ),
        "methods": plots.drop_bars(
            compared, title="The cost of ablating each method's heads", unit=unit, axis="damage"
        ),
    }
    return Shown(words, {**frames, "one_by_one": own, "right_by_k": wide}, figures)
