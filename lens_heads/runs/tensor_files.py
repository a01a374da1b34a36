"""Values that users save and load as one safetensors file: named tensors, and what is said about them as JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from torch import Tensor

from lens_heads.runs.files import path_of, write_atomic
from lens_heads.runs.reading import check_file, reason
from lens_heads.runs.shards import checksum

Value = TypeVar("Value")
CHECKSUM = "checksum"
"""The name of the checksum beside what is said; older files have none."""


def save_tensors(path: str | Path, tensors: Mapping[str, Tensor], about: Mapping[str, Any]) -> Path:
    """Write tensors, a JSON text for every entry of `about`, and a checksum over both. OSError naming the file if it fails."""
    from safetensors.torch import save

    file = path_of(path, "path")
    # Copies, because safetensors refuses tensors that share memory.
    held = {name: tensor.contiguous().clone() for name, tensor in tensors.items()}
    texts = {name: json.dumps(value) for name, value in about.items()}
    write_atomic(file, save(held, metadata={**texts, CHECKSUM: checksum(texts, held)}))
    return file


def load_tensors(
    path: str | Path, make: Callable[[dict[str, Tensor], dict[str, Any]], Value], what: str, missing: str
) -> Value:
    """What `make` makes of the tensors and of what is said about them.

    FileNotFoundError, with the remedy `missing`, if there is no such file. ValueError if it is damaged, down to a single bit
    (files of older versions have no checksum to tell), or if `make` raises: then it is not `what`.
    """
    from safetensors import safe_open

    file = path_of(path, "path")
    check_file(file, missing)
    try:
        with safe_open(file, framework="pt") as stored:
            tensors = {name: stored.get_tensor(name) for name in stored.keys()}  # noqa: SIM118
            texts = dict(stored.metadata())
        if texts.pop(CHECKSUM, None) not in (None, checksum(texts, tensors)):
            raise ValueError("it is damaged: its content does not match its checksum")
        return make(tensors, {name: json.loads(text) for name, text in texts.items()})
    except Exception as error:  # Damaged bytes can raise anything.
        raise ValueError(f"{file}: not {what} ({reason(error)}): save again") from None
