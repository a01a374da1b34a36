"""recommend: which method to use for a budget, said only where the differences are beyond their intervals."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from numbers import Real
from typing import NamedTuple

import pandas as pd

from lens_heads.runs import checks
from lens_heads.runs.drawn import Tabled
from lens_heads.runs.typed import typed
from lens_heads.studies.ranking_methods.bench import Bench
from lens_heads.studies.ranking_methods.cell import RANDOM, By, Cell, check_by

BUDGETS = (1.5, 5.0, 20.0, math.inf)
"""Plain passes over the selection trials: one pass, gradients, integrated gradients, anything."""


class Goal(NamedTuple):
    """What heads are looked for, what the best method does more of than another, and in which unit."""

    title: str
    does: str
    unit: str


GOALS: dict[By, Goal] = {
    "damage": Goal("To find what the answer needs", "does surely more damage than", "nats"),
    "faithfulness": Goal(
        "To find what suffices for it", "keeps surely more of the behaviour than", "of the effect of all heads"
    ),
}


@dataclass(frozen=True, eq=False)
class Recommendation(Tabled):
    """The result of `recommend`. `frame`: a row per model, task and budget; printed, it says the same in words.

    Columns: method (the largest area over log k of those within the budget; empty if none is surely beyond random heads), area,
    beyond_random and gain (over the choice of the next smaller budget) with bounds, as_good (methods that cannot be told from it,
    the cheapest first). `by`: what the area is of.

    Example:
        >>> rows = pd.DataFrame({"model": ["tiny"], "task": ["capitals"], "budget": [5.0], "method": ["locos"]})
        >>> lh.Recommendation(rows).by
        'damage'
    """

    frame: pd.DataFrame
    by: By = "damage"

    def __str__(self) -> str:
        cells = self.frame.groupby(["model", "task"], sort=False)
        return "\n".join([*(_said(rows, self.by) for _, rows in cells), *self._overall()])

    def _overall(self) -> list[str]:
        """Which methods are among the best of a budget in most cells, where there are several."""
        cells = len(self.frame[["model", "task"]].drop_duplicates())
        lines = []
        for budget in self.frame["budget"].unique() if cells > 1 else ():
            rows = self.frame[self.frame["budget"] == budget].to_dict("records")
            named = [name for row in rows for name in (row["method"], *row["as_good"]) if name]
            counts = pd.Series(named, dtype=object).value_counts()
            shown = ", ".join(f"{name} ({n})" for name, n in counts.head(4).items())
            lines.append(f"{_price(float(budget))}, the best or as good in most of {cells} cells: {shown or 'none'}")
        return lines


@typed
def recommend(
    bench: Bench, *, budgets: Sequence[float] | float = BUDGETS, by: By = "damage", level: float = 0.95
) -> Recommendation:
    """Which method to use for each budget.

    Args:
        bench: the result of `studies.bench`, or `Bench.load(folder)`.
        budgets: plain passes over the selection trials, one number or several; infinity for any price.
        by: "damage" for heads that the answer needs (ablated), "faithfulness" for heads that suffice (kept, all others corrupt).
        level: of the intervals that decide.

    The best of many methods on one set of trials looks better than it is. By damage, each half of the test trials therefore
    judges the method that is best on the other half, and a method is recommended only if what is chosen so is surely better than
    random heads, and than the choice for the smaller budget. By faithfulness, which has few pairs, all of them choose and judge:
    measure close calls again on other trials.

    ValueError for no budgets, budgets that are not numbers above zero, and another `by`; TypeError for anything but a Bench.

    Example:
        >>> from lens_heads.studies.ranking_methods.study import Preset
        >>> small = Preset(select=2, calibrate=1, test=5, pairs=5, other=5, ks=(2,), k=2, draws=2, few=5, kept_draws=2, planted=0)
        >>> bench = lh.studies.bench(untrained, "arithmetic", ["dla"], arguments={"digits": 1}, preset=small)
        ─... llama-gqa, arithmetic ...
        >>> lh.recommend(bench, budgets=1.5).frame["method"].tolist()  # None: this model has not learned to calculate.
        ['']
    """
    given = list(budgets) if isinstance(budgets, Iterable) else [budgets]
    if not given or not all(isinstance(budget, Real) and budget > 0 for budget in given):
        raise ValueError(f"budgets={budgets!r}: use numbers of passes above 0")
    listed = sorted(map(float, given))
    check_by(by)
    checks.level(level)
    rows = []
    for cell in bench.cells:
        before = ""
        for budget in listed:
            row = _choice(cell, budget, before, by, level)
            before = str(row["method"]) or before
            rows.append({"model": cell.model, "task": cell.task, "budget": budget, **row})
    return Recommendation(pd.DataFrame(rows), by)


def _choice(cell: Cell, budget: float, before: str, by: By, level: float) -> dict[str, object]:
    """The method for one budget, and those that cannot be told from it."""
    about, beyond = cell.about.set_index("method"), partial(cell.beyond, level=level, by=by)

    def surely(best: str, over: str) -> bool:
        found = cell.chosen_beyond(able, over, level) if by == "damage" else beyond(best, over)
        return found.low > 0

    passes, family = about["passes"], about["family"]
    able = [name for name in cell.methods if passes[name] <= budget and family[name] != "baseline"]
    ranked = sorted(able, key=lambda name: -cell.goodness(name, by))
    best, same = ranked[0] if ranked else "", []
    if not best or cell.does is False or not surely(best, RANDOM):
        best = before = ""
    elif before and before != best and not surely(best, before):
        best = before
    if best:  # Not "as good as": all that the trials cannot tell from it, the cheapest first.
        same = [name for name in ranked if name != best and not beyond(best, name).low > 0]
    row: dict[str, object] = {"method": best, "as_good": tuple(sorted(same, key=lambda name: passes[name]))}
    for name, other in (("beyond_random", RANDOM), ("gain", before)):
        value = beyond(best, other) if best and other and best != other else (math.nan,) * 3
        row |= dict(zip((name, f"{name}_low", f"{name}_high"), value, strict=True))
    return row


def _price(budget: float) -> str:
    return "At any price" if math.isinf(budget) else f"For up to {budget:g} passes"


def _said(rows: pd.DataFrame, by: By) -> str:
    """What to use on one model and task, budget by budget."""
    lines, before = [f"{rows['model'].iloc[0]}, {rows['task'].iloc[0]}:"], ""
    _, does, unit = GOALS[by]
    for row in rows.to_dict("records"):
        price = _price(row["budget"])
        if not row["method"]:
            lines.append(f"  {price}: no method {does} random heads.")
            continue
        if row["method"] == before:
            lines.append(f"  {price}: still {before}; nothing dearer is surely better.")
            continue
        over = f"{row['beyond_random']:.2f} [{row['beyond_random_low']:.2f}, {row['beyond_random_high']:.2f}]"
        same = f"; not told from it: {', '.join(row['as_good'])}" if row["as_good"] else ""
        lines.append(f"  {price}: {row['method']}, {over} {unit} beyond random heads{same}.")
        before = row["method"]
    return "\n".join(lines)
