"""Curves over a text: a plain loop on every attention variant, and RazorAttention's choice of heads."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import lens_heads as lh
from lens_heads.plots.tokens import token_curve
from tests import reference, zoo
from tests.conftest import tiny


def ids(n: int = 40) -> torch.Tensor:
    return torch.randint(3, 250, (n,), generator=torch.Generator().manual_seed(4))


def test_curves_match_loops(arch: str, model: Any) -> None:
    tokens = ids()
    found = lh.token_curves(model, tokens, window=5, near=3, far=9)
    spans = lh.score_heads(model, lh.plain_texts([tokens]), ["span"], progress=False)["span"].values
    A = reference.Plain(zoo.hf_model(arch), tokens).A
    n, looked, received = len(tokens), np.full(40, np.nan), np.full(40, np.nan)
    local = [A[layer][int(spans[layer].argmin())] for layer in range(3)]
    distant = [A[layer][int(spans[layer].argmax())] for layer in range(3)]
    for t in range(1, n):
        looked[t] = sum(float(a[t, s]) * min(t - s, 5) for a in local for s in range(t + 1)) / 3
    for s in range(n):
        rows = [t for t in range(1, n) if 3 <= t - s <= 9]
        if rows:
            received[s] = sum(float(a[t, s]) for a in distant for t in rows) / len(rows) / 3
    np.testing.assert_allclose(found["WAAD"].values.numpy(), looked, atol=2e-5, rtol=2e-4)
    np.testing.assert_allclose(found["FAI"].values.numpy(), received, atol=2e-5, rtol=2e-4)


def test_a_curve_has_a_frame_peaks_jumps_and_a_plot() -> None:
    values = torch.tensor([torch.nan, 1.0, 5.0, 4.0, 0.0])
    curve = lh.TokenCurve("WAAD", values, torch.arange(5), ("a", "b", "<c>", "d", "e"))
    assert curve.top(2) == [2, 3]
    assert curve.top(5) == [2, 3, 1, 4]
    assert curve.jumps(share=0.5) == [1, 3]
    assert list(curve.frame.columns) == ["position", "token", "value"]
    figure = curve.plot()
    assert "&lt;c&gt;" in str(figure.data[0].customdata)
    assert figure.layout.yaxis.title.text == "WAAD"
    assert len(token_curve("x", ("a",), np.zeros(1)).data) == 1


def test_heads_can_be_chosen_elsewhere() -> None:
    model = tiny("llama-gqa")
    other = lh.score_heads(model, lh.plain_texts([ids(30)]), ["span"], progress=False)["span"]
    found = lh.token_curves(model, ids(), span=other)
    assert torch.isfinite(found["WAAD"].values[1:]).all()
    wrong = lh.HeadScores.from_trials("span", torch.zeros(1, 2, 2), ["a"])
    with pytest.raises(ValueError, match="span is for a model of 2 layers x 2 heads"):
        lh.token_curves(model, ids(), span=wrong)
    with pytest.raises(ValueError, match="far=2: must be at least near=10"):
        lh.token_curves(model, ids(), far=2)
    with pytest.raises(ValueError, match="share=2"):
        lh.token_curves(model, ids(), share=2)


def test_razor_unites_the_best_by_induction_and_echo() -> None:
    generator = torch.Generator().manual_seed(0)
    induction, echo = (
        lh.HeadScores.from_trials(name, torch.rand(1, 10, 8, generator=generator), ["a"])
        for name in ("induction", "echo")
    )
    chosen = lh.razor_attention_heads(induction, echo, group=2, induction_share=0.1, echo_share=0.05)
    kv = [lh.units.to_kv_heads(scores, 2) for scores in (induction, echo)]
    assert chosen == list(dict.fromkeys([*kv[0].top(4), *kv[1].top(2)]))
    assert len(lh.razor_attention_heads(induction, echo, group=1)) in (11, 12)
    with pytest.raises(ValueError, match="echo_share=0"):
        lh.razor_attention_heads(induction, echo, group=1, echo_share=0)
    small = lh.HeadScores.from_trials("echo", torch.rand(1, 2, 8), ["a"])
    with pytest.raises(ValueError, match="different shapes"):
        lh.razor_attention_heads(induction, small, group=1)
