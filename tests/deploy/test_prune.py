"""Pruned checkpoints: they load like any other, answer like the ablated model, and are smaller where groups went."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors import SafetensorError
from transformers import AutoModelForCausalLM

import lens_heads as lh
from lens_heads.deploy import smaller
from lens_heads.heads.head import Head
from lens_heads.model.geometry import head_geometry
from lens_heads.model.identity import fingerprint
from tests import zoo
from tests.conftest import random_trial, tiny
from tests.families import family_folder

HEADS = ["L0H1", "L2H3", "L2H0"]
GROUPED = ("llama-gqa", "qwen3", "gemma2", "olmo2", "olmo3")
"""Two kv heads a layer."""


def tokens() -> torch.Tensor:
    return random_trial(n=20).tokens[None]


@torch.no_grad()
def ablated(model: Any, heads: Any) -> torch.Tensor:
    with lh.ablate(model, heads, kind="zero"):
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
    group = head_geometry(model).group
    heads = lh.units.query_heads([(0, 0), (1, 1), (2, 0)], group)
    found = lh.prune(model, heads, tmp_path / "pruned", how="remove")
    plain = AutoModelForCausalLM.from_pretrained(found.path, attn_implementation="eager").eval()
    torch.testing.assert_close(plain(tokens()).logits, ablated(model, heads), atol=1e-4, rtol=1e-4)
    again = lh.load_model(found.path)
    shape = head_geometry(again)
    assert (shape.n_heads, shape.n_kv_heads, shape.d_head) == (group, 1, head_geometry(model).d_head)
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
        lh.prune(gqa, heads, tmp_path / "pruned", how="remove")
    assert not (tmp_path / "pruned").exists()


@pytest.mark.parametrize(
    ("arch", "why"),
    [
        (
            "gpt2",
            "3 of 4 kv heads a layer leave 3 query heads, .* does not load GPT2LMHeadModel .*: no other number fits",
        ),
        ("olmo2", "normalizes all heads of a layer together"),
    ],
)
def test_models_that_cannot_be_taken_apart(arch: str, why: str, tmp_path: Path) -> None:
    shape = head_geometry(tiny(arch))
    heads = lh.units.query_heads([(layer, 0) for layer in range(3)], shape.group)
    with pytest.raises(ValueError, match=f"{why}.*use how='zero'"):
        lh.prune(tiny(arch), heads, tmp_path / "pruned", how="remove")


REMOVED = ["gpt-oss", "laguna", "llama", "olmo", "phi3", "qwen2", "vaultgemma"]
"""A sink for each head, a gate and a number of heads for each layer, a width that is no multiple of the remaining heads, norms
without weights, one projection of queries, keys and values, biases, and no head_dim in the configuration."""


@pytest.mark.slow
@pytest.mark.parametrize("name", REMOVED)
@torch.no_grad()
def test_what_carries_heads_is_cut(name: str, tmp_path: Path) -> None:
    """Another kv head in each layer, so that nothing is right by chance; as transformers reads it, and as we do."""
    model = lh.load_model(family_folder(name, tmp_path / "whole"), device="cpu")
    shape = head_geometry(model)
    heads = lh.units.query_heads([(layer, 1 - layer % 2) for layer in range(shape.n_layers)], shape.group)
    found = lh.prune(model, heads, tmp_path / "pruned", how="remove")
    expected = ablated(model, heads)
    plain = AutoModelForCausalLM.from_pretrained(found.path, attn_implementation="eager").eval()
    torch.testing.assert_close(plain(tokens()).logits, expected, atol=1e-4, rtol=1e-4)
    again = lh.load_model(found.path, device="cpu")
    torch.testing.assert_close(again(tokens()), expected, atol=1e-4, rtol=1e-4)
    assert (head_geometry(again).n_kv_heads, head_geometry(again).d_head) == (shape.n_kv_heads - 1, shape.d_head)
    assert again.tokenizer("abc").input_ids == model.tokenizer("abc").input_ids
    told = json.loads((found.path / "config.json").read_text())
    assert told["head_dim"] == shape.d_head
    # 9 heads of 12: the width of 48 is no multiple of 9.
    assert told["model_type"] == ("mistral" if name == "llama" else model.original_model.config.model_type)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("stablelm", r"StableLmForCausalLM makes 2 heads of 32 / 2 = 16 dimensions, not of 8"),
        ("llama-biased", r"3 of 4 kv heads a layer leave 9 query heads, .*keep 1 or 2 of 4, or use how='zero'"),
        ("falcon-alibi", r"does not load FalconForCausalLM .*: no other number fits, or use how='zero'"),
        ("olmoe", r"OlmoeForCausalLM does not run with fewer heads"),
        ("bitnet", r"BitNetForCausalLM does not run with fewer heads"),
    ],
)
def test_what_no_checkpoint_could_say_is_refused_before_anything_is_written(
    name: str, message: str, tmp_path: Path
) -> None:
    model = lh.load_model(family_folder(name, tmp_path / "whole"), device="cpu")
    shape = head_geometry(model)
    heads = lh.units.query_heads([(layer, 1 - layer % 2) for layer in range(shape.n_layers)], shape.group)
    with pytest.raises(ValueError, match=message):
        lh.prune(model, heads, tmp_path / "new" / "pruned", how="remove")
    assert [path.name for path in tmp_path.iterdir()] == ["whole"]


@pytest.mark.slow
@torch.no_grad()
def test_alibi_is_compared_by_eager_attention(tmp_path: Path) -> None:
    """Falcon's sdpa gives other logits with ALiBi."""
    model = lh.load_model(family_folder("falcon-alibi", tmp_path / "whole"), device="cpu")
    found = lh.prune(model, ["L0H1"], tmp_path / "pruned")
    plain = AutoModelForCausalLM.from_pretrained(found.path, attn_implementation="eager").eval()
    torch.testing.assert_close(plain(tokens()).logits, ablated(model, ["L0H1"]), atol=1e-4, rtol=1e-4)


def test_other_logits_are_seen_before_anything_is_written(
    gqa: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The check can fail: the other kv head of a layer is cut out."""
    heads = lh.units.query_heads([(layer, 0) for layer in range(3)], 2)
    monkeypatch.setattr(smaller, "_blocks", lambda tensor, number, kept: tensor.flip(0)[: len(tensor) // 2])
    with pytest.raises(ValueError, match=r"would give other logits than the model with these heads ablated"):
        lh.prune(gqa, heads, tmp_path / "new" / "pruned", how="remove")
    assert not list(tmp_path.iterdir())


def test_where_to_stop_is_kept(tmp_path: Path) -> None:
    model = lh.load_model(family_folder("qwen2", tmp_path / "whole"), device="cpu")
    model.original_model.generation_config.eos_token_id = [2, 7]
    found = lh.prune(model, ["L0H0"], tmp_path / "pruned")
    assert AutoModelForCausalLM.from_pretrained(found.path).generation_config.eos_token_id == [2, 7]


# Full disks and killed processes


@pytest.mark.slow
@pytest.mark.parametrize("error", [SafetensorError, Exception])
def test_a_full_disk_is_an_os_error_that_names_the_folder(
    error: type[Exception], gqa: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What safetensors and tokenizers say of a full disk, word for word; nothing is left, the parent folder included."""

    def full(self: Any, path: Path, **given: Any) -> None:
        Path(path).mkdir(parents=True)
        (Path(path) / "model.safetensors").write_bytes(b"half")
        raise error("I/O error: No space left on device (os error 28)")

    monkeypatch.setattr(transformers.PreTrainedModel, "save_pretrained", full)
    with pytest.raises(OSError, match=r"new/pruned cannot be written \(No space left on device\): free some space"):
        lh.prune(gqa, HEADS, tmp_path / "new" / "pruned")
    assert not list(tmp_path.iterdir())


def test_other_errors_stay_what_they_are(gqa: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: Any, path: Path, **given: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(transformers.PreTrainedModel, "save_pretrained", broken)
    with pytest.raises(KeyboardInterrupt):
        lh.prune(gqa, HEADS, tmp_path / "pruned")
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_a_killed_call_s_leftovers_go_with_the_next_and_a_live_one_s_stay(gqa: Any, tmp_path: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", KILLED, str(tmp_path)], stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"writing\n"
    lh.prune(gqa, HEADS, tmp_path / "first")
    held = [path for path in tmp_path.iterdir() if path.name.startswith(".pruning-")]
    assert [path.name for path in held[0].iterdir()] == ["model"]  # A live process is left alone.
    process.kill()
    process.communicate()
    elsewhere, old = tmp_path / ".pruning-aabbccdd-1-ee", tmp_path / ".pruning-abcdefgh"
    for folder in (elsewhere, old):  # Of another machine, and of an earlier version.
        folder.mkdir()
    os.utime(old, (0, 0))
    lh.prune(gqa, HEADS, tmp_path / "second")
    assert sorted(path.name for path in tmp_path.iterdir()) == [elsewhere.name, "first", "second"]


KILLED = """
import sys, time
from pathlib import Path
from lens_heads.runs.files import temporary_folder
with temporary_folder(Path(sys.argv[1]), "pruning") as folder:
    (folder / "model").mkdir()
    print("writing", flush=True)
    time.sleep(600)
"""


def test_bad_folders_and_ways(gqa: Any, tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "notes.txt").write_text("mine")
    with pytest.raises(ValueError, match="exists already: choose another folder"):
        lh.prune(gqa, HEADS, tmp_path / "full")
    assert [file.name for file in (tmp_path / "full").iterdir()] == ["notes.txt"]
    with pytest.raises(ValueError, match="how='drop': use 'zero'"):
        lh.prune(gqa, HEADS, tmp_path / "new", how="drop")  # type: ignore[arg-type]
    with lh.ablate(gqa, HEADS, kind="zero"), pytest.raises(ValueError, match="has hooks attached"):
        lh.prune(gqa, HEADS, tmp_path / "new")
    assert zoo.LAYERS == 3
