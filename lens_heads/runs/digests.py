"""Hashes of values and tensors: complete, and the same in every process."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor


def digest(value: Any) -> str:
    """A short hash of any JSON-serializable value; other objects count as their string."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()[:16]


def file_digest(path: Path) -> str:
    """A short hash of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:16]


def hashed(tensor: Tensor, by: Any) -> str:
    """The hex digest by `hashlib.sha256()`, say, of all bytes of a tensor's values, in order.

    A GPU's come through pinned memory, to which it copies fastest: every call hashes all weights.
    """
    for part in tensor.detach().contiguous().reshape(-1).view(torch.uint8).split(2**26):
        if part.device.type != "cpu":
            part = torch.empty(len(part), dtype=torch.uint8, pin_memory=torch.cuda.is_available()).copy_(part)
        by.update(part.numpy())
    return by.hexdigest()


def tensor_digest(tensor: Tensor) -> str:
    """Hash of the dtype, the shape and every value."""
    about = f"{tensor.dtype} {tuple(tensor.shape)} {hashed(tensor, hashlib.sha256())}"
    return hashlib.sha256(about.encode()).hexdigest()[:16]
