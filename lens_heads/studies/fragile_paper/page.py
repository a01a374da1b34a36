"""The page of the study of fragile tasks: the answer, the claims, then each pair of models, then each model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd

from lens_heads import plots, report
from lens_heads.evidence.correlation_results import Correlation
from lens_heads.studies.fragile_paper.finding import ALL, FragileFinding, Pair
from lens_heads.studies.fragile_paper.pairs import JUDGED
from lens_heads.studies.fragile_paper.presets import METRIC, Preset
from lens_heads.studies.fragile_paper.sources import OTHERS
from lens_heads.studies.pages import bars, claims_table, counted, folded, table
from lens_heads.studies.presets import described


def page(findings: Sequence[FragileFinding], found: Sequence[Pair], plan: Preset) -> report.Page:
    """The page for everything found so far."""
    claims = pd.concat([each.claims for each in [*findings, *found]], ignore_index=True)
    sections = [
        report.Section(
            "The study's claims",
            "Claims, thresholds, k and n were written down before the run. Damage says little about transfer if random heads do "
            "as much, and a correlation over few tasks little unless tasks with one answer format differ alike. Where a claim "
            "cannot be told, the trials that would have told, if the numbers seen are the true ones, stand beside it, and with "
            "what was found the random sets that belong to them. All p are one-sided. A margin near what the tasks' own heads "
            "cost excludes nothing: that own and other heads cost the same says little where own heads cost little.",
            tables=[claims_table(claims, more=("models", "metric", "k", "n", "p", "would_tell"))],
        )
    ]
    sections += [section for each in found for section in _pair(each)]
    sections += [section for each in findings for section in _model(each, plan)]
    sizes = "; ".join(f"{each.model}: {', '.join(map(str, each.sizes))}" for each in findings)
    shown = [one for each in found for one in list(_judged(each).values())[:1]]
    summary = report.Summary(
        model=", ".join(each.model for each in findings),
        trials=f"{_call(plan.documents)} to detect heads; {_call(plan.trials)}, of other companies, to ablate them",
        heads=[f"{each.model} {head}" for each in findings for head in each.scores[plan.lead][ALL].ranking()[:3]],
        verdict=" ".join(map(_answer, found) if found else map(_harm, findings)),
        figures=[*(one.plot() for one in shown), *(each.matrix.plot(title=each.model) for each in findings)],
        facts={
            "Claims": counted(claims),
            "k": f"{plan.words()['ks']}; claims are judged at {plan.words()['headline']}. Heads in every model: {sizes}",
            "Metric": f"{plots.METRIC_LABELS[METRIC]}; beside it: {plots.METRIC_LABELS[plan.right]}",
            "Ablation": f"{plan.kind}, at all positions",
            "Intervals": "95 %, over trials (by company) and draws of random heads; none below five trials. They ignore that "
            "several tasks ask about the same company",
            "Random heads": f"drawn from all heads: {plan.random_draws} sets at every k, {plan.random_sets} sets for claims",
        },
    )
    return report.Page("Different heads, same fragile tasks?", summary, sections)


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


def _call(arguments: dict[str, Any]) -> str:
    """What a preset asks of the task, in short."""
    return described(("sec10k", {**({} if "path" in arguments else {"source": "packaged"}), **arguments}))


def _pair(each: Pair) -> list[report.Section]:
    names = " and ".join(each.names)
    scatters = [report.Figure(one.plot(), name) for name, one in _judged(each).items()]
    lost = " ".join(f"{label}: {reason}." for label, reason in each.reasons.items())
    best = each.match.pairs.sort_values("distance").head(16)
    return [
        folded(
            f"{names}: do the same tasks break?",
            "Tasks with one answer format are alike in every model; inside formats that does not count. Heads drawn at random "
            "show how much agreement needs no task's own heads. " + (f"Not computed: {lost}" if lost else ""),
            figures=scatters,
            tables=[table(each.frames["correlations"], "Correlations over tasks and k", "r2")],
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
    lead, drops = each.scores[plan.lead][ALL], each.frames["statistics"]
    means = drops[drops["task"] == ALL].drop(columns="task")
    of_tasks = drops["statistic"].isin(["fragility", "beyond_random"]) & (drops["task"] != ALL)
    fragile = drops[of_tasks & (drops["metric"] == METRIC)]
    found = each.frames["sources"]
    by_task = found[found["task"] != ALL].pivot(index="source", columns="task", values="drop").reset_index()
    kept = [name for name in ("drop", "beyond", "beyond_layers") if found[name].notna().any()]
    whole = found[found["task"] == ALL][
        ["source", *(f"{name}{end}" for name in kept for end in ("", "_low", "_high")), "p"]
    ]
    best = each.frames["best_heads"].query("method == @plan.lead and task == @ALL").drop(columns=["method", "task"])
    return [
        folded(
            f"{each.model}: detection",
            f"Rule of {plan.lead}: {lead.meta.get('rule', 'none')}.",
            figures=[
                report.Figure(plots.head_map(lead, title=plan.lead), "All tasks"),
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
            "Sources are the heads of tasks, of the ranking pooled over tasks, and of another method's. Random heads are drawn "
            "from all heads.",
            figures=[each.matrix.plot(k) for k in each.matrix.ks],
            tables=[
                table(whole, "What each source costs the trials of all tasks, nats per answer token", *kept),
                table(by_task, "What each source costs each task"),
                table(each.frames["related"], "What related tasks' heads cost beyond unrelated ones'", "value"),
                table(means, "Means over tasks", "value"),
                table(fragile, "Fragility", "value"),
                table(each.frames["tasks"], "The tasks"),
            ],
            side_by_side=True,
        ),
        _recovery(each),
    ]


def _recovery(each: FragileFinding) -> report.Section:
    frame = each.frames["recovery"]
    if frame.empty:
        return report.Section(f"{each.model}: recovery", "No task has a trial that ablating its own heads breaks.")
    whole = frame[frame["task"] == ALL]
    names = whole["set"] + whole["fair"].map({True: ", ablated too", False: ""})
    recovered = bars(whole, "k = " + whole["k"].astype(str), names, "recovery").dropna(subset="value")
    title, axis = "Recovery by restoring heads", "recovery, share of the cost"
    figures = [] if recovered.empty else [plots.drop_bars(recovered, title=title, unit="", axis=axis)]
    return folded(
        f"{each.model}: recovery",
        "A task's own heads are ablated everywhere and restored at the answer rows. Random heads that were not ablated have "
        "little to restore; one that was itself ablated has no recovery if that cost nothing.",
        figures=figures,
        tables=[
            table(each.frames["recovery_differences"], "Beyond random heads", "difference"),
            table(frame, "Recovery", "recovery"),
        ],
    )
