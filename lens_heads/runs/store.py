"""Run folders: settings in `run.json`, one shard per finished unit of work, safe against any interruption.

A shard is a safetensors file (arrays, with a JSON record in its metadata), written under a temporary name and then renamed.
Reopening a folder with the same settings continues the run; with different settings it is an error that lists the
differences. Nothing is ever pickled.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
import shlex
import sys
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

_EMPTY = "__no_arrays__"
_PACKAGES = ("lens-heads", "transformer-lens", "torch", "transformers")


@dataclass(frozen=True)
class Result:
    """One finished unit of work: named arrays and a JSON record. With `keep=False` (an error) it is never stored."""

    arrays: dict[str, Tensor]
    record: dict[str, Any]
    keep: bool = True


def versions() -> dict[str, str]:
    """Versions of the packages that results depend on."""
    found: dict[str, str] = {}
    for package in _PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            found[package] = "not installed"
    return found


def running_command() -> str:
    """The command line of this process, as a user would type it."""
    return shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]])


def digest(value: Any) -> str:
    """A short hash of any JSON-serializable value; other objects count as their string."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()[:16]


def write_atomic(path: Path, text: str) -> None:
    """Write a text file so that a reader sees either the old or the new content, never a part."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    partial.write_text(text, encoding="utf-8")
    os.replace(partial, path)


class RunFolder:
    """A folder of finished work under fixed settings.

    Raises ValueError if the folder is not a run folder, or if its run has different settings (each difference is listed).
    """

    def __init__(self, path: str | Path, settings: dict[str, Any]) -> None:
        self.path = Path(path)
        self.settings = json.loads(json.dumps(settings, sort_keys=True, default=str))
        self.shards = self.path / "trials"
        about = self.path / "run.json"
        if self.path.exists() and not self.path.is_dir():
            raise ValueError(f"out={str(self.path)!r} is a file, but a run needs a folder: choose another path")
        if about.exists():
            self._check(about)
        elif not self._is_fresh():
            raise ValueError(f"{self.path} is not empty and contains no run.json: choose another folder for this run")
        else:
            text = {"settings": self.settings, "hash": digest(self.settings), "versions": versions()}
            write_atomic(about, json.dumps(text, indent=2) + "\n")
        self.shards.mkdir(parents=True, exist_ok=True)

    def _is_fresh(self) -> bool:
        """Whether nothing was ever finished here; a run killed right at the start leaves `trials/` and partial files."""
        found = [file for folder in (self.path, self.shards) if folder.is_dir() for file in folder.iterdir()]
        return all(file.suffix == ".partial" or (file == self.shards and file.is_dir()) for file in found)

    def _check(self, about: Path) -> None:
        try:
            stored = json.loads(about.read_text(encoding="utf-8"))
            before, made_with = stored["settings"], dict(stored.get("versions", {}))
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{about} cannot be read ({error}): choose another folder, or delete this one") from None
        old, new = _flatten(before), _flatten(self.settings)
        both = [(key, old.get(key, "(absent)"), new.get(key, "(absent)")) for key in sorted(old.keys() | new.keys())]
        changed = [f"  {key}: {there} in the folder, {here} now" for key, there, here in both if there != here]
        if changed:
            raise ValueError(
                f"{self.path} holds a run with different settings:\n" + "\n".join(changed) + "\n"
                "use the same settings to continue it, or choose another folder"
            )
        others = [f"{name} {version}" for name, version in made_with.items() if versions().get(name) != version]
        if others:
            warnings.warn(
                f"{self.path} was started with {', '.join(others)}: its stored results are kept; use another folder to "
                "recompute everything with the installed packages",
                stacklevel=4,
            )

    def _file(self, key: str) -> Path:
        return self.shards / f"{hashlib.sha256(key.encode()).hexdigest()[:24]}.safetensors"

    def read(self, key: str) -> Result | None:
        """The finished work stored under a key, or None. An unreadable file counts as unfinished."""
        from safetensors import SafetensorError, safe_open

        file = self._file(key)
        if not file.exists():
            return None
        try:
            with safe_open(file, framework="pt") as shard:
                meta = shard.metadata()
                arrays = {name: shard.get_tensor(name) for name in shard.keys() if name != _EMPTY}  # noqa: SIM118
                record = json.loads(meta["record"])
        except (SafetensorError, OSError, ValueError, KeyError, TypeError):
            return None
        return Result(arrays, record)

    def write(self, key: str, result: Result) -> None:
        """Atomically store finished work under a key."""
        from safetensors.torch import save_file

        file = self._file(key)
        partial = file.with_suffix(f".{os.getpid()}.partial")
        arrays = {name: array.contiguous() for name, array in result.arrays.items()} or {_EMPTY: torch.zeros(0)}
        save_file(arrays, partial, metadata={"key": key, "record": json.dumps(result.record)})
        os.replace(partial, file)


def _flatten(value: Any, prefix: str = "") -> dict[str, Any]:
    if not isinstance(value, dict):
        return {prefix: value}
    flat: dict[str, Any] = {}
    for key, inner in value.items():
        flat |= _flatten(inner, f"{prefix}.{key}" if prefix else str(key))
    return flat
