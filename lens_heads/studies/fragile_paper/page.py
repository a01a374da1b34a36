"""What the page of the study of fragile tasks shows; its texts are in `page.json`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd

from lens_heads import plots, report
from lens_heads.evidence.correlation_results import Correlation
from lens_heads.studies import pages
from lens_heads.studies.asked import meaning
from lens_heads.studies.fragile_paper.finding import ALL, FragileFinding, Pair
from lens_heads.studies.fragile_paper.presets import METRIC, Preset
from lens_heads.studies.fragile_paper.sources import OTHERS
from lens_heads.studies.fragile_paper.stages import JUDGED
from lens_heads.studies.pages import Shown, bars, claims_table, counted, table
from lens_heads.studies.presets import described


def page(findings: Sequence[FragileFinding], found: Sequence[Pair], plan: Preset) -> report.Page:
    """The page for everything found so far."""
    claims = pd.concat([each.claims for each in [*findings, *found]], ignore_index=True)
    words = {
        "question": " ".join(f"{each.model}: {meaning(each.question)}" for each in findings),
        **plan.words(),
        "plan": plan,
        "models": ", ".join(each.model for each in findings),
        "documents": _call(plan.documents),
        "trials": _call(plan.trials),
        "claims": counted(claims),
        "sizes": "; ".join(f"{each.model}: {', '.join(map(str, each.sizes))}" for each in findings),
        "metric": plots.METRIC_LABELS[METRIC],
        "right": plots.METRIC_LABELS[plan.right],
    }
    shown = [one for each in found for one in list(_judged(each).values())[:1]]
    more = ("models", "metric", "k", "n", "p", "would_tell")
    return pages.page(
        __name__,
        Shown(words, {"claims": claims_table(claims, more=more)}),
        [*(("pairs", _of_pair(each)) for each in found), *(("models", _of_model(each, plan)) for each in findings)],
        heads=[f"{each.model} {head}" for each in findings for head in each.scores[plan.lead][ALL].ranking()[:3]],
        verdict=" ".join(map(_answer, found) if found else map(_harm, findings)),
        figures=[*(one.plot() for one in shown), *(each.matrix.plot(title=each.model) for each in findings)],
    )


def _call(arguments: dict[str, Any]) -> str:
    """What a preset asks of the task, in short."""
    return described(("sec10k", {**({} if "path" in arguments else {"source": "packaged"}), **arguments}))


def _judged(each: Pair) -> dict[str, Correlation]:
    """The correlations that claims are about, as far as they could be computed."""
    return {name: each.correlations[f"{METRIC}: {name}"] for name in JUDGED if f"{METRIC}: {name}" in each.correlations}


def _answer(each: Pair) -> str:
    """The answer for two models: whether they share fragile tasks, and tasks with disruptive heads."""
    shown = [
        f"{name}: {one.verdict()} (r = {one.within.r:.2f} inside answer formats, p = {one.within.p:.2g})"
        for name, one in _judged(each).items()
        if one.within is not None
    ]
    return f"{' and '.join(each.names)}: {'; '.join(shown) or 'no correlation could be computed'}."


def _harm(each: FragileFinding) -> str:
    """The answer for a single model: how much other tasks' heads cost a task, beyond random heads."""
    found = each.frames["sources"]
    (row,) = found[(found["source"] == OTHERS) & (found["task"] == ALL)].to_dict("records")
    beyond = f"{row['beyond']:.2f} [{row['beyond_low']:.2f}, {row['beyond_high']:.2f}] beyond random heads"
    return f"{each.model}: heads of other tasks cost {row['drop']:.2f} nats per answer token, {beyond}."


def _of_pair(each: Pair) -> Shown:
    lost = " ".join(f"{label}: {reason}." for label, reason in each.reasons.items())
    words = {"names": " and ".join(each.names), "lost": f"Not computed: {lost}" if lost else ""}
    best = each.match.pairs.sort_values("distance").head(16)
    quality = pd.DataFrame([{"match": name, **row} for name, row in each.notes()["match"].items()])
    quality.columns = [
        str(name).replace("chance", "to heads at the same depth").replace("mean_", "mean ") for name in quality
    ]
    return Shown(
        words,
        {**each.frames, "quality": quality, "closest": best},
        {
            "scatters": [report.Figure(one.plot(), name) for name, one in _judged(each).items()],
            "match": each.match.plot(best["head_a"].tolist()),
            "validation": each.validation.plot(),
        },
    )


def _of_model(each: FragileFinding, plan: Preset) -> Shown:
    frames, lead = each.frames, each.scores[plan.lead][ALL]
    drops, found = frames["statistics"], frames["sources"]
    of_tasks = drops["statistic"].isin(["fragility", "beyond_random"]) & (drops["task"] != ALL)
    kept = [name for name in ("drop", "beyond", "beyond_layers") if found[name].notna().any()]
    columns = ["source", *(f"{name}{end}" for name in kept for end in ("", "_low", "_high")), "p"]
    best = frames["best_heads"].query("method == @plan.lead and task == @ALL").drop(columns=["method", "task"])
    tables = {
        **{name: frames[name] for name in ("shared_heads", "related", "tasks")},
        "best": best,
        "whole": table(
            found[found["task"] == ALL][columns],
            "What each source costs the trials of all tasks, nats per answer token",
            *kept,
        ),
        "by_task": found[found["task"] != ALL].pivot(index="source", columns="task", values="drop").reset_index(),
        "means": drops[drops["task"] == ALL].drop(columns="task"),
        "fragile": drops[of_tasks & (drops["metric"] == METRIC)],
    }
    figures = {
        "map": plots.head_map(lead, title=plan.lead),
        "agreement": plots.method_agreement({method: by_task[ALL] for method, by_task in each.scores.items()}),
        "matrices": [each.matrix.plot(k) for k in each.matrix.ks],
    }
    if not (recovery := frames["recovery"]).empty:
        tables |= {name: frames[name] for name in ("recovery", "recovery_differences")}
        whole = recovery[recovery["task"] == ALL]
        names = whole["set"] + whole["fair"].map({True: ", ablated too", False: ""})
        rows = bars(whole, "k = " + whole["k"].astype(str), names, "recovery").dropna(subset="value")
        if not rows.empty:
            title, axis = "Recovery by restoring heads", "recovery, share of the cost"
            figures["recovered"] = plots.drop_bars(rows, title=title, unit="", axis=axis)
    return Shown({"each": each, "plan": plan, "rule": lead.meta.get("rule", "none")}, tables, figures)
