"""What identifies a model in a run folder: its name, all its weights, and the absence of hooks."""

from __future__ import annotations

import hashlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from lens_heads.model.geometry import Model, geometry, is_bridge
from lens_heads.model.hooks import has_hooks
from lens_heads.runs.identity import ModelIdentity
from lens_heads.runs.store import RunFolder


def identify(model: Model) -> ModelIdentity:
    """Name, hash of the weights, and dtype. Hashing reads every byte, on all cores, at about 1 GB/s per core."""
    return ModelIdentity(geometry(model).name, fingerprint(model), str(model.cfg.dtype))


def fingerprint(model: Model) -> str:
    """Hash of every parameter and buffer: names, shapes, and all bytes."""
    wrapped = model.original_model if is_bridge(model) else model
    tensors = [*wrapped.named_parameters(), *wrapped.named_buffers()]
    with ThreadPoolExecutor(torch.get_num_threads()) as pool:
        digests = list(pool.map(lambda named: _digest(named[1]), tensors))
    seen = hashlib.sha256()
    for (name, tensor), digest in zip(tensors, digests, strict=True):
        seen.update(f"{name} {tuple(tensor.shape)} {tensor.dtype} {digest}\n".encode())
    return seen.hexdigest()[:16]


def _digest(tensor: Tensor) -> str:
    flat = tensor.detach().to("cpu").contiguous().reshape(-1)
    data: Any = flat.view(torch.uint8).numpy()
    return hashlib.sha256(data).hexdigest()


def folder_for(model: Model, out: str | Path | None, settings: dict[str, Any]) -> RunFolder | None:
    """The run folder, None without `out`. ValueError if the model has hooks, which the settings cannot identify."""
    if out is None:
        return None
    if has_hooks(model):
        raise ValueError(
            f"{geometry(model).name} has hooks attached (an ablation?), which a run folder cannot identify: omit out=, or "
            "leave the context first"
        )
    return RunFolder(out, settings)
