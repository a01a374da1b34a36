"""What identifies a model: every weight and buffer counts, the order they are in, and nothing hooked on."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import xxhash

from lens_heads.model.hooks import hooked
from lens_heads.model.identity import fingerprint, identify
from lens_heads.model.run_folders import folder_for
from lens_heads.runs.digests import hashed
from tests import zoo


class Projection(torch.nn.Module):
    """An output projection of 32 heads, as large as in an 8B model; takes the place of a HookedTransformer."""

    def __init__(self) -> None:
        super().__init__()
        self.hook_dict: dict[str, Any] = {}
        self.o_proj = torch.nn.Linear(4096, 4096, bias=False, dtype=torch.bfloat16)
        self.register_buffer("inv_freq", torch.arange(8.0))


@pytest.fixture(scope="module")
def large() -> Projection:
    torch.manual_seed(0)
    return Projection()


@pytest.mark.parametrize("head", [0, 1, 17, 31])
def test_every_head_of_a_large_projection_counts(large: Projection, head: int) -> None:
    """A sample whose stride divides the row length sees the same few columns of every row."""
    before, columns = fingerprint(large), slice(128 * head, 128 * (head + 1))
    kept = large.o_proj.weight.data[:, columns].clone()
    large.o_proj.weight.data[:, columns] *= 1.01
    assert fingerprint(large) != before
    large.o_proj.weight.data[:, columns] = kept
    assert fingerprint(large) == before


def test_one_element_and_the_order_count(large: Projection) -> None:
    before, weight = fingerprint(large), large.o_proj.weight.data
    kept = weight[1234, 2345].clone()
    weight[1234, 2345] += 1
    assert fingerprint(large) != before
    weight[1234, 2345] = kept
    large.o_proj.weight.data = weight.T.contiguous()
    assert fingerprint(large) != before
    large.o_proj.weight.data = weight
    large.inv_freq[3] += 1
    assert fingerprint(large) != before, "a buffer"
    large.inv_freq[3] -= 1
    assert fingerprint(large) == before


@pytest.mark.slow
def test_the_same_weights_in_another_process_or_place_are_the_same() -> None:
    one, other = zoo.bridge("llama-gqa"), zoo.bridge("llama-gqa")
    assert identify(one) == identify(other)
    for name, parameter in other.original_model.named_parameters():
        with torch.no_grad():
            parameter.reshape(-1)[-1] += 0.5
        assert identify(one) != identify(other), name
        with torch.no_grad():
            parameter.reshape(-1)[-1] -= 0.5


def test_a_run_folder_cannot_identify_hooks(tmp_path: Path) -> None:
    model = zoo.bridge("llama-gqa")
    with (
        hooked(model, [("blocks.0.attn.hook_z", lambda z, hook: z * 0)]),
        pytest.raises(ValueError, match=r"has hooks attached .*omit out="),
    ):
        folder_for(model, tmp_path / "run", {})
    assert folder_for(model, None, {}) is None
    assert SimpleNamespace(path=tmp_path / "run").path == folder_for(model, tmp_path / "run", {}).path  # type: ignore[union-attr]


def test_a_tensor_of_several_parts_is_hashed_whole() -> None:
    tensor = torch.arange(2**24 + 3, dtype=torch.int32)
    assert hashed(tensor, xxhash.xxh3_128()) == xxhash.xxh3_128_hexdigest(tensor.numpy())
    assert hashed(tensor[::2], xxhash.xxh3_128()) == xxhash.xxh3_128_hexdigest(tensor[::2].clone().numpy())
