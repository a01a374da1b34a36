"""Pooled scores are those of scoring all trials together."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from lens_heads import compare, score_heads
from lens_heads.heads.scores import HeadScores
from lens_heads.runs.identity import ModelIdentity
from tests.conftest import random_trial


def made(method: str = "dla", heads: int = 4, ids: tuple[str, str] = ("a", "b"), **meta: Any) -> HeadScores:
    return HeadScores.from_trials(method, torch.arange(2.0 * 3 * heads).reshape(2, 3, heads), ids, **meta)


def test_pooled_scores_are_those_of_all_trials_at_once(gqa: Any) -> None:
    trials = [random_trial(seed, n=20 + seed) for seed in range(5)]
    how: dict[str, Any] = {"methods": "dla", "teacher_forced": True, "progress": False}
    parts = {"one": trials[:2], "other": trials[2:]}
    pooled = compare.pool_scores({task: score_heads(gqa, part, **how)["dla"] for task, part in parts.items()})
    together = score_heads(gqa, trials, **how)["dla"]
    torch.testing.assert_close(pooled.per_trial, together.per_trial)
    torch.testing.assert_close(pooled.values, together.values)
    assert pooled.trial_ids == together.trial_ids
    assert pooled.method == together.method
    assert pooled.outcomes == together.outcomes == {"passed": 5}
    for field in ("trials", "n_trials"):
        assert pooled.meta[field] == together.meta[field]


def test_the_null_of_pooled_scores_is_that_of_all_trials(gqa: Any) -> None:
    trials = [random_trial(seed, n=20 + seed) for seed in range(5)]
    how: dict[str, Any] = {"methods": "locos", "teacher_forced": True, "progress": False}

    def scores(part: Any, draws: int) -> HeadScores:
        return score_heads(gqa, part, null_spans=draws, **how)["locos"]

    pooled = compare.pool_scores({"one": scores(trials[:2], 3), "other": scores(trials[2:], 3)})
    torch.testing.assert_close(pooled.null, scores(trials, 3).null)
    for one, other in ((3, 0), (0, 3), (2, 3)):
        assert compare.pool_scores({"one": scores(trials[:2], one), "other": scores(trials[2:], other)}).null is None


def test_pooled_scores_keep_the_settings_that_all_have() -> None:
    one, other = made(settings={"kind": "zero", "metric": "logprob"}), made(ids=("c", "d"), settings={"kind": "zero"})
    for pair in ((one, other), (other, one)):
        assert compare.pool_scores(dict(zip("ab", pair, strict=True))).settings == {"kind": "zero"}


@pytest.mark.parametrize(
    ("scores", "message"),
    [
        ({}, "there are no rankings"),
        (
            {"one": made(), "other": made(heads=2)},
            "3 layers x 4 query heads against 3 layers x 2 query heads",
        ),
        (
            {"one": made(), "other": replace(made(), unit="kv_head")},
            "4 query heads against 3 layers x 4 kv heads",
        ),
        ({"one": made(), "other": made(ids=("c", "b"))}, "trial 'b' would count 2 times"),
        (
            {"one": made(model=ModelIdentity("x")), "other": made(model=ModelIdentity("y"))},
            "one scores x, but other scores y. Pool scores of one model",
        ),
        ({"one": made(), "other": made("qr")}, "one uses dla, but other uses qr. Pool scores of one method"),
        (
            {"one": made(), "other": made(order=["L0H1"])},
            "other: dla has an explicit order of heads. Localize on all",
        ),
    ],
)
def test_what_cannot_be_pooled_is_named(scores: dict[str, HeadScores], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        compare.pool_scores(scores)
