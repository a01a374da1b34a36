"""A shard: one finished unit of work as a safetensors file that says to which run and unit it belongs.

Its metadata holds the hash of the run's settings, the unit's key, the JSON record, and a checksum over these and all arrays.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from torch import Tensor

from lens_heads.runs.digests import digest, tensor_digest

Key: TypeAlias = str | tuple[Any, ...]
"""What a unit of work is called: text, or a tuple of texts and numbers."""


@dataclass(frozen=True)
class Result:
    """One finished unit of work: named arrays and a JSON record. With `keep=False` (an error) it is never stored."""

    arrays: dict[str, Tensor]
    record: dict[str, Any]
    keep: bool = True


def pack(settings: str, key: Key, result: Result) -> bytes:
    """The content of a shard. `settings`: the hash of the run's settings."""
    from safetensors.torch import save

    # Copies, because safetensors refuses arrays that share memory.
    arrays = {name: array.detach().cpu().contiguous().clone() for name, array in result.arrays.items()}
    about = {"settings": settings, "key": json.dumps(key), "record": json.dumps(result.record)}
    return _ordered(save(arrays, metadata={**about, "checksum": checksum(about, arrays)}))


def _ordered(content: bytes) -> bytes:
    """A safetensors file with its header in alphabetical order, which safetensors itself leaves to chance."""
    size = int.from_bytes(content[:8], "little")
    header = json.dumps(
        json.loads(content[8 : 8 + size]), sort_keys=True, ensure_ascii=False, separators=(",", ":")
    ).encode()
    header += b" " * (-len(header) % 8)  # The arrays begin at a multiple of eight bytes.
    return len(header).to_bytes(8, "little") + header + content[8 + size :]


def unpack(file: Path, settings: str, key: Key) -> Result:
    """What `pack` stored. FileNotFoundError if there is nothing.

    ValueError if it is damaged, or belongs to another unit of work or to a run with other settings.
    """
    from safetensors import safe_open

    if not file.exists():
        raise FileNotFoundError(file)
    if not file.is_file():
        raise ValueError("it is not a file")
    try:
        with safe_open(file, framework="pt") as shard:
            about = dict(shard.metadata())
            arrays = {name: shard.get_tensor(name) for name in shard.keys()}  # noqa: SIM118
        stored, record = about.pop("checksum"), json.loads(about["record"])
    except Exception as error:  # Damaged bytes can raise anything.
        raise ValueError(f"{type(error).__name__}: {error}") from None
    if stored != checksum(about, arrays):
        raise ValueError("its content does not match its checksum")
    if about["settings"] != settings:
        raise ValueError("it belongs to a run with other settings")
    if about["key"] != json.dumps(key):
        raise ValueError("it belongs to another unit of work")
    return Result(arrays, record)


def checksum(about: Mapping[str, str], arrays: Mapping[str, Tensor]) -> str:
    """Hash of what is said in a file, and of every value of its arrays."""
    return digest([dict(about), {name: tensor_digest(array) for name, array in arrays.items()}])
