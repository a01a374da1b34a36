"""The study as one page: claims, then two models beside each other, then each model's own part."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd

from lens_heads import plots, report
from lens_heads.studies.fragile_paper.finding import ALL, FragileFinding, Pair
from lens_heads.studies.fragile_paper.presets import Preset
from lens_heads.studies.verdicts import counted

INTERVAL = {"value": ("low", "high")}


def page(findings: Sequence[FragileFinding], found: Sequence[Pair], plan: Preset) -> report.Page:
    """The page of what there is so far."""
    table = pd.concat([each.frames["claims"] for each in [*findings, *found]], ignore_index=True)
    sections = [
        report.Section(
            "The study's claims",
            "Heads that do harm everywhere say little about transfer where random ones do too; a correlation of few tasks "
            "says little without its permutation p and its noise ceiling.",
            tables=[report.Table(table, intervals=INTERVAL)],
        )
    ]
    sections += [section for each in found for section in _pair(each)]
    sections += [section for each in findings for section in _model(each, plan)]
    shown = [each.correlations[name] for each in found for name in list(each.correlations)[:1]]
    summary = report.Summary(
        model=", ".join(each.model for each in findings),
        trials=f"{_written(plan.documents)} to detect heads; {_written(plan.trials)}, of other companies, to ablate them",
        heads=[f"{each.model} {head}" for each in findings for head in each.scores[plan.lead][ALL].top(3)],
        verdict=f"Of {len(table)} claims: {counted(list(table['verdict']))}.",
        figures=[*(one.plot() for one in shown), *(each.matrix.plot(title=each.model) for each in findings)],
        facts={
            "k": "of 1,024 heads, as the study has it; every model loses the same share: "
            + "; ".join(f"{each.model} {', '.join(map(str, each.sizes))}" for each in findings),
            "Metric": plots.METRIC_LABELS.get(plan.metric, plan.metric),
            "Ablation": f"{plan.kind}, at all positions",
            "Intervals": "95 % bootstrap over items (and draws of random heads), each task on its own, widened for few items; "
            "that a company is asked about in several tasks is not accounted for. Noise ceilings take items for independent",
            "Random heads": "outside every task's best heads while there are enough",
        },
    )
    return report.Page("Different heads, same fragile tasks?", summary, sections)


def _written(arguments: dict[str, Any]) -> str:
    """What a preset asks of a task, as one would write it."""
    source = {} if "path" in arguments else {"source": "packaged"}
    return f"sec10k({', '.join(f'{name}={value}' for name, value in {**source, **arguments}.items())})"


def _pair(each: Pair) -> list[report.Section]:
    names = " and ".join(each.names)
    shown = [name for name in each.correlations if name.endswith((": fragility", ": disruptivity"))]
    scatters = [report.Figure(each.correlations[name].plot(), name) for name in shown]
    lost = " ".join(f"{label}: {reason}." for label, reason in each.reasons.items())
    best = each.match.pairs.sort_values("distance").head(16)
    return [
        report.Section(
            f"{names}: do the same tasks break?",
            f"Not computed: {lost}" if lost else "",
            figures=scatters,
            tables=[
                report.Table(each.frames["correlations"], "R² over tasks and k", 3, intervals={"r2": ("low", "high")})
            ],
        ),
        report.Section(
            f"{names}: which head is which?",
            f"{each.match!r}. Stability: share of resamples that choose the same partner.",
            figures=[report.Figure(each.match.plot(best["head_a"].tolist()), "The sixteen nearest pairs")],
            tables=[
                report.Table(best, "The sixteen nearest pairs"),
                report.Table(each.frames["depth"], "Do the best heads of a task sit equally deep?"),
            ],
        ),
        report.Section(
            f"{names}: do corresponding heads do the same?",
            f"{each.validation!r}. Partners are those of a match without scores ({each.blind!r}): matched by scores, the "
            "partners of good heads would be good heads anyway.",
            figures=[each.validation.plot()],
            tables=[
                report.Table(each.validation.correlation, "Correlation of the drops over tasks"),
                report.Table(each.validation.frame, "Drops", intervals={"drop": ("low", "high")}),
            ],
        ),
    ]


def _model(each: FragileFinding, plan: Preset) -> list[report.Section]:
    table = each.frames["statistics"]
    means = table[(table["task"] == "mean") & ~table["relative"]].drop(columns=["task", "relative"])
    of_tasks = table["statistic"].isin(["fragility", "beyond_random"]) & (table["task"] != "mean")
    fragile = table[of_tasks & ~table["relative"] & (table["metric"] == each.matrix.metric)]
    best = each.frames["best_heads"]
    best = best[(best["method"] == plan.lead) & (best["task"] == ALL)].drop(columns=["method", "task"])
    return [
        report.Section(
            f"{each.model}: detection",
            f"Rule of {plan.lead}: {each.scores[plan.lead][ALL].meta.get('rule', 'none')}.",
            figures=[
                report.Figure(plots.head_map(each.scores[plan.lead][ALL], plan.lead), "All tasks"),
                plots.method_agreement({method: by_task[ALL] for method, by_task in each.scores.items()}),
            ],
            tables=[
                report.Table(best, f"The best heads of {plan.lead}", intervals={"score": ("low", "high")}),
                report.Table(each.frames["shared_heads"], "Heads that two tasks share, against chance"),
            ],
            side_by_side=True,
            folded=True,
        ),
        report.Section(
            f"{each.model}: transfer between tasks",
            figures=[each.matrix.plot(k) for k in each.matrix.ks],
            tables=[
                report.Table(means, "Means over tasks", intervals=INTERVAL),
                report.Table(fragile.drop(columns="relative"), "Fragility", intervals=INTERVAL),
            ],
            side_by_side=True,
            folded=True,
        ),
        _recovery(each),
    ]


def _recovery(each: FragileFinding) -> report.Section:
    frame = each.frames["recovery"]
    if frame.empty:
        return report.Section(f"{each.model}: recovery", "No task has a trial that its own heads break.")
    bars = pd.DataFrame(
        {
            "group": frame["task"],
            "name": [
                f"{name}, ablated too" if fair else name for name, fair in zip(frame["set"], frame["fair"], strict=True)
            ],
            "value": frame["recovery"],
            "low": frame["low"],
            "high": frame["high"],
        }
    ).dropna(subset="value")
    return report.Section(
        f"{each.model}: recovery",
        "A task's own heads are ablated everywhere and given back at the answer rows, on trials that ablating them broke. "
        "Of a control that was itself ablated, where that cost nothing in sum there is no share.",
        figures=[plots.drop_bars(bars, "What giving heads back mends", unit="", axis="recovery, share of the cost")],
        tables=[report.Table(frame, "Recovery", intervals={"recovery": ("low", "high")})],
    )
