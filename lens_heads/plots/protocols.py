"""What the figures need of the values they draw: any object with these members can be drawn.

Members that may be a `functools.cached_property` are typed Any, since type checkers do not match it with a property.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from jaxtyping import Float
from torch import Tensor

if TYPE_CHECKING:
    import pandas as pd


class HeadLike(Protocol):
    """One head, hashable; its `str` is its name, "L12H1"."""

    @property
    def layer(self) -> int: ...
    @property
    def head(self) -> int: ...


class ScoresLike(Protocol):
    """Scores of every head of one model by one method.

    `ranking`: all heads, the best first. `unit`: what is scored, "query_head" or "kv_head". `score_unit`: the unit of the
    scores for labels, "" for the method's usual one.
    """

    @property
    def method(self) -> str: ...
    @property
    def values(self) -> Float[Tensor, "layer head"]: ...
    @property
    def per_trial(self) -> Float[Tensor, "trial layer head"]: ...
    @property
    def trial_ids(self) -> Sequence[str]: ...
    @property
    def unit(self) -> str: ...
    @property
    def score_unit(self) -> str: ...
    @property
    def n_layers(self) -> int: ...
    @property
    def n_heads(self) -> int: ...
    def ranking(self) -> Sequence[HeadLike]: ...
    def top(self, k: int, /) -> Sequence[HeadLike]: ...
    def interval(self) -> tuple[Float[Tensor, "layer head"], Float[Tensor, "layer head"]]: ...
    def __getitem__(self, head: Any, /) -> float: ...


class CurveLike(Protocol):
    """An ablation study.

    `frame`: a row per condition and metric with task, method, set, k, metric, value, low, high, seed_min, seed_max.
    `per_trial`: method, set, seed, among others. `rankings`: the methods whose top k was ablated, the lead first.
    """

    @property
    def frame(self) -> Any: ...
    @property
    def per_trial(self) -> pd.DataFrame: ...
    @property
    def metrics(self) -> Sequence[str]: ...
    @property
    def rankings(self) -> Sequence[str]: ...
    @property
    def main_task(self) -> str: ...


class TransferLike(Protocol):
    """A transfer matrix.

    `drop`: a frame with rows (k, source) and columns targets. `statistic("random")`: rows k, columns targets. `cells.base`: the
    mean metric of each target without ablation.
    """

    @property
    def ks(self) -> Sequence[int]: ...
    @property
    def sources(self) -> Sequence[str]: ...
    @property
    def targets(self) -> Sequence[str]: ...
    @property
    def draws(self) -> int: ...
    @property
    def metric(self) -> str: ...
    @property
    def cells(self) -> Any: ...
    def drop(self, relative: bool, /) -> pd.DataFrame: ...
    def statistic(self, name: str, /, **options: bool) -> pd.DataFrame: ...


class CorrelationLike(Protocol):
    """One statistic of two models.

    `points`: k, task, a_controlled, b_controlled, and their intervals a_low, a_high, b_low, b_high where items are known.
    """

    @property
    def points(self) -> pd.DataFrame: ...
    @property
    def names(self) -> tuple[str, str]: ...
    @property
    def statistic(self) -> str: ...
    @property
    def control(self) -> str | None: ...
    @property
    def r2(self) -> float: ...
    @property
    def interval(self) -> tuple[float, float] | None: ...
    @property
    def p(self) -> float: ...
    @property
    def noise_ceiling_r2(self) -> float | None: ...


class GeneralityLike(Protocol):
    """Sets of heads on tasks.

    `frame`: task, base, and random_damage if there are random heads. `metrics`: the metric of each task. `matrix`: a column of
    the frame with rows sources, columns tasks.
    """

    @property
    def frame(self) -> Any: ...
    @property
    def metrics(self) -> Mapping[str, str]: ...
    def matrix(self, column: str, /) -> pd.DataFrame: ...


class MatchLike(Protocol):
    """Heads of model a matched with heads of model b.

    `pairs`: head_a, head_b ("L12H1"), distance, stability. `shape_a`, `shape_b`: layers, heads per layer. `meta`: model_a,
    model_b.
    """

    @property
    def pairs(self) -> pd.DataFrame: ...
    @property
    def shape_a(self) -> tuple[int, int]: ...
    @property
    def shape_b(self) -> tuple[int, int]: ...
    @property
    def meta(self) -> Mapping[str, Any]: ...
