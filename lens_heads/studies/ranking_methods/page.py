"""The page of the table of methods: what to use, quality against cost, then every model and task."""

from __future__ import annotations

from collections.abc import Mapping

import plotly.graph_objects as go

from lens_heads import plots, report
from lens_heads.evidence.faithfulness_results import FaithfulnessCurve
from lens_heads.heads.conditions import Condition
from lens_heads.studies.pages import folded, table
from lens_heads.studies.ranking_methods.bench import Bench
from lens_heads.studies.ranking_methods.cell import METRIC, Cell
from lens_heads.studies.ranking_methods.presets import Preset
from lens_heads.studies.ranking_methods.recommend import GOALS, recommend

COLUMNS = ("damage", "area", "beyond_random", "share", "specific", "cpr_log", "cpr", "auroc")
ABOUT = (
    "Passes are the work of forward and backward passes, relative to one plain pass over the selection trials. Damage is what "
    "ablating the top k heads takes from the answer's log-probability, in nats per token, on trials that no method saw; its "
    "area is the mean over log k. Shares are of the damage of greedy search, or, where it did not run, of the method that "
    "does most on these very trials. Greedy search's own share is 1 by definition, and another method may exceed it. The "
    "retrieval task is the packaged trials, which do not need their question. `best_in_turn` was made on ioi and induction in "
    "gemma-3-270m and smollm2-135m-instruct: its rows there are no test. Specific damage is that beyond another task's. CPR "
    "is the area under faithfulness: what is left of a behaviour when only the top heads are kept (heads only; MLPs run "
    "freely). Stability is the Jaccard of the top k heads of two halves of the trials. AUROC is on small models whose heads "
    "are known."
)


def page(bench: Bench, plan: Preset) -> report.Page:
    """The page for everything measured so far."""
    said = str(recommend(bench))
    models, tasks = ({getattr(one, what): None for one in bench.cells} for what in ("model", "task"))
    many = len(bench.cells) > 1
    figure = bench.plot() if many else bench.plot(bench.cells[0].model, bench.cells[0].task)
    summary = report.Summary(
        model=", ".join(models),
        trials=f"{plan.select} to rank heads, {plan.calibrate} for means, {plan.test} to ablate them on, per task",
        heads=[f"{_most(one)} does most damage on {one.task} in {one.model}" for one in bench.cells],
        verdict=said.splitlines()[-1] if many else " ".join(line.strip() for line in said.splitlines()[1:3]),
        facts={
            "Tasks": ", ".join(tasks),
            "Random heads": f"{plan.draws} sets on the first {plan.few} trials",
            "Ablation": "mean, at all positions",
            "Intervals": "95 %, over trials, in whole groups, crossed with draws of random heads",
        },
        figures=[report.Figure(figure, "Above and to the left is better. Named: no cheaper method does more.")],
    )
    words = [
        report.Section(f"{goal.title}: which method for which budget", _paragraphs(str(recommend(bench, by=by))))
        for by, goal in GOALS.items()
    ]
    means = "Mean over cells; no interval, since models and tasks are not independent"
    over = [folded("Over all models and tasks", tables=[table(bench.overall, means)])] if many else []
    sections = [*words, *over, *(_section(bench, cell) for cell in bench.cells)]
    return report.Page("Which method finds the heads that matter?", summary, sections)


def _most(cell: Cell) -> str:
    """The method whose heads do most damage, which greedy search's need not."""
    return str(cell.frame.sort_values("damage")["method"].iloc[-1])


def _paragraphs(lines: str) -> str:
    return lines.replace("\n  ", "\n\n").replace("\n", "\n\n")


def _section(bench: Bench, cell: Cell) -> report.Section:
    rows = bench.frame[(bench.frame["model"] == cell.model) & (bench.frame["task"] == cell.task)]
    shown = ["method", "passes", "seconds"]
    for name in COLUMNS:
        shown += [name, f"{name}_low", f"{name}_high"]
    shown += ["cmd", "heads_for_80", "stability"]
    figures = [report.Figure(bench.plot(cell.model, cell.task), "Quality against cost.")]
    if cell.kept is not None:
        figures.append(report.Figure(_kept(cell.kept), "What the heads that are kept still do."))
    left = f" Left out: {_listed(cell.left_out)}." if cell.left_out else ""
    none = cell.curve.values(Condition.none(), METRIC)
    caption = (
        f"k = {cell.k}; shares are of {cell.best}; {len(none)} test trials, whose answers have a log-probability of "
        f"{none.mean():.2f} nats per token"
    )
    whole = table(rows[shown], caption, *COLUMNS, formats={"passes": ".1f", "seconds": ".1f"})
    return report.Section(f"{cell.model}: {cell.task}", ABOUT + left, figures=figures, tables=[whole])


def _kept(kept: FaithfulnessCurve) -> go.Figure:
    """Faithfulness of the six methods with the largest area, and of random heads."""
    areas = {name: kept.cpr(name, scale="log").value for name in kept.frame.query("set == 'top'")["method"].unique()}
    best = sorted(areas, key=lambda name: -areas[name])[:6]
    return plots.faithfulness_curves(kept.frame[kept.frame["method"].isin([*best, "any"])], kept.meta["mlps"])


def _listed(reasons: Mapping[str, str]) -> str:
    return "; ".join(f"{name} ({why})" for name, why in reasons.items())
