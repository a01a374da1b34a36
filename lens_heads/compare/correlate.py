"""correlate: are the same tasks fragile (or disruptive, or specific) in two models?   (the 10-K study's R^2, and its doubts)

Each value less the mean over the tasks at its k (k fixed effects: that more heads do more harm counts for nothing), then the
squared Pearson correlation over all points (k, task).

The points of a task are not independent: it is fragile at all k or at none. So the p value permutes tasks, whole columns of
one table, and not points, as scipy's does (`naive_p`: far too small; with 8 tasks and 7 sizes there are 8 things to compare,
not 56).
"""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from jaxtyping import Float
from scipy import stats as scipy_stats

from lens_heads.compare.transfer_matrix import TransferMatrix
from lens_heads.stats import percentile_interval

if TYPE_CHECKING:
    import plotly.graph_objects as go

CONTROLS = ("k", None)
FEWEST, EXACT, SAMPLED = 4, 8, 10_000
"""Tasks needed (three have six orders: no p below 1/6), tasks whose orders are all tried, orders drawn of more tasks."""


@dataclass(frozen=True, eq=False)
class Correlation:
    """Two models' tables of one statistic beside each other.

    `r2`, `r`: over the points, after the control. `p`: share of the orders of b's tasks whose r is at least as large, out of
    `permutations` (`exact`: all there are); one-sided, for the claim is that the same tasks are fragile. `naive_p`: scipy's,
    one-sided too, which takes every point for independent and is wrong, for comparison.
    Of two transfer matrices also: `interval`, 95 % of r2 with the items of both resampled (which adds noise, so it may lie
    below r2); `reliability` of either table, split-half over items with Spearman-Brown; `noise_ceiling`, the largest r that
    such tables could show, sqrt(reliability_a * reliability_b). NaN where a reliability is not above 0; None for frames.
    `points`: k, task, a, b, a_controlled, b_controlled, and of matrices the 95 % interval of both controlled values.
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
        """A point per k and task, controlled values of a (x) against those of b (y), with intervals."""
        from lens_heads import plots

        return plots.transfer_scatter(self, title)

    def __repr__(self) -> str:
        bounds = "" if self.interval is None else f" [{self.interval[0]:.3f}, {self.interval[1]:.3f}]"
        ceiling = "" if self.noise_ceiling_r2 is None else f", noise ceiling {self.noise_ceiling_r2:.3f}"
        what = f"{self.statistic} of {self.names[0]} and {self.names[1]}"
        return f"Correlation({what}: R^2 {self.r2:.3f}{bounds}, p {self.p:.2g} over task orders{ceiling})"


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
        a, b: transfer matrices, or frames of the statistic with k as rows (k = 0 is left out) and tasks as columns. Tasks
            are matched by name, rows by k; what only one has is left out (warned about). Models may differ in everything.
        control: "k" subtracts the mean over the tasks at the same k; None does not.
        statistic, **options: of matrices, as in `TransferMatrix.statistic`: "fragility" with `relative=True`, ...
        permutations: orders of the tasks to draw, p = (hits + 1) / (n + 1); None tries all orders of up to 8 tasks, and
            draws 10,000 of more.
        n: resamples of the items for the intervals.
        paired_items: both models saw the same items: resample the same ones in both.
        names: what to call the models; the matrices' `meta["model"]` by default.

    Raises ValueError for fewer than four shared tasks, no shared k, values that are missing or do not differ, and pairing of
    different items.
    """
    if control not in CONTROLS:
        raise ValueError(f"unknown control {control!r}: 'k' (the mean over the tasks at each k is removed) or None")
    if permutations is not None and permutations < 1:
        raise ValueError(f"permutations={permutations}: at least 1 order of the tasks is needed, or None")
    tables = [_table(each, name, statistic, options) for each, name in ((a, "a"), (b, "b"))]
    grid = _Grid(*_shared(*tables), control)
    x, y = (grid.controlled(table.to_numpy(dtype=float), table) for table in tables)
    for name, values in (("a", x), ("b", y)):
        if np.ptp(values) < 1e-12:
            raise ValueError(f"{statistic} of {name} is the same for all tasks: there is nothing to correlate")
    p, count, exact = _permuted(x, y, permutations, seed)
    naive = float(scipy_stats.pearsonr(x.ravel(), y.ravel(), alternative="greater").pvalue)
    points = grid.frame(tables, (x, y))
    interval = reliability = None
    if isinstance(a, TransferMatrix) and isinstance(b, TransferMatrix):
        if paired_items:
            _check_items(a, b, grid.tasks)
        sides = (a, tables[0], seed), (b, tables[1], seed if paired_items else seed + 1)
        noise = [_noise(*side, grid, n, statistic, options) for side in sides]
        drawn, reliability = [samples for samples, _ in noise], (noise[0][1], noise[1][1])
        for name, samples in zip("ab", drawn, strict=True):
            points[f"{name}_low"], points[f"{name}_high"] = (end.ravel() for end in percentile_interval(samples))
        low, high = percentile_interval(_pearson(*drawn) ** 2)
        interval = float(low), float(high)
    elif paired_items:
        raise ValueError("paired_items=True needs two transfer matrices: a frame does not know its items")
    called = names or (_name(a, "a"), _name(b, "b"))
    r = float(_pearson(x, y))
    return Correlation(statistic, control, called, r, p, naive, count, exact, interval, reliability, points)


@dataclass(frozen=True)
class _Grid:
    """Which k and tasks are compared, and what is controlled for."""

    ks: list[int]
    tasks: list[str]
    control: str | None

    def picked(
        self, values: Float[np.ndarray, "*sample every_k every_task"], table: pd.DataFrame
    ) -> Float[np.ndarray, "*sample k task"]:
        """Values laid out as the table's, at the k and tasks that are compared."""
        rows, columns = table.index.get_indexer(pd.Index(self.ks)), table.columns.get_indexer(pd.Index(self.tasks))
        return values[..., rows[:, None], columns]

    def controlled(
        self, values: Float[np.ndarray, "*sample every_k every_task"], table: pd.DataFrame
    ) -> Float[np.ndarray, "*sample k task"]:
        found = self.picked(values, table)
        return found - found.mean(-1, keepdims=True) if self.control == "k" else found

    def frame(
        self,
        tables: Sequence[pd.DataFrame],
        controlled: tuple[Float[np.ndarray, "k task"], Float[np.ndarray, "k task"]],
    ) -> pd.DataFrame:
        points = pd.MultiIndex.from_product([self.ks, self.tasks], names=["k", "task"]).to_frame(index=False)
        for name, table, values in zip("ab", tables, controlled, strict=True):
            points[name] = self.picked(table.to_numpy(dtype=float), table).ravel()
            points[f"{name}_controlled"] = values.ravel()
        return points


def _table(each: Any, name: str, statistic: str, options: dict[str, bool]) -> pd.DataFrame:
    """The statistic of one model: rows k without 0, columns tasks."""
    if isinstance(each, TransferMatrix):
        table = each.statistic(statistic, **options)
    elif isinstance(each, pd.DataFrame):
        if options:
            raise ValueError(f"{name} is a frame of finished values: {', '.join(options)} is for transfer matrices")
        table = each.drop(index=0, errors="ignore")
    else:
        raise TypeError(
            f"{name} is a {type(each).__name__}: give a TransferMatrix, or a frame with rows k, columns tasks"
        )
    if not table.index.is_unique or not table.columns.is_unique:
        raise ValueError(f"{name} has a k or a task more than once: rows are k, columns are tasks")
    missing = np.argwhere(table.isna().to_numpy())
    if len(missing):
        k, task = table.index[missing[0][0]], table.columns[missing[0][1]]
        raise ValueError(f"{statistic} of {name} is NaN for task {task!r} at k={k}: leave the task or the k out")
    return table


def _shared(a: pd.DataFrame, b: pd.DataFrame) -> tuple[list[int], list[str]]:
    """k and tasks of both tables; warns of what only one has."""
    shared = []
    for what, mine, other in (("k", a.index, b.index), ("task", a.columns, b.columns)):
        shared.append([value for value in mine if value in other])
        single = [str(value) for value in [*mine, *other] if (value in mine) != (value in other)]
        if single:
            warnings.warn(f"only one of the two has {what} {', '.join(single)}: left out", stacklevel=3)
    if not shared[0]:
        raise ValueError(
            f"no k is in both: {list(a.index)} against {list(b.index)}; ablate as many heads in both models"
        )
    if len(shared[1]) < FEWEST:
        raise ValueError(
            f"{len(shared[1])} tasks are in both ({', '.join(shared[1]) or 'none'}): with fewer than {FEWEST} no correlation "
            "over tasks can be told from chance; give the tasks the same names in both, or run more of them"
        )
    return shared[0], shared[1]


def _check_items(a: TransferMatrix, b: TransferMatrix, tasks: Sequence[str]) -> None:
    for task in tasks:
        mine, other = a.items(task), b.items(task)
        if mine is None or other is None:
            raise ValueError("paired_items=True: counts do not know their items; use paired_items=False")
        if mine != other:
            odd = sorted({*mine} ^ {*other})
            raise ValueError(
                f"paired_items=True: {len(odd)} items of task {task!r} were seen by one model alone ({odd[0]!r}, ...): leave "
                "them out of both, or use paired_items=False"
            )


def _noise(
    matrix: TransferMatrix,
    table: pd.DataFrame,
    seed: int,
    grid: _Grid,
    n: int,
    statistic: str,
    options: dict[str, bool],
) -> tuple[Float[np.ndarray, "sample k task"], float]:
    """The controlled values on n resamples of a matrix's items, and their reliability over halves of the items."""
    samples = grid.controlled(matrix.resampled(statistic, n, seed, **options), table)
    first, second = (grid.controlled(half, table) for half in matrix.halves(statistic, seed=seed, **options))
    return samples, _reliability(first, second)


def _pearson(
    x: Float[np.ndarray, "*sample k task"], y: Float[np.ndarray, "*sample k task"]
) -> Float[np.ndarray, "*sample"]:
    """Over all points; NaN where one side does not vary."""
    x, y = (values - values.mean((-2, -1), keepdims=True) for values in (x, y))
    spread = np.sqrt((x**2).sum((-2, -1)) * (y**2).sum((-2, -1)))
    with np.errstate(invalid="ignore", divide="ignore"):
        return (x * y).sum((-2, -1)) / spread


def _permuted(
    x: Float[np.ndarray, "k task"], y: Float[np.ndarray, "k task"], permutations: int | None, seed: int
) -> tuple[float, int, bool]:
    """(p, orders, whether these are all) of r at least as large when whole columns of y are permuted.

    r of an order is a sum of task-by-task products, which are computed once.
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


def _reliability(first: Float[np.ndarray, "sample k task"], second: Float[np.ndarray, "sample k task"]) -> float:
    """Correlation of the two halves, Spearman-Brown corrected, mean over the halvings that tell points apart."""
    r = _pearson(first, second)
    r = r[np.isfinite(r)]
    return float(np.where(r > 0, 2 * r / (1 + r), r).mean()) if len(r) else math.nan


def _name(each: TransferMatrix | pd.DataFrame, fallback: str) -> str:
    return str(each.meta.get("model") or fallback) if isinstance(each, TransferMatrix) else fallback
