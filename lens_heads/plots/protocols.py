"""What figures need of the values they draw: any object with these members can be drawn.

A value that only one or two figures draw is `Any`, with its members listed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from jaxtyping import Float
from torch import Tensor


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
    def trial_ids(self) -> Sequence[str]: ...
    @property
    def unit(self) -> str: ...
    @property
    def score_unit(self) -> str: ...
    def ranking(self) -> Sequence[HeadLike]: ...
    def top(self, k: int, /) -> Sequence[HeadLike]: ...
    def interval(self) -> tuple[Tensor, Tensor, Tensor]: ...
    def __getitem__(self, head: Any, /) -> float: ...


CurveLike = Any
"""An ablation study: `frame` (a row per condition and metric: task, method, set, k, metric, value, low, high, draw_min,
draw_max), `per_trial` (method, set, draw), `metrics`, `rankings` (methods, the lead first) and `main_task`."""

TransferLike = Any
"""A transfer matrix: `ks`, `targets`, `draws`, `metric`, `cells.base` (mean metric per target without ablation), `drop(relative)`
(rows (k, source), columns targets) and `statistic("random", relative=...)` (rows k, columns targets)."""

CorrelationLike = Any
"""One statistic of two models: `points` (k, task, a_controlled, b_controlled; where items are known a_low, a_high, b_low,
b_high), `names`, `statistic`, `r2`, `interval`, `p`, `within` (r2, p, or None) and `noise_ceiling_r2`."""

GeneralityLike = Any
"""Sets of heads on tasks: `frame` (task, base), `metrics` (by task) and `matrix(column)` (rows sources, columns tasks)."""

MatchLike = Any
"""Heads of model a matched with heads of model b: `pairs` (head_a, head_b, distance, stability), `shape_a` and `shape_b`
(layers, heads per layer) and `meta` (model_a, model_b)."""
