"""One field of a GGUF file, without reading the rest: the package gguf takes ten seconds to list the words of a vocabulary."""

from __future__ import annotations

import mmap
import struct
from pathlib import Path

_STRING, _ARRAY, _BOOL = 8, 9, 7
_SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
"""Bytes of a number, by the type's code."""


def truth(file: Path, name: str) -> bool | None:
    """A field that is true or false; None if the file has none of that name, or is no GGUF file of version 2 or 3."""
    try:
        with file.open("rb") as opened, mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as data:
            magic, version, _, fields = struct.unpack_from("<4sIQQ", data)
            at = 24
            for _ in range(fields if magic == b"GGUF" and version in (2, 3) else 0):
                (length,) = struct.unpack_from("<Q", data, at)
                found, at = data[at + 8 : at + 8 + length], at + 8 + length
                (kind,) = struct.unpack_from("<I", data, at)
                if found == name.encode():
                    return bool(data[at + 4]) if kind == _BOOL else None
                at = _after(data, kind, at + 4)
    except (OSError, ValueError, struct.error, KeyError, IndexError):
        pass
    return None


def _after(data: mmap.mmap, kind: int, at: int) -> int:
    """Where a value ends that begins at `at`."""
    if kind == _STRING:
        return at + 8 + struct.unpack_from("<Q", data, at)[0]
    if kind != _ARRAY:
        return at + _SIZES[kind]
    inner, count = struct.unpack_from("<IQ", data, at)
    at += 12
    if inner in _SIZES:
        return at + count * _SIZES[inner]
    for _ in range(count):
        at = _after(data, inner, at)
    return at
