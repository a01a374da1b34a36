"""Run folders: settings in `run.json`, one shard per finished unit of work, safe against any interruption.

Reopening a folder with the same settings continues the run; with different settings it is an error that lists the
differences. A shard that is damaged, or that belongs elsewhere, counts as unfinished. Nothing is ever pickled, and reading
a finished folder writes nothing.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import shlex
import sys
import warnings
from pathlib import Path
from typing import Any

from lens_heads.runs.digests import digest
from lens_heads.runs.files import check_place, create, naming, path_of, plain_name, remove_leftovers, write_atomic
from lens_heads.runs.shards import Key, Result, pack, unpack
from lens_heads.runs.warned import users_line

_OTHERS = "{} is not empty and contains no run.json: choose another folder for this run"
_PACKAGES = ("lens-heads", "transformer-lens", "torch", "transformers")


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


class RunFolder:
    """A folder of finished work under fixed settings.

    A model is known by its weights: under another name, as of a folder that was moved, it continues its run. `damaged` lists
    the shards that could not be read, with the reason. Raises ValueError if the folder is not a run folder, or if its
    run has different settings (each difference is listed); OSError if it cannot be read or written.
    """

    def __init__(self, path: str | Path, settings: dict[str, Any]) -> None:
        self.path = path_of(path, "out")
        self.settings = json.loads(json.dumps(settings, sort_keys=True, default=str))
        self.hash = digest(self.settings)
        self.shards = self.path / "trials"
        self.damaged: list[str] = []
        with naming(self.path, "used as a run folder"):
            if self.path.exists() and not self.path.is_dir():
                raise ValueError(f"out={str(self.path)!r} is a file, but a run needs a folder: choose another path")
            if not self._begin():
                # Shards name the settings that the run began with, in which the model may have had another name.
                self.hash = self._check(self.path / "run.json")
            self.shards.mkdir(parents=True, exist_ok=True)
        for folder in (self.path, self.shards):
            remove_leftovers(folder)

    def _begin(self) -> bool:
        """Write `run.json`, unless there is one, or another process has just been quicker."""
        about = self.path / "run.json"
        if about.exists():
            return False
        if not _is_fresh(self.path):
            if about.exists():  # Another process began this run after the first look.
                return False
            raise ValueError(_OTHERS.format(self.path))
        text = {"settings": self.settings, "hash": self.hash, "versions": versions()}
        return create(about, json.dumps(text, indent=2) + "\n")

    def _check(self, about: Path) -> str:
        """The hash in `run.json`. ValueError unless it holds these settings; a warning if other versions of packages wrote it."""
        before, hashed, made_with = _begun(about)
        changed = [
            f"  {key}: {there} in the folder, {here} now"
            for key, there, here in _differences(before, _named_as(before, self.settings))
        ]
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
                stacklevel=users_line(),
            )
        return hashed

    def _file(self, key: Key) -> Path:
        return self.shards / f"{hashlib.sha256(json.dumps(key).encode()).hexdigest()[:24]}.safetensors"

    def score_file(self, name: str) -> Path:
        """The file for one method's scores. ValueError for a name that would lead outside or replace a file of the run's own."""
        if plain_name(name, "method").casefold() in ("run", "support"):
            raise ValueError(f"method {name!r}: would replace {name.casefold()}.json; give it another name")
        return self.path / f"{name}.json"

    def read(self, key: Key) -> Result | None:
        """The finished work stored under a key, or None. A damaged file counts as unfinished and is added to `damaged`."""
        file = self._file(key)
        try:
            return unpack(file, self.hash, key)
        except FileNotFoundError:
            return None
        except (ValueError, OSError) as error:
            self.damaged.append(f"{file}: {error}")
            return None

    def write(self, key: Key, result: Result) -> None:
        """Atomically store finished work under a key. OSError naming the file if that fails."""
        write_atomic(self._file(key), pack(self.hash, key, result))


def check_run_folder(path: str | Path) -> Path:
    """The path of a folder that a run can begin or continue in, whatever its settings, with the errors of `RunFolder`.

    Long before its settings are known: a model takes minutes to load. Nothing is written.
    """
    folder = check_place(path)
    with naming(folder, "used as a run folder"):
        if (folder / "run.json").exists():
            _begun(folder / "run.json")
        elif not _is_fresh(folder):
            raise ValueError(_OTHERS.format(folder))
    return folder


def _is_fresh(path: Path) -> bool:
    """Whether nothing was ever finished here; a run killed right at the start leaves `trials/` and partial files."""
    shards = path / "trials"
    found = [file for folder in (path, shards) if folder.is_dir() for file in folder.iterdir()]
    return all(file.suffix == ".partial" or (file == shards and file.is_dir()) for file in found)


def _begun(about: Path) -> tuple[Any, str, dict[str, str]]:
    """The settings in `run.json`, their hash, and the versions that wrote it. ValueError if it is damaged."""
    with naming(about, "read"):
        content = about.read_bytes()
    try:
        stored = json.loads(content)
        before, hashed = stored["settings"], stored["hash"]
        made_with = {str(name): str(version) for name, version in dict(stored.get("versions", {})).items()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"{about} cannot be read ({error}): choose another folder, or delete this one") from None
    if hashed != digest(before):
        raise ValueError(
            f"{about} is damaged (its settings do not match their hash): choose another folder, or delete this one"
        )
    return before, hashed, made_with


def _named_as(old: Any, new: Any) -> Any:
    """New settings, in which a model whose weights stand in the old ones has its name from there."""
    if not isinstance(old, dict) or not isinstance(new, dict):
        return new
    named = {key: _named_as(old.get(key), value) for key, value in new.items()}
    if new.get("weights") and new["weights"] == old.get("weights") and "model" in new and "model" in old:
        named["model"] = old["model"]
    return named


def _differences(old: Any, new: Any) -> list[tuple[str, Any, Any]]:
    """(setting, old value, new value) of every setting that differs, also in type: True is not 1."""
    one, other = _flatten(old), _flatten(new)
    both = [(key, one.get(key, "(absent)"), other.get(key, "(absent)")) for key in sorted(one.keys() | other.keys())]
    return [
        (".".join(key), a, b) for key, a, b in both if json.dumps(a, sort_keys=True) != json.dumps(b, sort_keys=True)
    ]


def _flatten(value: Any, prefix: tuple[str, ...] = ()) -> dict[tuple[str, ...], Any]:
    if not isinstance(value, dict) or not value:
        return {prefix: value}
    flat: dict[tuple[str, ...], Any] = {}
    for key, inner in value.items():
        flat |= _flatten(inner, (*prefix, str(key)))
    return flat
