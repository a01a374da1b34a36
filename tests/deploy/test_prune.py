"""Pruned checkpoints: they load like any other, answer like the ablated model, and are smaller where groups went."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

import lens_heads as lh
from lens_heads.heads.head import Head
from lens_heads.model.geometry import geometry
from lens_heads.model.identity import fingerprint
from tests import zoo
from tests.conftest import random_trial, tiny

HEADS = ["L0H1", "L2H3", "L2H0"]
GROUPED = ("llama-gqa", "qwen3", "gemma2", "olmo2", "olmo3")
"""Two kv heads a layer."""


def tokens() -> torch.Tensor:
    return random_trial(n=20).tokens[None]


@torch.no_grad()
def ablated(model: Any, heads: Any) -> torch.Tensor:
    with lh.ablate(model, heads, "zero"):
        return model(tokens())


@torch.no_grad()
def test_zeroed_heads_are_ablated_heads(model: Any, tmp_path: Path) -> None:
    before = fingerprint(model)
    found = lh.prune(model, HEADS, tmp_path / "pruned")
    assert fingerprint(model) == before
    plain = AutoModelForCausalLM.from_pretrained(found.path, attn_implementation="eager").eval()
    torch.testing.assert_close(plain(tokens()).logits, ablated(model, HEADS), atol=1e-4, rtol=1e-4)
    again = lh.load_model(found.path)
    torch.testing.assert_close(again(tokens()), ablated(model, HEADS), atol=1e-4, rtol=1e-4)
    assert found.heads == tuple(map(Head.parse, HEADS))
    assert found.parameters[0] == found.parameters[1]
    assert again.tokenizer("abc").input_ids == model.tokenizer("abc").input_ids


@pytest.mark.parametrize("arch", [arch for arch in GROUPED if not arch.startswith("olmo")])
@torch.no_grad()
def test_removed_groups_are_gone(arch: str, tmp_path: Path) -> None:
    """The first kv head of some layers, the second of the others."""
    model = tiny(arch)
    group = geometry(model).group
    heads = lh.units.query_heads([(0, 0), (1, 1), (2, 0)], group)
    found = lh.prune(model, heads, tmp_path / "pruned", "remove")
    plain = AutoModelForCausalLM.from_pretrained(found.path, attn_implementation="eager").eval()
    torch.testing.assert_close(plain(tokens()).logits, ablated(model, heads), atol=1e-4, rtol=1e-4)
    again = lh.load_model(found.path)
    shape = geometry(again)
    assert (shape.n_heads, shape.n_kv_heads, shape.d_head) == (group, 1, geometry(model).d_head)
    torch.testing.assert_close(again(tokens()), ablated(model, heads), atol=1e-4, rtol=1e-4)
    assert found.parameters[1] < found.parameters[0]
    assert found.bytes[1] == 4 * found.parameters[1]


@pytest.mark.parametrize(
    ("heads", "message"),
    [
        (["L0H0", "L1H0", "L1H1", "L2H0", "L2H1"], "kv head 0 of layer 0 cannot be removed: L0H1 still need it"),
        (["L0H0", "L0H1"], "layer 0 would keep 1 of 2 kv heads and layer 1 2: a configuration has one number"),
        ([(layer, head) for layer in range(3) for head in range(4)], "layer 0 would keep 0 of 2"),
        (["L9H0"], "head L9H0 does not exist"),
    ],
)
def test_groups_that_cannot_go(gqa: Any, tmp_path: Path, heads: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        lh.prune(gqa, heads, tmp_path / "pruned", "remove")
    assert not (tmp_path / "pruned").exists()


@pytest.mark.parametrize(
    ("arch", "why"), [("gpt2", "has no q_proj of its own"), ("olmo2", "normalizes all heads of a layer together")]
)
def test_models_that_cannot_be_taken_apart(arch: str, why: str, tmp_path: Path) -> None:
    shape = geometry(tiny(arch))
    heads = lh.units.query_heads([(layer, 0) for layer in range(3)], shape.group)
    with pytest.raises(ValueError, match=f"{why}.*use how='zero'"):
        lh.prune(tiny(arch), heads, tmp_path / "pruned", "remove")


def test_bad_folders_and_ways(gqa: Any, tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "notes.txt").write_text("mine")
    with pytest.raises(ValueError, match="exists already: choose another folder"):
        lh.prune(gqa, HEADS, tmp_path / "full")
    assert [file.name for file in (tmp_path / "full").iterdir()] == ["notes.txt"]
    with pytest.raises(ValueError, match="how='drop': use 'zero'"):
        lh.prune(gqa, HEADS, tmp_path / "new", "drop")  # type: ignore[arg-type]
    with lh.ablate(gqa, HEADS, "zero"), pytest.raises(ValueError, match="has hooks attached"):
        lh.prune(gqa, HEADS, tmp_path / "new")
    assert zoo.LAYERS == 3
