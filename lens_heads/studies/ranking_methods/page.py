"""What the page of the table of methods shows; its texts are in `page.json`."""

from __future__ import annotations

from lens_heads import plots, report
from lens_heads.heads.conditions import Condition
from lens_heads.studies import pages
from lens_heads.studies.pages import Shown
from lens_heads.studies.ranking_methods.bench import Bench
from lens_heads.studies.ranking_methods.cell import METRIC, Cell
from lens_heads.studies.ranking_methods.presets import Preset
from lens_heads.studies.ranking_methods.recommend import GOALS, recommend

COLUMNS = ("damage", "area", "beyond_random", "share", "specific", "cpr_log", "cpr", "auroc")


def page(bench: Bench, plan: Preset) -> report.Page:
    """The page for everything measured so far."""
    said, many = str(recommend(bench)).splitlines(), len(bench.cells) > 1
    models, tasks = (", ".join(dict.fromkeys(getattr(one, what) for one in bench.cells)) for what in ("model", "task"))
    figure = bench.plot() if many else bench.plot(bench.cells[0].model, bench.cells[0].task)
    # The method whose heads do most damage, which greedy search's need not.
    most = [str(cell.frame.sort_values("damage")["method"].iloc[-1]) for cell in bench.cells]
    whole = Shown({"plan": plan, "models": models, "tasks": tasks}, {"overall": bench.overall} if many else {})
    parts = [("overall", whole), *(("cells", _shown(bench, cell)) for cell in bench.cells)]
    for by, goal in reversed(GOALS.items()):
        lines = str(recommend(bench, by=by)).replace("\n  ", "\n\n").replace("\n", "\n\n")
        parts.insert(0, ("goals", Shown({"goal": goal, "said": lines})))
    return pages.page(
        __name__,
        whole,
        parts,
        heads=[
            f"{name} does most damage on {cell.task} in {cell.model}"
            for name, cell in zip(most, bench.cells, strict=True)
        ],
        verdict=said[-1] if many else " ".join(line.strip() for line in said[1:3]),
        figures=[report.Figure(figure, "Above and to the left is better. Named: no cheaper method does more.")],
    )


def _shown(bench: Bench, cell: Cell) -> Shown:
    rows = bench.frame[(bench.frame["model"] == cell.model) & (bench.frame["task"] == cell.task)]
    shown = ["method", "passes", "seconds"]
    for name in COLUMNS:
        shown += [name, f"{name}_low", f"{name}_high"]
    figures = {"cost": bench.plot(cell.model, cell.task)}
    if (kept := cell.kept) is not None:  # The six methods with the largest area, and random heads.
        areas = {
            name: kept.cpr(name, scale="log").value for name in kept.frame.query("set == 'top'")["method"].unique()
        }
        best = sorted(areas, key=lambda name: -areas[name])[:6]
        chosen = kept.frame[kept.frame["method"].isin([*best, "any"])]
        figures["kept"] = plots.faithfulness_curves(chosen, kept.mlps)
    left_out = "; ".join(f"{name} ({why})" for name, why in cell.left_out.items())
    none = cell.curve.values(Condition.none(), METRIC)
    words = {"cell": cell, "trials": len(none), "base": none.mean()}
    words["left_out"] = f" Left out: {left_out}." if left_out else ""
    return Shown(words, {"methods": rows[[*shown, "cmd", "heads_for_80", "stability"]]}, figures)
