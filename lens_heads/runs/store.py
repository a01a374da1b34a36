"""Run folders: settings in `run.json`, one shard per finished unit of work, safe against any interruption.

A shard is a safetensors file (arrays, and a JSON record in its metadata) written beside its place and renamed into it.
Opening a folder again with the same settings continues it; other settings are refused with the difference. Nothing is
ever pickled.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import inspect
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
    """One finished unit of work: named arrays and a JSON record. `keep=False` is returned but not stored (an error)."""

    arrays: dict[str, Tensor]
    record: dict[str, Any]
    keep: bool = True


def versions() -> dict[str, str]:
    """Versions of the packages a result depends on."""
    found: dict[str, str] = {}
    for package in _PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            found[package] = "not installed"
    return found


def running_command() -> str:
    """The command line of this process, as one would type it."""
    return shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]])


def digest(value: Any) -> str:
    """A short hash of anything JSON can hold."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()[:16]


def code_of(function: Any) -> str:
    """What a function does, as far as it can be read: source, defaults and what it closes over, or its type and state.

    So that a changed function is another one to a run folder, and the same one is the same in every process.
    """
    if isinstance(function, functools.partial):
        return f"{code_of(function.func)} {function.args} {sorted(function.keywords.items())}"
    if not inspect.isroutine(function):
        return f"{code_of(type(function).__call__)} {sorted(vars(function).items()) if hasattr(function, '__dict__') else ''}"
    try:
        source = inspect.getsource(function)
    except (OSError, TypeError):
        source = f"{getattr(function, '__module__', '')}.{getattr(function, '__qualname__', '')}"
    closed = inspect.getclosurevars(function).nonlocals if inspect.isfunction(function) else {}
    bound = [getattr(function, "__defaults__", None), getattr(function, "__kwdefaults__", None)]
    values = [code_of(value) if inspect.isroutine(value) else repr(value) for _, value in sorted(closed.items())]
    return f"{source} {bound} {values}"


def write_atomic(path: Path, text: str) -> None:
    """Write a text file so that a reader sees the old one or the new one, never half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    partial.write_text(text, encoding="utf-8")
    os.replace(partial, path)


class RunFolder:
    """A folder of finished work under fixed settings.

    Raises ValueError when the folder belongs to a run of other settings (naming each difference), or is not a run folder.
    """

    def __init__(self, path: str | Path, settings: dict[str, Any]) -> None:
        self.path = Path(path)
        self.settings = json.loads(json.dumps(settings, sort_keys=True, default=str))
        self.shards = self.path / "trials"
        about = self.path / "run.json"
        if self.path.exists() and not self.path.is_dir():
            raise ValueError(f"out={str(self.path)!r} is a file, and a run needs a folder: choose another name")
        if about.exists():
            self._check(about)
        elif not self._is_fresh():
            raise ValueError(f"{self.path} is not empty and holds no run.json: choose another folder for this run")
        else:
            self.shards.mkdir(parents=True, exist_ok=True)
            text = {"settings": self.settings, "hash": digest(self.settings), "versions": versions()}
            write_atomic(about, json.dumps(text, indent=2) + "\n")
        self.shards.mkdir(parents=True, exist_ok=True)

    def _is_fresh(self) -> bool:
        """Whether nothing was ever finished here; a run killed at its very start leaves `trials/` and partial files."""
        found = [file for folder in (self.path, self.shards) if folder.is_dir() for file in folder.iterdir()]
        return all(file.suffix == ".partial" or (file == self.shards and file.is_dir()) for file in found)

    def _check(self, about: Path) -> None:
        try:
            stored = json.loads(about.read_text(encoding="utf-8"))
            before, made_with = stored["settings"], dict(stored.get("versions", {}))
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{about} cannot be read ({error}): choose another folder, or delete this one") from None
        old, new = _flatten(before), _flatten(self.settings)
        changed = [
            f"  {key}: {old.get(key, '(absent)')} in the folder, {new.get(key, '(absent)')} now"
            for key in sorted(old.keys() | new.keys())
            if old.get(key, "(absent)") != new.get(key, "(absent)")
        ]
        if changed:
            raise ValueError(
                f"{self.path} holds a run of other settings:\n" + "\n".join(changed) + "\n"
                "use the same settings to continue it, or another folder"
            )
        others = [f"{name} {version}" for name, version in made_with.items() if versions().get(name) != version]
        if others:
            warnings.warn(
                f"{self.path} was begun with {', '.join(others)}: what it holds is taken as it is; use another folder to "
                "measure everything with the packages that are installed now",
                stacklevel=4,
            )

    def _file(self, key: str) -> Path:
        return self.shards / f"{hashlib.sha256(key.encode()).hexdigest()[:24]}.safetensors"

    def read(self, key: str) -> Result | None:
        """The finished work stored under a key, or None. A file that cannot be read counts as not finished."""
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
        """Store finished work under a key, atomically."""
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
