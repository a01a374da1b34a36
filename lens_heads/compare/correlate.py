"""correlate: are the same tasks fragile (or disruptive, or specific) in two models?   (the 10-K study's R^2, re-examined)

R^2 is the squared Pearson correlation over all points (k, task), after subtracting from each value the mean over tasks at
its k (k fixed effects): that more heads do more harm does not count as agreement.

A task that is fragile at one k tends to be fragile at all, so the p value permutes tasks, as whole columns of one table.
scipy's p value (`naive_p`) treats points as independent and is far too small: 8 tasks and 7 sizes are 8 units, not 56.
"""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pandas as pd
from jaxtyping import Float
from scipy import stats as scipy_stats

from lens_heads.compare.transfer_matrix import TransferMatrix
from lens_heads.runs import checks
from lens_heads.stats import pearson, percentile_interval, spearman_brown

if TYPE_CHECKING:
    import plotly.graph_objects as go

Points: TypeAlias = Float[np.ndarray, "*sample k task"]
FEWEST, EXACT, SAMPLED = 4, 8, 10_000
"""Fewest tasks (three have six orders: no p below 1/6), most tasks with exhaustive permutation, orders sampled beyond."""


@dataclass(frozen=True, eq=False)
class Correlation:
    """Correlation of one statistic between two models.

    `r`, `r2`: over points, after the control. `p`: one-sided permutation p, the fraction of orders of b's tasks with an r at
    least as large, out of `permutations` (`exact`: all orders). `naive_p`: scipy's one-sided p, for comparison only.
    `points`: k, task, a, b, a_controlled, b_controlled.

    For two transfer matrices also: `interval`, the 95 % bootstrap interval of r2 over items of both (resampling adds noise,
    so it may lie below r2); `reliability` of each table, split-half over items with Spearman-Brown correction;
    `noise_ceiling` = sqrt(reliability_a * reliability_b), the largest r that such tables can show, NaN unless both
    reliabilities are positive; in `points`, 95 % intervals of both controlled values. None for frames.
    """

    statistic: str
    control: str | None
    names: tuple[str, str]
    r: float
    p: float
    naive_p: float
    permutations: int
    exact: bool
    interval: tuple[float, float] | None
    reliability: tuple[float, float] | None
    points: pd.DataFrame

    @property
    def r2(self) -> float:
        return self.r**2

    @property
    def noise_ceiling(self) -> float | None:
        if self.reliability is None:
            return None
        return math.sqrt(math.prod(self.reliability)) if min(self.reliability) > 0 else math.nan

    @property
    def noise_ceiling_r2(self) -> float | None:
        return None if self.noise_ceiling is None else self.noise_ceiling**2

    def plot(self, title: str | None = None) -> go.Figure:
        """One point per k and task: controlled values of a (x) against b (y), with intervals."""
        from lens_heads import plots

        return plots.transfer_scatter(self, title)

    def __repr__(self) -> str:
        bounds = "" if self.interval is None else f" [{self.interval[0]:.3f}, {self.interval[1]:.3f}]"
        ceiling = "" if self.noise_ceiling_r2 is None else f", noise ceiling {self.noise_ceiling_r2:.3f}"
        what = f"{self.statistic} of {self.names[0]} and {self.names[1]}"
        return f"Correlation({what}: R^2 {self.r2:.3f}{bounds}, permutation p = {self.p:.2g}{ceiling})"


def correlate(
    a: TransferMatrix | pd.DataFrame,
    b: TransferMatrix | pd.DataFrame,
    control: str | None = "k",
    statistic: str = "fragility",
    permutations: int | None = None,
    n: int = 1000,
    seed: int = 0,
    paired_items: bool = False,
    names: tuple[str, str] | None = None,
    **options: bool,
) -> Correlation:
    """Correlate a statistic of two models over tasks and numbers of ablated heads.

    Args:
        a, b: transfer matrices, or frames of the statistic with k as rows (k = 0 is ignored) and tasks as columns. Tasks and
            k are matched by name; those in only one model are ignored, with a warning. The models may differ in everything.
        control: "k" subtracts the mean over tasks at each k; None does not.
        statistic, **options: for matrices, as in `TransferMatrix.statistic`: "fragility" with `relative=True`, ...
        permutations: random orders of the tasks; None tries all orders of up to 8 tasks, and samples 10,000 for more.
        n: resamples of the items for the intervals.
        paired_items: both models saw the same items, so resample them together.
        names: labels of the models, by default the matrices' `meta["model"]`.

    Raises ValueError for fewer than four shared tasks, no shared k, missing or constant values, and items that cannot be paired.
    """
    if control not in ("k", None):
        raise ValueError(f"unknown control {control!r}. Choose 'k' (subtract the mean over tasks at each k) or None.")
    if permutations is not None:
        checks.whole_number("permutations", permutations, remedy=", or None")
    checks.whole_number("n", n)
    checks.seed(seed)
    tables = [_table(each, name, statistic, options) for each, name in ((a, "a"), (b, "b"))]
    ks, tasks = _shared(*tables)
    of_a, of_b = (partial(_controlled, table=table, shared=(ks, tasks), control=control) for table in tables)
    x, y = of_a(tables[0].to_numpy(dtype=float)), of_b(tables[1].to_numpy(dtype=float))
    points = pd.MultiIndex.from_product([ks, tasks], names=["k", "task"]).to_frame(index=False)
    for name, table, values in zip("ab", tables, (x, y), strict=True):
        if np.ptp(values) < 1e-12:
            raise ValueError(f"{statistic} of {name} is the same for all tasks, so its correlation is undefined")
        points[name] = table.loc[ks, tasks].to_numpy(dtype=float).ravel()
        points[f"{name}_controlled"] = values.ravel()
    interval = reliability = None
    if isinstance(a, TransferMatrix) and isinstance(b, TransferMatrix):
        if paired_items:
            _check_items(a, b, tasks)
        how = {"name": statistic, **options}
        drawn_a, reliability_a = _noise(a, of_a, n, {**how, "seed": seed})
        drawn_b, reliability_b = _noise(b, of_b, n, {**how, "seed": seed if paired_items else seed + 1})
        for name, drawn in (("a", drawn_a), ("b", drawn_b)):
            points[f"{name}_low"], points[f"{name}_high"] = (end.ravel() for end in percentile_interval(drawn))
        low, high = percentile_interval(_over_points(drawn_a, drawn_b) ** 2)
        interval, reliability = (float(low), float(high)), (reliability_a, reliability_b)
    elif paired_items:
        raise ValueError("paired_items=True requires two transfer matrices, because a frame has no items")
    p, count, exact = _permuted(x, y, permutations, seed)
    naive = float(scipy_stats.pearsonr(x.ravel(), y.ravel(), alternative="greater").pvalue)
    models = [each.meta.get("model") if isinstance(each, TransferMatrix) else None for each in (a, b)]
    called, r = names or (str(models[0] or "a"), str(models[1] or "b")), float(_over_points(x, y))
    return Correlation(statistic, control, called, r, p, naive, count, exact, interval, reliability, points)


def _controlled(
    values: Points, table: pd.DataFrame, shared: tuple[list[int], list[str]], control: str | None
) -> Points:
    """Values in the layout of the table, restricted to the shared k and tasks, after the control."""
    ks, tasks = map(pd.Index, shared)
    found = values[(..., *np.ix_(table.index.get_indexer(ks), table.columns.get_indexer(tasks)))]
    return found - found.mean(-1, keepdims=True) if control == "k" else found


def _table(each: Any, name: str, statistic: str, options: dict[str, bool]) -> pd.DataFrame:
    """The statistic of one model: rows k without 0, columns tasks."""
    if isinstance(each, TransferMatrix):
        table = each.statistic(statistic, **options)
    elif isinstance(each, pd.DataFrame):
        if options:
            raise ValueError(f"{name} is a frame, but {', '.join(options)} applies to transfer matrices only. Omit it.")
        table = each.drop(index=0, errors="ignore")
    else:
        raise TypeError(f"{name} must be a TransferMatrix or a DataFrame, not a {type(each).__name__}")
    if not table.index.is_unique or not table.columns.is_unique:
        raise ValueError(f"{name} repeats a k (row) or a task (column). Keep one of each.")
    numbers = table.apply(pd.to_numeric, errors="coerce").to_numpy(dtype=float)
    missing = np.argwhere(~np.isfinite(numbers))
    if len(missing):
        k, task = table.index[missing[0][0]], table.columns[missing[0][1]]
        value: Any = table.iloc[missing[0][0], missing[0][1]]
        found = "NaN" if pd.isna(value) else repr(value)
        raise ValueError(f"{statistic} of {name} is {found} for task {task!r} at k={k}. Omit that task or k.")
    return table


def _shared(a: pd.DataFrame, b: pd.DataFrame) -> tuple[list[int], list[str]]:
    """k and tasks of both tables, with a warning about those in only one."""
    shared = []
    for what, mine, other in (("k", a.index, b.index), ("task", a.columns, b.columns)):
        shared.append([value for value in mine if value in other])
        single = [str(value) for value in [*mine, *other] if (value in mine) != (value in other)]
        if single:
            warnings.warn(f"ignored {what} {', '.join(single)}, found in only one of the models", stacklevel=3)
    ks, tasks = shared
    if not ks:
        raise ValueError(f"no shared k: a has {list(a.index)}, b has {list(b.index)}. Run both at the same k.")
    if len(tasks) < FEWEST:
        found = f"{len(tasks)} shared tasks ({', '.join(tasks) or 'none'})"
        raise ValueError(f"{found}, but at least {FEWEST} are required. Use the same task names in both models.")
    return ks, tasks


def _check_items(a: TransferMatrix, b: TransferMatrix, tasks: Sequence[str]) -> None:
    for task in tasks:
        mine, other = a.items(task), b.items(task)
        if mine is None or other is None:
            raise ValueError("paired_items=True requires matrices with items, not counts. Use paired_items=False.")
        if mine != other:
            odd = sorted({*mine} ^ {*other})
            alone = f"{len(odd)} items of task {task!r} ({odd[0]!r}, ...) are in only one model"
            raise ValueError(f"paired_items=True, but {alone}. Drop them, or use paired_items=False.")


def _noise(
    matrix: TransferMatrix, controlled: Callable[[Points], Points], n: int, how: dict[str, Any]
) -> tuple[Points, float]:
    """Controlled values on n resamples of the items, and split-half reliability; `how`: statistic, its options, seed."""
    r = _over_points(*(controlled(half) for half in matrix.halves(**how)))
    return controlled(matrix.resampled(n=n, **how)), spearman_brown(r)


def _over_points(x: Points, y: Points) -> Float[np.ndarray, "*sample"]:
    """Pearson correlation over all points."""
    return pearson(*(values.reshape(*values.shape[:-2], -1) for values in (x, y)))


def _permuted(x: Points, y: Points, permutations: int | None, seed: int) -> tuple[float, int, bool]:
    """(p, number of orders, whether these are all) of an r at least as large when whole columns of y are permuted.

    p = hits / orders if exact, else (hits + 1) / (orders + 1). An order's r sums task-by-task products, computed once.
    """
    tasks = x.shape[1]
    products = (x - x.mean()).T @ (y - y.mean())
    exact = permutations is None and tasks <= EXACT
    if exact:
        orders = np.array(list(itertools.permutations(range(tasks))))
    else:
        unmoved = np.tile(np.arange(tasks), (permutations or SAMPLED, 1))
        orders = np.random.default_rng(seed).permuted(unmoved, axis=1)
    found, slack = products[np.arange(tasks), orders].sum(1), 1e-9 * np.abs(products).sum()
    hits = int((found >= products.trace() - slack).sum())  # Equal orders differ in rounding.
    return (hits / len(orders) if exact else (hits + 1) / (len(orders) + 1)), len(orders), exact
