"""One head at a time: greedy searches against loops that ablate and evaluate."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from lens_heads.heads.head import Head
from lens_heads.ranking.masks.greedy import greedy, one_shot
from lens_heads.ranking.masks.measure import MaskedMetric
from tests.conftest import random_trial, tiny
from tests.planted import COPIER, WRITER
from tests.ranking.masks.runs import FOUND, by_loop, measured, model, passes

HEADS = [Head(layer, head) for layer in range(3) for head in range(4)]


def trials() -> list[Any]:
    return [random_trial(i, n) for i, n in enumerate((20, 14, 26))]


@pytest.mark.slow
@pytest.mark.parametrize("arch", ["gpt2", "llama-gqa", "gemma3"])
def test_one_shot_is_the_change_when_each_head_alone_is_ablated(arch: str) -> None:
    model = tiny(arch)
    found = one_shot(MaskedMetric(model, trials(), progress=False))
    base, *alone = by_loop(model, trials(), [[], *([head] for head in HEADS)])
    np.testing.assert_allclose(found, (np.stack(alone) - base).T.reshape(3, 3, 4), atol=5e-5)


def greedy_loop(model: Any, k: int) -> tuple[list[Head], np.ndarray]:
    """The search as one would write it down: try all that are left, keep the one that hurts most."""
    chosen: list[Head] = []
    marginal, before = np.zeros((3, 3, 4)), by_loop(model, trials(), [[]])[0]
    for _ in range(k):
        values = {head: by_loop(model, trials(), [[*chosen, head]])[0] for head in HEADS if head not in chosen}
        worst = min(values, key=lambda head: values[head].mean())
        marginal[:, worst.layer, worst.head] = values[worst] - before
        chosen, before = [*chosen, worst], values[worst]
    return chosen, marginal


@pytest.mark.slow
@pytest.mark.parametrize("arch", ["gpt2", "llama-mqa"])
def test_greedy_adds_the_worst_head_on_top_of_those_before(arch: str) -> None:
    model = tiny(arch)
    chosen, marginal = greedy(MaskedMetric(model, trials(), progress=False), 3)
    expected, changes = greedy_loop(model, 3)
    assert chosen == expected
    np.testing.assert_allclose(marginal, changes, atol=5e-5)
    alone = one_shot(MaskedMetric(model, trials(), progress=False)).mean(0).ravel().argsort()[:3]
    assert [HEADS[i] for i in alone] != chosen, "a search that never looks back at what is ablated proves nothing"


def test_the_changes_add_up_to_what_all_of_them_cost() -> None:
    chosen, marginal = greedy(measured(), 3)
    whole = by_loop(model(), FOUND, [[], chosen])
    np.testing.assert_allclose(marginal.sum((1, 2)), whole[1] - whole[0], atol=5e-5)
    assert (marginal != 0).any(0).sum() == 3


def test_each_round_runs_what_is_left() -> None:
    fresh = MaskedMetric(model(), FOUND, batch_size=4, progress=False)
    chosen, _ = greedy(fresh, 2)
    assert set(chosen) == {COPIER, WRITER}
    assert len(fresh.requested) == 1 + 8 + 7
    with passes(model()) as seen:
        one_shot(fresh)
    assert not seen, "the first round is the one-shot search"


@pytest.mark.slow
@pytest.mark.filterwarnings("error")
def test_it_stops_when_no_further_head_hurts() -> None:
    with pytest.warns(
        UserWarning, match=r"greedy search stopped at [2-7] of 8 heads: ablating one more does not lower"
    ):
        chosen, marginal = greedy(measured(), 8)
    assert set(chosen[:2]) == {COPIER, WRITER}
    mean = marginal.mean(0)
    assert all(mean[head.layer, head.head] < 0 for head in chosen)
    assert (mean != 0).sum() == len(chosen)
    left = [Head(layer, head) for layer in range(2) for head in range(4) if Head(layer, head) not in chosen]
    tried = by_loop(model(), FOUND, [chosen, *([*chosen, head] for head in left)]).mean(1)
    assert (tried[1:] >= tried[0] - 1e-5).all()


@pytest.mark.slow
def test_kv_groups_are_added_as_kv_heads(gqa: Any) -> None:
    chosen, marginal = greedy(MaskedMetric(gqa, trials(), unit="kv_head", progress=False), 1)
    groups = [[(layer, 2 * kv), (layer, 2 * kv + 1)] for layer in range(3) for kv in range(2)]
    base, *values = by_loop(gqa, trials(), [[], *groups])
    worst = int(np.stack(values).mean(1).argmin())
    assert chosen == [Head(worst // 2, worst % 2, "kv_head")]
    assert marginal.shape == (3, 3, 2)
    np.testing.assert_allclose(marginal[:, worst // 2, worst % 2], values[worst] - base, atol=5e-5)


@pytest.mark.parametrize("k", [0, -1, 9])
def test_k_is_one_to_the_number_of_heads(k: int) -> None:
    with (
        passes(model()) as seen,
        pytest.raises(ValueError, match=f"k={k}: must be an integer from 1 to 8, the number of heads"),
    ):
        greedy(MaskedMetric(model(), FOUND, progress=False), k)
    assert not seen
