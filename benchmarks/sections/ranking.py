"""The table of methods: which ranking finds the heads that matter, at what cost, and do rankings made of others do better?"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import TypeAlias

from scipy.stats import spearmanr

from lens_heads.ranking.masks.in_turn import MADE_ON

from .reading import Results, Row, described, measured_by, only, short
from .writing import NOTHING, few, num, percent, span, table

Cell: TypeAlias = tuple[str, str]
Cells: TypeAlias = dict[Cell, Row]
"""Models and tasks, and what was measured there."""

CHEAP, MARK = 15, 0.9
"""What a ranking made of others should reach: this share of the best known damage, for at most so many passes."""
APART = 0.1
"""Nats of area by which a row in bfloat16 counts as different from that in float32."""
ORDER = ("ioi", "induction", "capitals", "arithmetic", "retrieval", "copy_colors", "greater_than", "choice")


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
    """One row per method, over the cells that all of them have."""
    shared = max(row["cells"] for row in found)
    columns = ["method", "family", "passes", f"share, {shared} cells", "least and most", "share, made on"]
    rows = [
        [
            f"`{row['method']}`" if row["family"] != "baseline" else row["method"],
            row["family"],
            num(row["passes"], 1),
            num(row["share"]),
            few(row["least"], row["most"], 2),
            num(row["made_on"]),
            *(num(row[name], 1 if name == "rank" else 2) for name in _MEANS),
        ]
        for row in found
    ]
    known = sorted({name for one in cells.values() for name in one["best"].split(" and ")})
    return (
        f"Means over the {shared} of {len(cells)} models and tasks that every method ran on, the same for every row. Share: of "
        "the damage of the best method known, which is, for each half of the test trials, the one that does most on the other "
        f"half ({', '.join(f'`{name}`' for name in known)} somewhere). No method chooses the trials that it is judged on, so "
        "none has 1 by definition. The cells that `best_in_turn` was made on stand apart, for every row. Models and tasks "
        "cross, and fewer than five of either give no interval. "
        "Rank: by damage averaged over log k. Faithfulness: CPR over log k, heads only. AUROC: planted models.\n\n"
        + table([*columns, "rank", "faithfulness", "stability", "AUROC"], rows)
    )


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
    for name in names:
        gains = []
        for (model, task), one in cells.items():
            gain, mine = one["beyond_locos_exact"].get(name), _row(one, name)
            gains.append(NOTHING if gain is None else span(*gain))
            if gain is not None and gain[1] > 0:
                beaten[name].add(model)
            if mine["share"] >= MARK and mine["passes"] <= CHEAP:
                reached[name].append((model, task))
        rows.append([f"`{name}`", *gains])
    places = (list(MADE_ON), [cell for cell in cells if cell not in MADE_ON])
    counts = [
        [
            f"`{name}`",
            f"{len(beaten[name])} of {len({model for model, _ in cells})}",
            *(f"{len([cell for cell in reached[name] if cell in where])} of {len(where)}" for where in places),
            *_mean_shares(cells, name, places),
        ]
        for name in names
    ]
    words = ("made on", "others")
    rivals = "; ".join(
        f"`{name}` {', '.join(_mean_shares(cells, name, places))}" for name in ("locos_exact", "one_shot", "eap_ig")
    )
    columns = ["ranking", "models with a task where it is surely better"]
    columns += [f"mark reached, {what}" for what in words]
    columns += [f"share, the {len(where)} {what}" for where, what in zip(places, words, strict=True)]
    return (
        "Area of damage over log k less that of exact LOCOS, paired by trial. The mark: "
        f"{percent(MARK)} of the best known damage for at most {CHEAP} passes. They were made on ioi and induction in the "
        "packaged models, so only the other cells test them. For comparison, rankings that are not made of others: "
        f"{rivals}.\n\n"
        + table(columns, counts)
        + "\n\n"
        + table(["ranking", *(f"{short(model)}, {task}" for model, task in cells)], rows)
    )
