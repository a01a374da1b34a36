"""Pattern statistics of heads that do one thing, and of random patterns against a loop."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from lens_heads.compare.signatures import STATISTICS, pattern_statistics

START, LENGTH = 1, 5
N = START + 2 * LENGTH


def of(pattern: Tensor) -> dict[str, float]:
    return dict(zip(STATISTICS, pattern_statistics(pattern[None], START, LENGTH)[0].tolist(), strict=True))


def looking_at(key: dict[int, int]) -> Tensor:
    """Row t attends to key[t] alone, else to itself."""
    pattern = torch.zeros(N, N)
    for t in range(N):
        pattern[t, key.get(t, t)] = 1
    return pattern


def test_heads_that_do_one_thing() -> None:
    even = torch.tril(torch.ones(N, N)) / torch.arange(1, N + 1)[:, None]
    found = of(even)
    assert found["entropy"] == pytest.approx(1)
    assert found["distance"] == pytest.approx(0.5)  # Mean of (t - j) / t over j = 0 .. t.
    assert found["sink"] == found["previous"] == pytest.approx((1 / 2 + 1 / 3 + 1 / 4 + 1 / 5 + 1 / 6) / 5)
    assert found["induction"] == pytest.approx((1 / 7 + 1 / 8 + 1 / 9 + 1 / 10) / 4)
    previous = of(looking_at({t: t - 1 for t in range(1, N)}))
    assert previous == pytest.approx(
        {"entropy": 0, "distance": (1 + 1 / 2 + 1 / 3 + 1 / 4 + 1 / 5) / 5, "sink": 0.2, "previous": 1, "induction": 0}
    )
    sink = of(looking_at(dict.fromkeys(range(N), 0)))
    assert sink == pytest.approx({"entropy": 0, "distance": 1, "sink": 1, "previous": 0.2, "induction": 0})
    itself = of(looking_at({}))
    assert itself == pytest.approx(dict.fromkeys(STATISTICS, 0))


def test_an_induction_head_looks_at_what_came_next_the_first_time() -> None:
    """Tokens b x y z u v x y z u v: the second x (position 6) looks at the first y (position 2), and so on."""
    assert of(looking_at({6: 2, 7: 3, 8: 4, 9: 5}))["induction"] == 1
    assert of(looking_at({6: 1, 7: 2, 8: 3, 9: 4}))["induction"] == 0, "the same token is no induction"
    assert of(looking_at({6: 2}))["induction"] == 0.25


@pytest.mark.parametrize(("start", "length"), [(0, 6), (1, 4), (2, 7)])
def test_random_patterns_match_a_loop(start: int, length: int) -> None:
    n, once = start + 2 * length, start + length
    scores = torch.randn(3, n, n, generator=torch.Generator().manual_seed(length), dtype=torch.float64)
    A = scores.masked_fill(torch.ones(n, n).triu(1).bool(), -torch.inf).softmax(-1)
    found = pattern_statistics(A, start, length)
    for h in range(3):
        rows = range(1, once)
        entropy = [-sum(A[h, t, j] * A[h, t, j].log() for j in range(t + 1)) / math.log(t + 1) for t in rows]
        distance = [sum(A[h, t, j] * (t - j) / t for j in range(t + 1)) for t in rows]
        expected = [
            sum(entropy) / len(rows),
            sum(distance) / len(rows),
            sum(A[h, t, 0] for t in rows) / len(rows),
            sum(A[h, t, t - 1] for t in rows) / len(rows),
            sum(A[h, t, t - length + 1] for t in range(once, n - 1)) / (length - 1),
        ]
        torch.testing.assert_close(found[h], torch.stack(expected), check_dtype=False)  # type: ignore[arg-type]
