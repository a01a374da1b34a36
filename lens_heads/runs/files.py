"""Files that are complete or absent, whatever happens while they are written, and errors that name them."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import platform
import re
import secrets
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_MACHINE = hashlib.sha256(platform.node().encode()).hexdigest()[:8]
_PARTIAL = re.compile(rf"\.{_MACHINE}-(\d+)-\w+\.partial")
_FOLDER = re.compile(rf"\.[a-z]+-{_MACHINE}-(\d+)-\w+")
_OLD = 3600  # Seconds; no file here takes an hour to write.
_RUST = re.compile(r"\(os error (\d+)\)")
"""How libraries written in Rust (safetensors, tokenizers) end an error that came from the system."""
_REMEDY = {
    errno.ENOSPC: "free some space. A run folder keeps what is finished, and the same call continues it",
    errno.EDQUOT: "free some space. A run folder keeps what is finished, and the same call continues it",
    errno.EACCES: "choose a folder that you may write to",
    errno.EPERM: "choose a folder that you may write to",
    errno.EROFS: "choose a folder that you may write to",
}


@contextmanager
def naming(path: Path, purpose: str = "written") -> Iterator[None]:
    """An error of the system inside, an OSError or what safetensors and tokenizers make of one, becomes an OSError that names
    the path, what it was for, and the remedy."""
    try:
        yield
    except Exception as error:
        number = _errno(error)
        if number is None:
            raise
        said = getattr(error, "strerror", None) or (os.strerror(number) if number else error)
        remedy = _REMEDY.get(number, "choose another path")
        raise OSError(f"{path} cannot be {purpose} ({said}): {remedy}") from error


def _errno(error: Exception) -> int | None:
    """The system's number of an error, 0 where it has none; None for an error that is not the system's."""
    if isinstance(error, OSError):
        return error.errno or 0
    found = _RUST.search(str(error))
    return int(found[1]) if found else None


def path_of(given: Any, name: str) -> Path:
    """The path that a user names. TypeError for what is neither text nor a path; ValueError for what no file can be called."""
    if not isinstance(given, str | os.PathLike) or isinstance(os.fspath(given), bytes):
        raise TypeError(f"{name}={given!r:.60}: must be a path, as text or pathlib.Path, not {type(given).__name__}")
    text = os.fspath(given)
    if not text.strip():
        raise ValueError(f"{name}={text!r}: is empty; give a path, or omit {name}=")
    if "\0" in text or any("\ud800" <= char <= "\udfff" for char in text):
        raise ValueError(f"{name}={text!r:.60}: contains a character that no path can have")
    return Path(text)


def check_place(given: Any, name: str = "out") -> Path:
    """The path of a folder that is there, or that can be made. Nothing stays behind.

    TypeError or ValueError for what no folder can be called, ValueError where a file is or lies above, OSError naming the path
    where none can be made.
    """
    path = path_of(given, name)
    whole = path.absolute()
    with naming(path, "used as a folder"):
        there = next(each for each in (whole, *whole.parents) if _lies(each))
        if not there.is_dir():
            below = "" if there == whole else f"lies below {there}, which "
            raise ValueError(f"{name}={str(path)!r} {below}is a file, but a run needs a folder: choose another path")
        if there != whole:
            with temporary_folder(there, "trying"):
                pass
    return path


def _lies(path: Path) -> bool:
    """Whether anything is at a path, a link that leads nowhere included. OSError for a path that there cannot be."""
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def plain_name(name: Any, what: str) -> str:
    """A name that files can carry. ValueError if it could lead elsewhere, e.g. "../x", or is empty, long or not printable."""
    plain = isinstance(name, str) and name.isprintable() and not set(name) & set('/\\:*?"<>|')
    if not plain or not name[:1].isalnum() or name[-1] in " ." or len(name.encode()) > 200:
        raise ValueError(
            f"{what} {name!r:.60}: names a file, so it must begin with a letter or digit, contain none of "
            '/ \\ : * ? " < > |, and be at most 200 bytes long'
        )
    return name


def write_atomic(path: Path, content: str | bytes) -> None:
    """Write a file so that a reader sees either the old or the new content, never a part, even after a power cut.

    A file that has this content already is not touched. OSError naming the path if it cannot be written.
    """
    data = content.encode() if isinstance(content, str) else content
    with naming(path):
        if path.is_file() and path.stat().st_size == len(data) and path.read_bytes() == data:
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        with _complete(path.parent, data) as partial:
            os.replace(partial, path)


def create(path: Path, content: str) -> bool:
    """Write a file that does not exist yet; False if there is one, also if another process has just been quicker."""
    with naming(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with _complete(path.parent, content.encode()) as partial:
            try:
                os.link(partial, path)
            except FileExistsError:
                return False
            except OSError:  # A file system without hard links.
                return _create_plainly(path, content)
    return True


def _create_plainly(path: Path, content: str) -> bool:
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(content)
    except FileExistsError:
        return False
    return True


@contextmanager
def _complete(folder: Path, data: bytes) -> Iterator[Path]:
    """A file of a temporary name, with its data on the disk; it is gone afterwards."""
    partial = folder / f".{_MACHINE}-{os.getpid()}-{secrets.token_hex(4)}.partial"
    try:
        with partial.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        yield partial
    finally:
        partial.unlink(missing_ok=True)


@contextmanager
def temporary_folder(parent: Path, name: str) -> Iterator[Path]:
    """A new folder inside `parent`, called by the lower-case word `name`, which is gone afterwards.

    Those of processes that were killed inside are removed first; those of other machines once an hour has passed without a
    change, because nobody here can tell whether they live.
    """
    parent.mkdir(parents=True, exist_ok=True)
    for folder in parent.glob(f".{name}-*"):
        with contextlib.suppress(OSError):
            if _is_left_folder(folder):
                shutil.rmtree(folder)
    folder = parent / f".{name}-{_MACHINE}-{os.getpid()}-{secrets.token_hex(4)}"
    folder.mkdir()
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def remove_leftovers(folder: Path) -> None:
    """Remove temporary files of processes that were killed while they wrote. Does nothing where it may not write."""
    with contextlib.suppress(OSError):
        for file in folder.glob("*.partial"):
            if _is_left(file):
                file.unlink(missing_ok=True)


def _is_left(file: Path) -> bool:
    if file.stat().st_mtime < time.time() - _OLD:
        return True
    ours = _PARTIAL.fullmatch(file.name)
    return ours is not None and not _lives(int(ours[1]))


def _is_left_folder(folder: Path) -> bool:
    ours = _FOLDER.fullmatch(folder.name)
    if ours is not None and os.name == "posix":
        return not _lives(int(ours[1]))
    return max(file.stat().st_mtime for file in (folder, *folder.rglob("*"))) < time.time() - _OLD


def _lives(process: int) -> bool:
    """Whether a process of this machine may still run."""
    if os.name != "posix":
        return True
    try:
        os.kill(process, 0)  # Signal 0 only asks whether the process exists.
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True
