"""Permutation test of a correlation over tasks, with tasks permuted inside strata and covariates taken out of both sides.

Tasks with one answer format (a number, a name, a place) differ from tasks with another in whatever is measured. That alone
correlates any two models; within strata it does not count. Columns of a [k, task] table are permuted as a whole, because a
task that is fragile at one k is fragile at all: tasks are the units, not points.

With covariates, the null permutes residuals and takes the covariates out again (Freedman and Lane, "A nonstochastic
interpretation of reported significance levels", 1983): without that the p value is too small where tasks are few.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias

import numpy as np
from jaxtyping import Float, Int

from lens_heads.runs import checks
from lens_heads.runs.drawn import OneRow
from lens_heads.runs.typed import typed
from lens_heads.stats.correlation import ROUNDING, covariate_basis, within_strata

Table: TypeAlias = Float[np.ndarray, " task"] | Float[np.ndarray, "k task"]
Covariates: TypeAlias = Float[np.ndarray, "covariate task"] | Float[np.ndarray, "covariate k task"]
EXHAUSTIVE, SAMPLED = 50_000, 10_000
"""Most arrangements that are all tried, and how many are sampled of more."""


@dataclass(frozen=True)
class Permutation(OneRow):
    """A correlation over tasks, and how often other arrangements of the tasks correlate as much.

    `r`: Pearson's, signed, over all points (k, task), of what strata and covariates leave at each k. `p`: one-sided, the share
    of arrangements with an r at least as large; `p_two_sided`: at least as far from 0. `smallest_p`: the smallest p that is
    possible with these strata. `arrangements`: those tried; `exact`: all there are. r and both p are NaN where one side has
    nothing left that varies, or where covariates leave fewer than two degrees of freedom.

    Example:
        >>> found = lh.stats.permutation_test([1.0, 2.0, 3.0, 4.0, 5.0], [2.0, 4.0, 6.0, 8.0, 10.0])
        >>> found.arrangements, found.exact
        (120, True)
    """

    r: float
    p: float
    p_two_sided: float
    smallest_p: float
    arrangements: int
    exact: bool

    @property
    def r2(self) -> float:
        return self.r**2

    def can_tell(self, *, alpha: float = 0.05) -> bool:
        """Whether any data with these strata could have p <= alpha."""
        return math.isfinite(self.p) and self.smallest_p <= checks.share("alpha", alpha, "0.05")

    def verdict(self, *, alpha: float = 0.05) -> str:
        """ "correlated" if p <= alpha, else "cannot be told": always so where `can_tell` is False."""
        return "correlated" if self.can_tell(alpha=alpha) and self.p <= alpha else "cannot be told"


@typed
def permutation_test(
    a: Table,
    b: Table,
    *,
    strata: Sequence[Hashable] | str | None = None,
    covariates: tuple[Covariates, Covariates] | None = None,
    n: int | None = None,
    seed: int = 0,
) -> Permutation:
    """Correlate two tables over tasks and permute b's tasks inside strata.

    Args:
        a, b: one value per task, or rows of values per k. Each row is fitted on its own, with a mean per stratum.
        strata: a label per task; None puts all tasks into one stratum.
        covariates: what is taken out of a, and what out of b, by least squares, within strata and with slopes per k.
        n: tries all arrangements if these are no more, else samples n; None tries all of up to 50,000, else samples 10,000.

    Raises ValueError for shapes that do not match and numbers that are not finite.

    `seed`: of the sampled arrangements.

    Example:
        >>> found = lh.stats.permutation_test([1.0, 2.0, 3.0, 4.0, 5.0], [2.0, 4.0, 6.0, 8.0, 10.0])
        >>> round(found.r, 6), round(found.p * found.arrangements)
        (1.0, 1)
    """
    n = None if n is None else checks.count("n", n, remedy=", or None")
    checks.seed(seed)
    a, b = _table("a", a), _table("b", b)
    if a.shape != b.shape or a.shape[1] < 2:
        raise ValueError(
            f"a of shape {list(a.shape)}, b of shape {list(b.shape)}: must be the same, with two tasks or more"
        )
    codes = _codes(strata, a.shape[1])
    bases = [_basis(name, each, codes, a.shape) for name, each in zip("ab", covariates or (None, None), strict=True)]
    x, y = (_residuals(values, codes, basis) for values, basis in zip((a, b), bases, strict=True))
    orders, exact = _orders(codes, n, seed)
    extra = 0 if exact else 1
    smallest = 1 / (len(orders) + extra)
    taken = max((int((basis**2).sum((1, 2)).max().round()) for basis in bases if basis.shape[-1]), default=0)
    if x is None or y is None or (taken and a.shape[1] - len(set(codes.tolist())) - taken < 2):
        return Permutation(math.nan, math.nan, math.nan, smallest, len(orders), exact)
    r, found = _correlations(x, y, bases[1], orders)
    hits = found >= r - ROUNDING, np.abs(found) >= abs(r) - ROUNDING
    p, two_sided = (float((each.sum() + extra) / (len(orders) + extra)) for each in hits)
    return Permutation(r, p, two_sided, smallest, len(orders), exact)


def _correlations(
    x: Float[np.ndarray, "k task"],
    y: Float[np.ndarray, "k task"],
    basis: Float[np.ndarray, "k task direction"],
    orders: Int[np.ndarray, "order task"],
) -> tuple[float, Float[np.ndarray, " order"]]:
    """r, and r in every order of y's columns, with y's covariates (`basis`) taken out again.

    Taking them out of x instead gives the same sum of products, which are then computed once for each pair of tasks.
    """
    tasks, size = np.arange(x.shape[1]), np.linalg.norm(x)
    products = _without(x, basis).T @ y
    spread = np.full(len(orders), (y**2).sum())
    for start in range(0, len(orders) if basis.shape[-1] else 0, 5000):
        rows = slice(start, start + 5000)
        explained = np.einsum("kot,ktd->kod", y[:, orders[rows]], basis)
        spread[rows] -= (explained**2).sum((0, 2))
    left = spread > ROUNDING * (y**2).sum()
    found = np.divide(
        products[tasks, orders].sum(1), size * np.sqrt(np.where(left, spread, 1.0)), where=left, out=0 * spread
    )
    return float((x * y).sum() / (size * np.linalg.norm(y))), found


def _orders(codes: Int[np.ndarray, " task"], n: int | None, seed: int) -> tuple[Int[np.ndarray, "order task"], bool]:
    """Arrangements of the tasks inside their strata, and whether these are all."""
    sizes = np.bincount(codes).tolist()
    if math.prod(map(math.factorial, sizes)) <= (n or EXHAUSTIVE):
        return _every_order(tuple(codes.tolist())), True
    rng, orders = np.random.default_rng(seed), np.tile(np.arange(len(codes)), (n or SAMPLED, 1))
    for members in (np.flatnonzero(codes == code) for code in range(len(sizes))):
        orders[:, members] = rng.permuted(orders[:, members], axis=1)
    return orders, False


@lru_cache(maxsize=4)
def _every_order(codes: tuple[int, ...]) -> Int[np.ndarray, "order task"]:
    strata = [[task for task, code in enumerate(codes) if code == each] for each in range(max(codes) + 1)]
    shuffles = itertools.product(*(itertools.permutations(members) for members in strata))
    moved = np.array([list(itertools.chain.from_iterable(each)) for each in shuffles])
    return moved[:, np.argsort(list(itertools.chain.from_iterable(strata)))]


def _codes(strata: Sequence[Hashable] | None, tasks: int) -> Int[np.ndarray, " task"]:
    """Strata numbered from 0 in the order in which they appear."""
    labels = [0] * tasks if strata is None else list(strata)
    if len(labels) != tasks:
        raise ValueError(f"strata has {len(labels)} labels for {tasks} tasks: must have one per task")
    numbers = {label: number for number, label in enumerate(dict.fromkeys(labels))}
    return np.array([numbers[label] for label in labels])


def _table(name: str, values: Table) -> Float[np.ndarray, "k task"]:
    table = np.atleast_2d(checks.finite_values(name, values))
    if table.ndim != 2:
        raise ValueError(f"{name} of shape {list(table.shape)}: must be [task] or [k, task]")
    return table


def _basis(
    name: str, covariates: Covariates | None, codes: Int[np.ndarray, " task"], shape: tuple[int, ...]
) -> Float[np.ndarray, "k task direction"]:
    """`covariate_basis` of one side; no directions without covariates."""
    if covariates is None:
        return np.zeros((*shape, 0))
    values = checks.finite_values(f"covariates of {name}", covariates)
    if values.ndim not in (2, 3) or values.shape[-1] != shape[1] or (values.ndim == 3 and values.shape[1] != shape[0]):
        wanted = f"[covariate, {shape[1]}] or [covariate, {shape[0]}, {shape[1]}]"
        raise ValueError(f"covariates of {name} have shape {list(values.shape)}: must be {wanted}")
    by_k = values if values.ndim == 3 else values[:, None]
    return covariate_basis(np.broadcast_to(by_k, (len(values), *shape)), codes)


def _residuals(
    values: Float[np.ndarray, "k task"], codes: Int[np.ndarray, " task"], basis: Float[np.ndarray, "k task direction"]
) -> Float[np.ndarray, "k task"] | None:
    """What strata and covariates leave of the values; None if that is nothing but rounding errors."""
    left = _without(within_strata(values, codes), basis)
    return left if np.linalg.norm(left) > ROUNDING * np.linalg.norm(values) else None


def _without(
    values: Float[np.ndarray, "k task"], basis: Float[np.ndarray, "k task direction"]
) -> Float[np.ndarray, "k task"]:
    return values - np.einsum("ktd,kd->kt", basis, np.einsum("ktd,kt->kd", basis, values))
