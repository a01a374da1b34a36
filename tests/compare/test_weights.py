"""Heads compared by their weights: against d_model x d_model matrices formed outright, and known cases."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from lens_heads import compare
from lens_heads.model.geometry import output_weights
from lens_heads.ranking.one_pass.weighing import value_weights
from tests import planted, zoo
from tests.conftest import tiny


def test_similarity_is_the_cosine_of_the_whole_matrices(arch: str, model: Any) -> None:
    found = compare.ov_similarity(model)
    whole = [
        (value_weights(model, head.layer)[head.head] @ output_weights(model, head.layer)[head.head]).flatten()
        for head in found.heads
    ]
    expected = torch.nn.functional.cosine_similarity(torch.stack(whole)[:, None], torch.stack(whole)[None], dim=-1)
    torch.testing.assert_close(found.values, expected, atol=1e-5, rtol=1e-4)
    layer = compare.ov_similarity(model, layer=1)
    torch.testing.assert_close(layer.values, found.values[4:8, 4:8])
    frame = found.frame
    assert len(frame) == 66
    assert frame["similarity"].is_monotonic_decreasing
    assert found.plot().data[0].z.shape == (12, 12)


def test_another_basis_of_the_values_changes_nothing_and_equal_heads_are_alike() -> None:
    hf, turn = zoo.hf_model("llama-gqa"), torch.linalg.qr(torch.randn(8, 8)).Q
    before = compare.ov_similarity(tiny("llama-gqa")).values
    attention = hf.model.layers[1].self_attn
    with torch.no_grad():
        attention.v_proj.weight[:8] = turn @ attention.v_proj.weight[:8]
        for head in (0, 1):
            attention.o_proj.weight[:, 8 * head : 8 * head + 8] = (
                attention.o_proj.weight[:, 8 * head : 8 * head + 8] @ turn.T
            )
    torch.testing.assert_close(
        compare.ov_similarity(zoo.bridge("llama-gqa", hf=hf)).values, before, atol=1e-5, rtol=1e-4
    )
    twins = zoo.hf_model("llama-gqa")
    with torch.no_grad():
        output = twins.model.layers[1].self_attn.o_proj.weight
        output[:, 8:16] = output[:, :8]
    alike = compare.ov_similarity(zoo.bridge("llama-gqa", hf=twins), layer=1)
    assert float(alike.values[0, 1]) == pytest.approx(1, abs=1e-5)


def test_one_changed_head_changed_most(arch: str) -> None:
    before, hf = tiny(arch), zoo.hf_model(arch)
    same = compare.weight_change(before, zoo.bridge(arch))
    assert all(float(scores.values.max()) == 0 for scores in same.values())
    size = before.cfg.d_head
    with torch.no_grad():
        if arch == "gpt2":
            hf.transformer.h[1].attn.c_proj.weight[2 * size : 3 * size] *= 1.5
        else:
            hf.model.layers[1].self_attn.o_proj.weight[:, 2 * size : 3 * size] *= 1.5
    found = compare.weight_change(before, zoo.bridge(arch, hf=hf))
    assert [str(head) for head in found["W_O"].top(1)] == ["L1H2"]
    assert found["W_O"]["L1H2"] == pytest.approx(0.5, abs=1e-5)
    assert float(found["W_O"].values.sum()) == pytest.approx(0.5, abs=1e-5)
    assert float(found["W_V"].values.sum()) == 0
    assert found["W_K"].unit == "kv_head"
    assert found["W_K"].values.shape == (3, kv_heads(before))


def kv_heads(model: Any) -> int:
    return getattr(model.cfg, "n_key_value_heads", None) or model.cfg.n_heads


def test_what_does_not_fit_is_named(gqa: Any) -> None:
    with pytest.raises(ValueError, match="have different shapes"):
        compare.weight_change(gqa, tiny("llama-mqa"))
    with pytest.raises(ValueError, match="layer=7: llama-gqa has layers 0-2"):
        compare.ov_similarity(gqa, layer=7)
    with pytest.raises(ValueError, match=f"{planted.DECOY} has an OV circuit of zero"):
        compare.ov_similarity(planted.model())
    with pytest.raises(ValueError, match="W_Q of head 0 in layer 0 is zero before"):
        compare.weight_change(planted.model(), planted.model())
