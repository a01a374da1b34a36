"""Files that users name: paths, text and JSON, with errors that say which file, what is wrong and what to do."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any, Protocol

from lens_heads.runs.files import path_of

LARGEST = 4 << 30
"""Bytes of a text file; a larger one does not fit into memory with what is made of it."""
DEEPEST = 100
"""Levels of lists and objects inside each other."""

_HALF = re.compile(r"\\u[dD][89a-fA-F]")
"""An escape of half a character."""


class TextFile(Protocol):
    """A path, or a file inside an installed package or an archive."""

    def read_bytes(self) -> bytes: ...
    def is_file(self) -> bool: ...
    def is_dir(self) -> bool: ...


class _RefusedError(ValueError):
    """What the decoder's hooks refuse."""


def user_path(given: Any, name: str) -> Path:
    """The path that an argument `name` gives, with ~ expanded; there need not be a file.

    TypeError or ValueError for what cannot be a path, OSError for a place that cannot be looked at.
    """
    path = path_of(given, name)
    try:
        path = path.expanduser()
        path.is_dir()
    except RuntimeError:
        raise ValueError(f"{name}={str(given)!r:.60}: there is no such user; write the whole path") from None
    except OSError as error:
        raise OSError(f"{path}: cannot be read ({error.strerror}); check its name and permissions") from None
    return path


def check_file(file: TextFile, missing: str = "check its name and folder") -> None:
    """FileNotFoundError (which ends in what to do if it is `missing`) or another OSError unless there is a file to read."""
    try:
        if file.is_file():
            return
        folder = file.is_dir()
        other = isinstance(file, Path) and file.exists()
    except OSError as error:
        raise OSError(f"{file}: cannot be read ({error.strerror}); check its name and permissions") from None
    if folder:
        raise IsADirectoryError(f"{file} is a folder: pass a file in it")
    if other:
        raise OSError(f"{file} is a device or a pipe: save its content to a file, and pass that")
    if isinstance(file, Path) and file.is_symlink():
        raise FileNotFoundError(f"{file} is a link that leads to no file: correct the link")
    raise FileNotFoundError(f"{file} does not exist: {missing}")


def read_bytes(file: TextFile) -> bytes:
    """The content of a file of at most `LARGEST` bytes; errors as in `check_file`, and ValueError for a larger one."""
    check_file(file)
    try:
        if isinstance(file, Path) and file.stat().st_size > LARGEST:
            raise ValueError(f"{file}: is larger than {LARGEST >> 30} GiB; split it")
        return file.read_bytes()
    except OSError as error:
        raise OSError(f"{file}: cannot be read ({error.strerror or error}); check its permissions and disk") from None


def read_text(file: TextFile) -> str:
    """The text of a UTF-8 file, with or without a byte-order mark; lines end in "\\n".

    FileNotFoundError or another OSError if it cannot be read, ValueError if it is not UTF-8; they name the file.
    """
    try:
        return read_bytes(file).decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        raise ValueError(f"{file}: not valid UTF-8 at byte {error.start}: save the file as UTF-8") from None


def read_json(file: TextFile, loose: bool = False) -> Any:
    """The JSON value in a file; errors as in `read_text` and `parse_json`."""
    return parse_json(read_text(file), str(file), loose=loose)


def parse_json(text: str, where: str, line: int = 1, loose: bool = False) -> Any:
    """The JSON value in a text read from `where`, which begins at `line`.

    ValueError with line and column, also for what JSON does not have or no tokenizer can take: NaN and infinity (unless
    `loose`), names that occur twice in an object, halves of characters, more than `DEEPEST` levels.
    """
    if not text.strip():
        raise ValueError(f"{where}: is empty; it must contain JSON")
    strict: dict[str, Any] = {} if loose else {"parse_constant": _constant, "parse_float": _float}
    try:
        value = json.loads(text, object_pairs_hook=_object, **strict)
    except json.JSONDecodeError as error:
        at = f"line {error.lineno + line - 1}, column {error.colno}"
        raise ValueError(f"{where}: invalid JSON at {at}: {error.msg}; correct it there") from None
    except _RefusedError as error:
        raise ValueError(f"{where}: {error}") from None
    except RecursionError:
        raise ValueError(f"{where}: more than {DEEPEST} levels of lists and objects; flatten them") from None
    except ValueError:  # Python's limit on the digits of an integer.
        raise ValueError(
            f"{where}: contains an integer of thousands of digits; shorten it, or put it in quotes"
        ) from None
    _check_levels(value, where)
    if _HALF.search(text):
        _check_characters(value, where)
    return value


def written_number(text: str) -> float:
    """A number as it is written in a text file, NaN and infinity included.

    ValueError for anything else, also for what `float` reads beyond that: "0_1", as 1, and digits of other scripts.
    """
    if not text.isascii() or "_" in text:
        raise ValueError(f"{text!r:.40} is not a number")
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"{text!r:.40} is not a number") from None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise _RefusedError(f"the name {twice!r:.80} occurs twice in an object; keep one")
    return found


def _constant(name: str) -> None:
    raise _RefusedError(f"contains {name}, which is no JSON; use a number or null")


def _float(text: str) -> float:
    if math.isinf(value := float(text)):
        raise _RefusedError(f"contains {text:.40}, which is too large; use a smaller number or null")
    return value


def _check_levels(value: Any, where: str) -> None:
    level, depth = [value] if isinstance(value, dict | list) else [], 0
    while level:
        inside = [one for outer in level for one in (outer.values() if isinstance(outer, dict) else outer)]
        level, depth = [one for one in inside if isinstance(one, dict | list)], depth + 1
        if level and depth > DEEPEST:
            raise ValueError(f"{where}: more than {DEEPEST} levels of lists and objects; flatten them")


def _check_characters(value: Any, where: str) -> None:
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        half = f"\\u{ord(error.object[error.start]):04x}"
        raise ValueError(f"{where}: contains {half}, half of a character; write the whole character") from None


def reason(error: BaseException) -> str:
    """What an error of another library says, on one short line."""
    text = " ".join(str(error).split()) or type(error).__name__
    if len(text) > 200:
        text = text.partition(". ")[0]
    return text if len(text) <= 200 else f"{text[:197]}..."
