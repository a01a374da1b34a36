"""Hashes of values and tensors: complete, and the same in every process."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import torch
from torch import Tensor


def digest(value: Any) -> str:
    """A short hash of any JSON-serializable value; other objects count as their string."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()[:16]


def bytes_of(tensor: Tensor) -> Any:
    """All bytes of a tensor's values, in order, as a NumPy array of uint8."""
    return tensor.detach().to("cpu").contiguous().reshape(-1).view(torch.uint8).numpy()


def tensor_digest(tensor: Tensor) -> str:
    """Hash of the dtype, the shape and every value."""
    about = f"{tensor.dtype} {tuple(tensor.shape)} {hashlib.sha256(bytes_of(tensor)).hexdigest()}"
    return hashlib.sha256(about.encode()).hexdigest()[:16]
