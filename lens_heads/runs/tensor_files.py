"""Values that users save and load as one safetensors file: named tensors, and what is said about them as JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from torch import Tensor

from lens_heads.runs.files import path_of, write_atomic
from lens_heads.runs.reading import check_file, reason

Value = TypeVar("Value")


def save_tensors(path: str | Path, tensors: Mapping[str, Tensor], about: Mapping[str, Any]) -> Path:
    """Write tensors, and one JSON text for every entry of `about`. OSError naming the file if that fails."""
    from safetensors.torch import save

    file = path_of(path, "path")
    # Copies, because safetensors refuses tensors that share memory.
    held = {name: tensor.contiguous().clone() for name, tensor in tensors.items()}
    write_atomic(file, save(held, metadata={name: json.dumps(value) for name, value in about.items()}))
    return file


def load_tensors(
    path: str | Path, make: Callable[[dict[str, Tensor], dict[str, Any]], Value], what: str, missing: str
) -> Value:
    """What `make` makes of the tensors and of what is said about them.

    FileNotFoundError, with the remedy `missing`, if there is no such file. ValueError if it is damaged, or if `make` raises:
    then it is not `what`.
    """
    from safetensors import safe_open

    file = path_of(path, "path")
    check_file(file, missing)
    try:
        with safe_open(file, framework="pt") as stored:
            tensors = {name: stored.get_tensor(name) for name in stored.keys()}  # noqa: SIM118
            about = {name: json.loads(text) for name, text in stored.metadata().items()}
        return make(tensors, about)
    except Exception as error:  # Damaged bytes can raise anything.
        raise ValueError(f"{file}: not {what} ({reason(error)}): save again") from None
