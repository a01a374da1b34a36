"""Linear CKA against plain loops over the published formulas, and what any similarity of representations must satisfy."""

from __future__ import annotations

import importlib
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from lens_heads.compare import linear_cka

module: Any = importlib.import_module("lens_heads.compare.cka")


def draw(rows: int, heads: int, d: int, seed: int) -> Tensor:
    return torch.randn(rows, heads, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def hsic_1(x: Tensor, y: Tensor) -> float:
    """Song et al. 2012, eq. 5, one entry at a time: K and L without their diagonals."""
    n = len(x)
    K = [[0.0 if i == j else float(x[i] @ x[j]) for j in range(n)] for i in range(n)]
    L = [[0.0 if i == j else float(y[i] @ y[j]) for j in range(n)] for i in range(n)]
    every = range(n)
    trace = sum(K[i][j] * L[j][i] for i in every for j in every)
    sums = sum(K[i][j] for i in every for j in every) * sum(L[i][j] for i in every for j in every)
    chain = sum(K[i][j] * L[j][k] for i in every for j in every for k in every)
    return (trace + sums / ((n - 1) * (n - 2)) - 2 * chain / (n - 2)) / (n * (n - 3))


def matches_the_loop(rows: int, chunk: int) -> None:
    x, y = draw(rows, 2, 3, 0) + 2, draw(rows, 3, 5, 1) - 1
    y[:, 0, :3] += x[:, 1]
    found = linear_cka(x, y, chunk=chunk)
    parts = torch.arange(rows).tensor_split(-(-rows // chunk))
    for a in range(2):
        for b in range(3):
            between = sum(hsic_1(x[part, a], y[part, b]) for part in parts)
            of_a, of_b = (sum(hsic_1(z[part, i], z[part, i]) for part in parts) for z, i in ((x, a), (y, b)))
            assert float(found[a, b]) == pytest.approx(between / (of_a * of_b) ** 0.5, abs=1e-9)


@pytest.mark.parametrize(("rows", "chunk"), [(4, 8), (9, 128), (9, 8), (21, 10)])
def test_it_is_the_ratio_of_summed_unbiased_hsics(rows: int, chunk: int) -> None:
    matches_the_loop(rows, chunk)


def test_a_biased_estimator_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def biased(x: Tensor) -> Tensor:
        x = x - x.mean(0)
        return torch.einsum("ihd,jhd->hij", x, x).flatten(1)

    monkeypatch.setattr(module, "_centred_gram", biased)
    with pytest.raises(AssertionError):
        matches_the_loop(9, 128)


@settings(max_examples=25, deadline=None)
@given(st.integers(5, 20), st.integers(1, 6), st.integers(0, 10_000), st.floats(0.01, 100))
def test_rotation_shift_and_scale_change_nothing(rows: int, d: int, seed: int, scale: float) -> None:
    x, y = draw(rows, 2, d, seed), draw(rows, 3, d, seed + 1)
    turn = torch.linalg.qr(draw(d, 1, d, seed + 2)[:, 0]).Q
    torch.testing.assert_close(linear_cka(x @ turn * scale + 7, y), linear_cka(x, y), atol=1e-7, rtol=0)
    torch.testing.assert_close(linear_cka(x, x).diagonal(), torch.ones(2, dtype=x.dtype))
    torch.testing.assert_close(linear_cka(x, y), linear_cka(y, x).T)


def test_independent_activations_are_around_zero_where_the_biased_estimator_is_not() -> None:
    x, y = draw(30, 12, 20, 0), draw(30, 12, 20, 1)
    found = linear_cka(x, y)
    assert abs(float(found.mean())) < 0.02
    assert float(found.min()) < 0 < float(found.max())
    centred = [(z - z.mean(0)).transpose(0, 1) for z in (x, y)]
    K, L = (z @ z.transpose(1, 2) for z in centred)
    biased = torch.einsum("hij,hij->h", K, L) / (K.flatten(1).norm(dim=1) * L.flatten(1).norm(dim=1))
    assert float(biased.min()) > 0.3


def test_half_shared_signal_lies_between() -> None:
    shared, noise = draw(200, 1, 4, 0), draw(200, 1, 4, 1)
    near, far = (float(linear_cka(shared, shared + amount * noise)) for amount in (0.5, 2.0))
    assert 0.05 < far < near < 0.95


def test_float32_far_from_zero_is_as_good() -> None:
    x, y = draw(60, 2, 8, 0), draw(60, 2, 8, 1)
    torch.testing.assert_close(
        linear_cka(x.float() + 100, (x + y).float() - 100).double(), linear_cka(x, x + y), atol=1e-4, rtol=0
    )


def test_a_head_that_never_changes_is_like_none() -> None:
    x = draw(10, 2, 3, 0)
    x[:, 0] = 1.0
    assert linear_cka(x, x).tolist() == [[0, 0], [0, pytest.approx(1)]]


def test_rows_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match="x has 9 rows, but y has 8"):
        linear_cka(draw(9, 1, 2, 0), draw(8, 1, 2, 0))
    with pytest.raises(ValueError, match="x has 3 rows, but the unbiased HSIC requires at least 4"):
        linear_cka(draw(3, 1, 2, 0), draw(3, 1, 2, 0))
    with pytest.raises(ValueError, match="chunk=7: must be an integer of at least 8"):
        linear_cka(draw(30, 1, 2, 0), draw(30, 1, 2, 0), chunk=7)
