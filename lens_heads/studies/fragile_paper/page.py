"""The page of the study of fragile tasks: the answer, the claims, then each pair of models, then each model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd

from lens_heads import plots, report
from lens_heads.studies.calls import described
from lens_heads.studies.fragile_paper.finding import ALL, FragileFinding, Pair
from lens_heads.studies.fragile_paper.presets import Preset
from lens_heads.studies.pages import bars, claims_table, counted, folded, table


def page(findings: Sequence[FragileFinding], found: Sequence[Pair], plan: Preset) -> report.Page:
    """The page for everything found so far."""
    claims = pd.concat([each.claims for each in [*findings, *found]], ignore_index=True)
    sections = [
        report.Section(
            "The study's claims",
            "Damage says little about transfer if random heads do as much. A correlation over few tasks says little without its "
            "permutation p-value and noise ceiling.",
            tables=[claims_table(claims, more=("models", "metric", "p"))],
        )
    ]
    sections += [section for each in found for section in _pair(each)]
    sections += [section for each in findings for section in _model(each, plan)]
    sizes = "; ".join(f"{each.model}: {', '.join(map(str, each.sizes))}" for each in findings)
    shown = [each.correlations[name] for each in found for name in list(each.correlations)[:1]]
    summary = report.Summary(
        model=", ".join(each.model for each in findings),
        trials=f"{_call(plan.documents)} to detect heads; {_call(plan.trials)}, of other companies, to ablate them",
        heads=[f"{each.model} {head}" for each in findings for head in each.scores[plan.lead][ALL].ranking()[:3]],
        verdict=" ".join(map(_answer, found) if found else map(_harm, findings)),
        figures=[*(one.plot() for one in shown), *(each.matrix.plot(title=each.model) for each in findings)],
        facts={
            "Claims": counted(claims),
            "k": f"out of 1,024 heads, as in the paper; every model loses the same share of its heads: {sizes}",
            "Metric": plots.METRIC_LABELS.get(plan.metric, plan.metric),
            "Ablation": f"{plan.kind}, at all positions",
            "Intervals": "95 % bootstrap over items (and draws of random heads) of each task, widened for few items. "
            "They ignore that several tasks ask about the same company; noise ceilings treat items as independent",
            "Random heads": "from outside every task's top heads, as long as there are enough",
        },
    )
    return report.Page("Different heads, same fragile tasks?", summary, sections)


def _answer(each: Pair) -> str:
    """The answer for two models: whether they share fragile tasks, and tasks with disruptive heads."""
    a, b = each.names
    shown = [
        f"{one.statistic} correlates with R² = {one.r2:.2f} (p = {one.p:.2g})"
        for name in ("fragility", "disruptivity")
        for one in [one for label, one in each.correlations.items() if label.endswith(f": {name}")][:1]
    ]
    return f"{a} and {b}: {' and '.join(shown) or 'no correlation could be computed'}."


def _harm(each: FragileFinding) -> str:
    """The answer for a single model: how much the heads of one task cost the others."""
    means = each.frames["statistics"].query("task == 'mean' and not relative and metric == @each.matrix.metric")
    means = means[means["k"] == means["k"].max()].set_index("statistic")["value"]
    label = plots.METRIC_LABELS.get(each.matrix.metric, each.matrix.metric)
    beyond = f"; beyond random heads, {means['beyond_random']:.2f}" if "beyond_random" in means else ""
    return f"{each.model}: heads of one task cost the others {means['disruptivity']:.2f} in {label}{beyond}."


def _call(arguments: dict[str, Any]) -> str:
    """What a preset asks of the task, in short."""
    return described(("sec10k", {**({} if "path" in arguments else {"source": "packaged"}), **arguments}))


def _pair(each: Pair) -> list[report.Section]:
    names = " and ".join(each.names)
    scatters = [
        report.Figure(one.plot(), name)
        for name, one in each.correlations.items()
        if name.endswith((": fragility", ": disruptivity"))
    ]
    lost = " ".join(f"{label}: {reason}." for label, reason in each.reasons.items())
    best = each.match.pairs.sort_values("distance").head(16)
    return [
        folded(
            f"{names}: do the same tasks break?",
            f"Not computed: {lost}" if lost else "",
            figures=scatters,
            tables=[table(each.frames["correlations"], "R² over tasks and k", "r2")],
            side_by_side=True,
        ),
        folded(
            f"{names}: which heads correspond?",
            "Stability is the share of resamples that choose the same partner.",
            figures=[report.Figure(each.match.plot(best["head_a"].tolist()), "The 16 closest pairs")],
            tables=[
                table(_matches(each), "Quality of the match"),
                table(best, "The 16 closest pairs"),
                table(each.frames["depth"], "Do the top heads of a task sit at the same depth?"),
            ],
        ),
        folded(
            f"{names}: do corresponding heads do the same?",
            "Partners come from the match without scores. Matched by scores, the partners of good heads would be good heads "
            "anyway.",
            figures=[each.validation.plot()],
            tables=[
                table(each.validation.correlation, "Correlation of the drops over tasks"),
                table(each.validation.frame, "Drops", "drop"),
            ],
        ),
    ]


def _matches(each: Pair) -> pd.DataFrame:
    """How well heads match, compared with heads at the same depth."""
    matches = pd.DataFrame([{"match": name, **row} for name, row in each.notes()["match"].items()])
    return matches.rename(
        columns=lambda name: name.replace("chance", "to heads at the same depth").replace("mean_", "mean ")
    )


def _model(each: FragileFinding, plan: Preset) -> list[report.Section]:
    lead, drops = each.scores[plan.lead][ALL], each.frames["statistics"].query("not relative").drop(columns="relative")
    means = drops[drops["task"] == "mean"].drop(columns="task")
    of_tasks = drops["statistic"].isin(["fragility", "beyond_random"]) & (drops["task"] != "mean")
    fragile = drops[of_tasks & (drops["metric"] == each.matrix.metric)]
    best = each.frames["best_heads"].query("method == @plan.lead and task == @ALL").drop(columns=["method", "task"])
    return [
        folded(
            f"{each.model}: detection",
            f"Rule of {plan.lead}: {lead.meta.get('rule', 'none')}.",
            figures=[
                report.Figure(plots.head_map(lead, plan.lead), "All tasks"),
                plots.method_agreement({method: by_task[ALL] for method, by_task in each.scores.items()}),
            ],
            tables=[
                table(best, f"Top heads of {plan.lead}", "score"),
                table(each.frames["shared_heads"], "Heads that two tasks share, compared with chance"),
            ],
            side_by_side=True,
        ),
        folded(
            f"{each.model}: transfer between tasks",
            figures=[each.matrix.plot(k) for k in each.matrix.ks],
            tables=[table(means, "Means over tasks", "value"), table(fragile, "Fragility", "value")],
            side_by_side=True,
        ),
        _recovery(each),
    ]


def _recovery(each: FragileFinding) -> report.Section:
    frame = each.frames["recovery"]
    if frame.empty:
        return report.Section(f"{each.model}: recovery", "No task has a trial that ablating its own heads breaks.")
    names = frame["set"] + frame["fair"].map({True: ", ablated too", False: ""})
    recovered = bars(frame, frame["task"], names, "recovery").dropna(subset="value")
    return folded(
        f"{each.model}: recovery",
        "A task's own heads are ablated everywhere and restored at the answer rows, on trials that ablating them broke. A "
        "control that was itself ablated has no recovery if ablating it cost nothing.",
        figures=[
            plots.drop_bars(recovered, "Recovery by restoring heads", unit="", axis="recovery, share of the cost")
        ],
        tables=[table(frame, "Recovery", "recovery")],
    )
