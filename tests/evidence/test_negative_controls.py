"""Where there is nothing to find, verdicts hold no more often than their level, over 50 seeds of each negative control."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import pytest

import lens_heads as lh
from lens_heads.evidence.verdicts import HOLDS, Verdict, harms
from lens_heads.heads.controls import Controls
from lens_heads.heads.scores import HeadScores
from tests import planted, zoo
from tests.conftest import random_trial, tiny

SEEDS = 50
MOST = 2
"""One in twenty."""

Ranked = tuple[Any, list[Any], HeadScores]
"""A model, trials to judge heads on, and a ranking made on others."""


@cache
def retrieves() -> Any:
    """The planted model, made once."""
    return planted.model()


def located(model: Any, seed: int) -> HeadScores:
    """LOCOS on trials of the selection."""
    select = [random_trial(1000 * seed + i, 20 + i % 5) for i in range(4)]
    return lh.score_heads(model, select, ["locos"], teacher_forced=True, progress=False)["locos"]


def trials(seed: int) -> list[Any]:
    return [random_trial(1000 * seed + 500 + i, 20 + i % 5) for i in range(8)]


def untrained(seed: int) -> Ranked:
    model = lh.sanity.random_initialised(tiny("llama-gqa"), seed=seed)
    return model, trials(seed), located(model, seed)


def shuffled(seed: int) -> Ranked:
    model = lh.sanity.shuffled_outputs(zoo.bridge("qwen3"), seed=seed)
    return model, trials(seed), located(model, seed)


def found(seed: int) -> HeadScores:
    """LOCOS on planted trials about the first three clues."""
    select = planted.trials(3, length=30, seed=seed + 900)
    return lh.score_heads(retrieves(), select, ["locos"], teacher_forced=True, progress=False)["locos"]


def others(seed: int) -> list[Any]:
    """Ten planted trials about the other five."""
    return [trial for i, trial in enumerate(planted.trials(16, length=30, seed=seed + 1)) if i % 8 >= 3]


def permuted(seed: int) -> Ranked:
    """A model that does retrieve, its heads found on true answers, judged by answers of other trials."""
    return retrieves(), lh.sanity.permuted_answers(others(seed), seed=seed), found(seed)


def random_lead(seed: int) -> Ranked:
    model = tiny("llama-gqa")
    return model, trials(seed), lh.sanity.random_ranking(model, seed=seed)


def verdict(model: Any, trials: list[Any], ranking: HeadScores) -> Verdict:
    controls = Controls("random", draws=20, trials=5)
    options: dict[str, Any] = {"kind": "zero", "generate": False, "progress": False, "batch_size": 16}
    return harms(lh.ablation_curve(model, trials, {"lead": ranking}, ks=(3,), controls=controls, **options))


@pytest.mark.slow
@pytest.mark.parametrize("control", [untrained, shuffled, random_lead])
def test_nothing_holds_more_often_than_its_level(control: Callable[[int], Ranked]) -> None:
    assert sum(verdict(*control(seed)).word == HOLDS for seed in range(SEEDS)) <= MOST


@pytest.mark.slow
def test_true_heads_cost_no_permuted_answer() -> None:
    """Not even the interval, without the rank: a model of eight heads has too few sets of three for a rank of one in twenty."""
    assert sum(verdict(*permuted(seed)).cost.low > 0 for seed in range(SEEDS)) <= MOST


@pytest.mark.slow
def test_true_heads_cost_the_true_answer() -> None:
    """The same numbers find what is there: a control that never finds anything would prove nothing."""
    assert all(verdict(retrieves(), others(seed), found(seed)).cost.low > 0 for seed in range(5))
