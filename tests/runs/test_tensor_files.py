"""What users save as tensors comes back whole, or is refused: a checksum sees a single flipped bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

import lens_heads as lh
from tests import zoo

SHAPE = (3, 4, 8)


def _numbers(seed: int) -> torch.Tensor:
    return torch.randn(SHAPE, generator=torch.Generator().manual_seed(seed))


def _look() -> lh.Look:
    tokens = torch.arange(3, 30)
    trial = lh.EncodedTrial(tokens=tokens, needle=(7, 11), answer="x", answer_tokens=tokens[7:9], id="a")
    return lh.look(zoo.bridge("llama-gqa"), trial, heads=["L1H2", "L2H0"])


MADE: dict[str, Any] = {
    "vectors": lambda: lh.HeadVectors(_numbers(0), trial_ids=("a", "b"), meta={"model": "m"}),
    "means": lambda: lh.MeanActivations(_numbers(1), _numbers(2), ("a", "b"), {"model": "m"}),
    "look": _look,
}


@pytest.mark.parametrize("name", MADE)
def test_a_flipped_bit_anywhere_is_refused(name: str, tmp_path: Path) -> None:
    value = MADE[name]()
    file = value.save(tmp_path / "saved.safetensors")
    whole = file.read_bytes()
    start = 8 + int.from_bytes(whole[:8], "little")
    said = whole.index(b"trial")
    for place in (start, start + 5, (start + len(whole)) // 2, len(whole) - 3, len(whole) - 1, said):
        for bit in (0, 6):
            damaged = bytearray(whole)
            damaged[place] ^= 1 << bit
            file.write_bytes(damaged)
            with pytest.raises(ValueError, match=r"saved\.safetensors: not .* save again"):
                type(value).load(file)
    file.write_bytes(whole)
    again = type(value).load(file)
    for held in ("z", "q", "gates", "phi", "attention"):
        if hasattr(value, held):
            assert torch.equal(getattr(again, held), getattr(value, held))


@pytest.mark.parametrize("name", MADE)
def test_a_file_without_a_checksum_still_loads(name: str, tmp_path: Path) -> None:
    """Older versions wrote none."""
    from safetensors import safe_open

    value = MADE[name]()
    file = value.save(tmp_path / "saved.safetensors")
    with safe_open(file, framework="pt") as stored:
        about = {key: text for key, text in stored.metadata().items() if key != "checksum"}
    save_file(load_file(file), tmp_path / "older.safetensors", metadata=about)
    again = type(value).load(tmp_path / "older.safetensors")
    held = "z" if hasattr(value, "z") else "phi"
    assert torch.equal(getattr(again, held), getattr(value, held))
