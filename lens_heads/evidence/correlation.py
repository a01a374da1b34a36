"""correlate: are the same tasks fragile (or disruptive, or specific) in two models?   (the 10-K study's R^2, re-examined)

R^2 is the squared Pearson correlation over all points (k, task), after subtracting from each value the mean over tasks at
its k (k fixed effects): that more heads do more harm does not count as agreement.

A task that is fragile at one k tends to be fragile at all, so the p value permutes tasks, as whole columns of one table.
scipy's p value (`naive_p`) treats points as independent and is far too small: 8 tasks and 7 sizes are 8 units, not 56.
Nor are tasks exchangeable whose answers have different formats: a number differs from a name in every model. Inside strata
of formats, and without covariates, only what is left counts (`stats.permutation`).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
from jaxtyping import Float
from scipy import stats as scipy_stats

from lens_heads.evidence.correlation_results import Correlation
from lens_heads.evidence.transfer_cells import STATISTICS
from lens_heads.evidence.transfer_results import TransferMatrix
from lens_heads.runs import checks
from lens_heads.runs.typed import typed
from lens_heads.runs.warned import users_line
from lens_heads.stats import Interval, Permutation, percentile_interval, permutation_test
from lens_heads.stats.correlation import pearson, spearman_brown

Points: TypeAlias = Float[np.ndarray, "*sample k task"]
Covariate: TypeAlias = Mapping[str, float] | pd.Series | pd.DataFrame
FEWEST = 4
"""Fewest tasks: three have six orders, so no p below 1/6."""


@typed
def correlate(
    a: TransferMatrix | pd.DataFrame,
    b: TransferMatrix | pd.DataFrame,
    *,
    statistic: str = "fragility",
    strata: Mapping[str, Hashable] | None = None,
    covariates: Mapping[str, tuple[Covariate, Covariate]] | None = None,
    permutations: int | None = None,
    n: int = 1000,
    seed: int = 0,
    paired_items: bool = False,
    names: tuple[str, str] | None = None,
    relative: bool | None = None,
    diagonal: bool | None = None,
) -> Correlation:
    """Correlate a statistic of two models over tasks and numbers of ablated heads.

    Args:
        a, b: transfer matrices, or frames of the statistic with k as rows (k = 0 is ignored) and tasks as columns. Tasks and
            k are matched by name; those in only one model are ignored, with a warning. The models may differ in everything.
        statistic, relative, diagonal: for matrices, as in `TransferMatrix.statistic`: "fragility" with `relative=True`, ...
        strata: a label per task, such as its answer format; tasks are permuted among those with the same label.
        covariates: by name, what to take out of a and out of b: numbers by task, or a frame like those of the statistic. For
            example `{"random heads": (a.statistic("random"), b.statistic("random")), "answer length": (length, length)}`.
        permutations: tries all orders of the tasks if these are no more, else samples so many; None tries all of up to
            50,000 and samples 10,000 of more.
        n: resamples of the items for the intervals.
        paired_items: both models saw the same items, so resample them together.
        names: labels of the models, by default the matrices' `meta["model"]`.

    Raises ValueError for fewer than four shared tasks, no shared k, missing or constant values, tasks without a stratum or
    covariate, and items that cannot be paired.

    `seed`: of orders and resamples.

    Example:
        >>> table = pd.DataFrame([[0.1, 0.5, 0.9, 0.2, 0.7]], index=[8], columns=list("abcde"))
        >>> found = lh.evidence.correlate(table, 2 * table)
        >>> round(found.r, 3), found.p < 0.05
        (1.0, True)
    """
    given = {"relative": relative, "diagonal": diagonal}
    options = {name: value for name, value in given.items() if value is not None}
    if permutations is not None:
        checks.count("permutations", permutations, remedy=", or None")
    checks.count("n", n)
    checks.seed(seed)
    tables = [_table(each, name, statistic, options) for each, name in ((a, "a"), (b, "b"))]
    ks, tasks = _shared(*tables)
    of_a, of_b = (partial(_controlled, table=table, shared=(ks, tasks)) for table in tables)
    x, y = of_a(tables[0].to_numpy(dtype=float)), of_b(tables[1].to_numpy(dtype=float))
    same = pd.DataFrame(np.concatenate([table.loc[ks, tasks] for table in tables]), columns=tasks).T.duplicated(
        keep=False
    )
    if same.any():
        warnings.warn(
            f"tasks {', '.join(map(str, same.index[same][:3]))} have the same {statistic} throughout, as one task under two "
            "names would: give each task once",
            stacklevel=users_line(),
        )
    points = _points(tables, (x, y), (ks, tasks), statistic)
    test = partial(permutation_test, n=permutations, seed=seed)
    found: dict[str, Any] = {"plain": test(x, y), **_left(x, y, (ks, tasks), strata, covariates, test)}
    found |= {"random": None, "interval": None, "reliability": None}
    if isinstance(a, TransferMatrix) and isinstance(b, TransferMatrix):
        if paired_items:
            _check_items(a, b, tasks)
        if STATISTICS[statistic][0] == "targets" and a.draws and b.draws:
            of_random = (each.statistic("random", relative=options.get("relative", False)) for each in (a, b))
            of_a_random, of_b_random = (table.loc[ks, tasks].to_numpy() for table in of_random)
            found["random"] = test(of_a_random, of_b_random)
        how = {"name": statistic, "n": n, **options}
        noise = (_noise(a, of_a, {**how, "seed": seed}), _noise(b, of_b, {**how, "seed": seed + (not paired_items)}))
        found |= _uncertain(points, found["plain"].r2, *noise)
    elif paired_items:
        raise ValueError("paired_items=True requires two transfer matrices, because a frame has no items")
    naive = float(scipy_stats.pearsonr(x.ravel(), y.ravel(), alternative="greater").pvalue)
    models = [each.meta.get("model") if isinstance(each, TransferMatrix) else None for each in (a, b)]
    called = names or (str(models[0] or "a"), str(models[1] or "b"))
    return Correlation(statistic=statistic, names=called, naive_p=naive, points=points, **found)


def _points(
    tables: Sequence[pd.DataFrame],
    controlled: tuple[Points, Points],
    shared: tuple[list[int], list[str]],
    statistic: str,
) -> pd.DataFrame:
    """`points` of a `Correlation`, without intervals. ValueError if one side is constant."""
    points = pd.MultiIndex.from_product(shared, names=["k", "task"]).to_frame(index=False)
    for name, table, values in zip("ab", tables, controlled, strict=True):
        if np.ptp(values) < 1e-12:
            raise ValueError(f"{statistic} of {name} is the same for all tasks, so its correlation is undefined")
        points[name] = table.loc[shared[0], shared[1]].to_numpy(dtype=float).ravel()
        points[f"{name}_controlled"] = values.ravel()
    return points


def _left(
    x: Points,
    y: Points,
    shared: tuple[list[int], list[str]],
    strata: Mapping[str, Hashable] | None,
    covariates: Mapping[str, tuple[Covariate, Covariate]] | None,
    test: Callable[..., Permutation],
) -> dict[str, Any]:
    """`within`, `partial` and `partial_all` of a `Correlation`."""
    labels = None
    if strata is not None:
        missing = [task for task in shared[1] if task not in strata]
        if missing:
            raise ValueError(f"strata has no task {missing[0]!r}. Give every task a label, such as its answer format.")
        labels = [strata[task] for task in shared[1]]
    sides = {
        name: [_covariate(each, f"{name} of {model}", shared) for model, each in zip("ab", both, strict=True)]
        for name, both in (covariates or {}).items()
    }
    every = tuple(np.stack(each) for each in zip(*sides.values(), strict=True))
    return {
        "within": None if labels is None else test(x, y, strata=labels),
        "partial": {
            name: test(x, y, strata=labels, covariates=(of_a[None], of_b[None])) for name, (of_a, of_b) in sides.items()
        },
        "partial_all": test(x, y, strata=labels, covariates=every) if every else None,
    }


def _covariate(each: Covariate, name: str, shared: tuple[list[int], list[str]]) -> Points:
    """One number per shared k and task; numbers by task are the same at every k."""
    ks, tasks = shared
    table = each if isinstance(each, pd.DataFrame) else pd.DataFrame([dict(each)] * len(ks), ks)
    for what, wanted, there in (("k", ks, table.index), ("task", tasks, table.columns)):
        missing = [value for value in wanted if value not in there]
        if missing:
            raise ValueError(f"covariate {name} has no {what} {missing[0]!r}. Add it, or omit the covariate.")
    return checks.finite_values(f"covariate {name}", table.loc[ks, tasks])


def _uncertain(
    points: pd.DataFrame, r2: float, of_a: tuple[Points, float], of_b: tuple[Points, float]
) -> dict[str, Any]:
    """`interval` and `reliability` of a `Correlation`; adds the intervals of the values to `points`."""
    for name, (drawn, _) in (("a", of_a), ("b", of_b)):
        points[f"{name}_low"], points[f"{name}_high"] = (end.ravel() for end in percentile_interval(drawn)[1:])
    _, low, high = percentile_interval(_over_points(of_a[0], of_b[0]) ** 2)
    return {"interval": Interval(r2, float(low), float(high)), "reliability": (of_a[1], of_b[1])}


def _controlled(values: Points, table: pd.DataFrame, shared: tuple[list[int], list[str]]) -> Points:
    """Values in the layout of the table, restricted to the shared k and tasks, minus the mean over tasks at each k."""
    ks, tasks = map(pd.Index, shared)
    found = values[(..., *np.ix_(table.index.get_indexer(ks), table.columns.get_indexer(tasks)))]
    return found - found.mean(-1, keepdims=True)


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
    if not pd.api.types.is_integer_dtype(table.index):
        raise ValueError(
            f"{name} has rows {', '.join(map(str, table.index[:3]))}: rows are k, columns tasks. Transpose it."
        )
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
            warnings.warn(
                f"ignored {what} {', '.join(single)}, found in only one of the models", stacklevel=users_line()
            )
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


def _noise(matrix: TransferMatrix, controlled: Callable[[Points], Points], how: dict[str, Any]) -> tuple[Points, float]:
    """Controlled values on resamples of the items, and split-half reliability; `how`: statistic, its options, n, seed."""
    halves = matrix.halves(**{name: value for name, value in how.items() if name != "n"})
    return controlled(matrix.resampled(**how)), spearman_brown(_over_points(*map(controlled, halves)))


def _over_points(x: Points, y: Points) -> Float[np.ndarray, "*sample"]:
    """Pearson correlation over all points."""
    return pearson(*(values.reshape(*values.shape[:-2], -1) for values in (x, y)))
