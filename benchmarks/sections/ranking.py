"""The table of methods: which ranking finds the heads that matter, at what cost, and do rankings made of others do better?"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import TypeAlias

from scipy.stats import spearmanr

from .reading import Results, Row, described, measured_by, only, short
from .writing import NOTHING, few, num, percent, span, table

Cell: TypeAlias = tuple[str, str]
Cells: TypeAlias = dict[Cell, Row]
"""Models and tasks, and what was measured there."""

CHEAP, MARK = 15, 0.9
"""What a ranking made of others should reach: this share of greedy search's damage, for at most so many passes."""
APART = 0.1
"""Nats of area by which a row in bfloat16 counts as different from that in float32."""
ORDER = ("ioi", "induction", "capitals", "arithmetic", "retrieval")
MADE_ON = [(model, task) for model in ("gemma-3-270m", "smollm2-135m-instruct") for task in ("ioi", "induction")]
"""The cells that the rankings made of others were made on."""


def ranking_methods(results: Results) -> str:
    cells = {(one["model"], one["task"]): one for one in (run["results"] for run in results.runs("methods"))}
    cells = dict(sorted(cells.items(), key=lambda item: (item[0][0], ORDER.index(item[0][1]))))
    models = list(dict.fromkeys(model for model, _ in cells))
    parts = [
        described("methods"),
        described("candidates"),
        measured_by(
            "python benchmarks/methods.py", results.runs("methods"), "methods.jsonl", "methods_overall.json", "methods"
        ),
        _sizes(list(cells.values())),
        _dtypes(cells, results.latest("methods_bfloat16")["results"]),
        _overall(results.study("methods_overall"), cells),
    ]
    for model in models:
        here = {task: one for (name, task), one in cells.items() if name == model}
        parts += [f"### {short(model)}: damage at k", _damage(here), _left_out(here), _advice(here)]
    return "\n\n".join([*parts, "### Rankings made of others", _made_of_others(cells)])


def _sizes(cells: list[Row]) -> str:
    size = cells[0]["preset"]
    return (
        f"{size['select']} selection trials, {size['calibrate']} more for the means of mean ablation, {size['test']} test trials "
        f"({size['pairs']} of them for faithfulness), {size['draws']} sets of random heads, {size['masks']} masks, "
        f"{size['planted']} models with planted heads. One pass is a plain forward over the selection trials; a pass with "
        "gradients counts as three."
    )


def _dtypes(cells: Cells, again: Row) -> str:
    """Which cells were run in bfloat16, and what one that was run in both says of the difference."""
    coarse = [
        f"{short(model)} {task}"
        for (model, task), one in cells.items()
        if one["settings"]["dtype"].endswith("bfloat16")
    ]
    fine = {row["method"]: row for row in cells[again["model"], again["task"]]["rows"]}
    both = [(row["method"], fine[row["method"]]["area"], row["area"]) for row in again["rows"] if row["method"] in fine]
    apart = [f"`{name}` ({num(one)} and {num(other)})" for name, one, other in both if abs(one - other) > APART]
    rho = float(spearmanr([one for _, one, _ in both], [other for _, _, other in both])[0])
    here = f"{short(again['model'])} {again['task']}"
    return (
        f"In bfloat16: {', '.join(coarse) or 'none'}; the others in float32. {here} was run in both: the areas of damage of "
        f"{len(both)} rows have a rank correlation of {num(rho, 3)}, and differ by more than {APART} nats for "
        f"{', '.join(apart) or 'none'}."
    )


def _overall(found: list[Row], cells: Cells) -> str:
    """One row per method, over all cells."""
    searched = [one for one in cells.values() if one["best"] == "greedy"]
    columns = ["method", "family", "passes", "cells", "share", "least and most", f"share, {len(searched)} cells"]
    rows = [
        [
            f"`{row['method']}`" if row["family"] != "baseline" else row["method"],
            row["family"],
            num(row["passes"], 1),
            row["cells"],
            num(row["share"]),
            few(row["least"], row["most"], 2),
            num(row["share_shared"]),
            *(num(row[name], 1 if name == "rank" else 2) for name in _MEANS),
        ]
        for row in found
    ]
    return (
        f"Means over {len(cells)} models and tasks. Share: of the damage that greedy search's heads do, or, where it is not "
        f"affordable, the most damaging method's. Greedy search ran in {len(searched)} cells; its own share is 1 by definition, "
        f"and {_beaten(searched)}. Elsewhere the winner is chosen on the trials that it is judged on. Compare rows by the "
        f"column of the {len(searched)} cells that all of them have. Shares have no interval: models times tasks are not "
        "independent. Rank: by damage averaged over log k. Faithfulness: CPR over log k, heads only. AUROC: planted models.\n\n"
        + table([*columns, "rank", "faithfulness", "stability", "AUROC"], rows)
    )


def _beaten(searched: list[Row]) -> str:
    """In how many cells another method does more damage than greedy search, and how much more."""
    most = [max(row["damage"] for row in one["rows"]) / _row(one, "greedy")["damage"] for one in searched]
    more = [ratio for ratio in most if ratio > 1]
    return f"another method does more damage in {len(more)} of these ({few(min(more), max(more), 2)} times as much)"


def _row(cell: Row, method: str) -> Row:
    return only(cell["rows"], method=method)


_MEANS = ("rank", "cpr_log", "stability", "auroc")


def _damage(here: dict[str, Row]) -> str:
    """A row per method, a column per task, the most damaging on average first."""
    found = {task: {row["method"]: row for row in one["rows"]} for task, one in here.items()}
    methods = list(dict.fromkeys(name for rows in found.values() for name in rows))
    mean = {name: sum(rows[name]["share"] or 0 for rows in found.values() if name in rows) for name in methods}
    rows = [
        [f"`{name}`", *(_lost(one[name]) if name in one else NOTHING for one in found.values())]
        for name in sorted(methods, key=lambda name: -mean[name])
    ]
    k = next(iter(found.values()))[methods[0]]["k"]
    return f"Nats per token that the top {k} heads cost the answer.\n\n" + table(["method", *here], rows)


def _lost(row: Row) -> str:
    return span(row["damage"], row["damage_low"], row["damage_high"])


def _left_out(here: dict[str, Row]) -> str:
    why = {f"`{method}` {reason}" for one in here.values() for method, reason in one["left_out"].items()}
    return f"Left out: {'; '.join(sorted(why))}." if why else "No method is left out."


def _advice(here: dict[str, Row]) -> str:
    """What `lh.recommend` says of every task, goal by goal."""
    goals = next(iter(here.values()))["advice"]
    lines = [
        line
        for goal in goals
        for line in (f"{goal}:", *(said for one in here.values() for said in one["advice"][goal]))
    ]
    return (
        "`lh.recommend` says (of the best of many methods, chosen on the trials whose interval is shown):\n\n```text\n"
        + "\n".join(lines)
        + "\n```"
    )


def _mean_shares(cells: Cells, name: str, places: Sequence[Sequence[Cell]]) -> list[str]:
    """The mean share of a method in each of these groups of cells."""
    return [num(fmean(_row(cells[cell], name)["share"] for cell in where)) for where in places]


def _made_of_others(cells: Cells) -> str:
    """Every candidate beside exact LOCOS, cell by cell; what they reach, apart on the cells that they were made on."""
    names = [row["method"] for row in next(iter(cells.values()))["rows"] if row["family"] == "combined"]
    rows, beaten = [], {name: set[str]() for name in names}
    reached: dict[str, list[Cell]] = {name: [] for name in names}
    greedy = {cell: one for cell, one in cells.items() if one["best"] == "greedy"}
    for name in names:
        gains = []
        for (model, _), one in cells.items():
            gain = one["beyond_locos_exact"].get(name)
            gains.append(NOTHING if gain is None else span(*gain))
            if gain is not None and gain[1] > 0:
                beaten[name].add(model)
        for cell, one in greedy.items():
            mine = _row(one, name)
            if mine["share"] >= MARK and mine["passes"] <= CHEAP:
                reached[name].append(cell)
        rows.append([f"`{name}`", *gains])
    others = [cell for cell in cells if cell not in MADE_ON]
    searched = [cell for cell in others if cell in greedy]
    places = (MADE_ON, searched, others)
    counts = [
        [
            f"`{name}`",
            f"{len(beaten[name])} of {len({model for model, _ in cells})}",
            *(
                f"{len([cell for cell in reached[name] if cell in where])} of {len([cell for cell in where if cell in greedy])}"
                for where in (MADE_ON, others)
            ),
            *_mean_shares(cells, name, places),
        ]
        for name in names
    ]
    words = ("made on", "others with greedy search", "others")
    rivals = "; ".join(
        f"`{name}` {', '.join(_mean_shares(cells, name, places))}" for name in ("locos_exact", "one_shot", "eap_ig")
    )
    columns = [
        "ranking",
        "models with a task where it is surely better",
        "mark reached, made on",
        "mark reached, others",
    ]
    return (
        "Area of damage over log k less that of exact LOCOS, paired by trial. The mark: "
        f"{percent(MARK)} of greedy search's damage for at most {CHEAP} passes. They were made on ioi and induction in the "
        "packaged models, so only the other cells test them. Where greedy search did not run, shares are of the method that does "
        f"most damage on the same trials. For comparison, rankings that are not made of others: {rivals}.\n\n"
        + table(
            [*columns, *(f"share, the {len(where)} {what}" for where, what in zip(places, words, strict=True))], counts
        )
        + "\n\n"
        + table(["ranking", *(f"{short(model)}, {task}" for model, task in cells)], rows)
    )
