"""How a command ends: its exit code, and one line on stderr where something went wrong."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable
from typing import Any, NoReturn

import typer

from lens_heads.runs.reading import reason
from lens_heads.runs.showing import one_line
from lens_heads.runs.stopping import PartDone

WRONG, INTERRUPTED = 2, 130

DEBUG = "LENS_HEADS_DEBUG"
"""The environment variable that shows tracebacks."""

_NO_MEMORY = ("out of memory", "can't allocate memory", "not enough memory")


def end_with(command: Callable[[], int | None]) -> NoReturn:
    """Run a command and leave the process with its exit code; an error becomes a line on stderr and exit code 2."""
    try:
        code = command() or 0
        sys.stdout.flush()
    except PartDone as done:
        _say(str(done), "")
        code = 0
    except (KeyboardInterrupt, typer.Abort):
        code = INTERRUPTED
    except SystemExit as done:
        code = int(done.code or 0) if isinstance(done.code, int | None) else WRONG
        if isinstance(done.__context__, BrokenPipeError):  # rich's way to end without a reader.
            code = _failed(done.__context__)
    except Exception as error:
        if os.environ.get(DEBUG):
            raise
        code = _failed(error)
    if code == INTERRUPTED:
        _say("Interrupted. If you passed --out, repeat the same command to continue the run.", "")
    sys.exit(code)


def _failed(error: Exception) -> int:
    """Say what went wrong."""
    if _shows_help(error):
        typer.echo(error.format_message(), err=True)  # type: ignore[attr-defined]  # an error of the command line
        return WRONG
    if isinstance(error, OSError):
        _give_up_output()
    _say(f"error: {one_line(_text(error))}", "red")
    return WRONG


def _text(error: Exception) -> str:
    if hasattr(error, "format_message"):
        about: Any = getattr(error, "ctx", None)
        hint = f" See {about.command_path} --help." if about is not None else ""
        return f"{error.format_message().rstrip('.')}.{hint}"  # type: ignore[attr-defined]  # an error of the command line
    if isinstance(error, BrokenPipeError):
        return "the output was closed before everything was written; what is in a run folder (--out) is complete"
    if isinstance(error, MemoryError) or any(words in str(error) for words in _NO_MEMORY):
        return "out of memory: use a smaller --batch-size, shorter prompts (-w context_length=..) or --dtype bfloat16"
    if isinstance(error, ValueError | TypeError | OSError | ImportError) and str(error):
        return str(error)
    return f"{type(error).__name__}: {reason(error)} ({DEBUG}=1 shows where)"


def _shows_help(error: Exception) -> bool:
    """Whether this is no error but the help of a command without arguments."""
    return type(error).__name__ == "NoArgsIsHelpError"


def _give_up_output() -> None:
    """Let what is still buffered go nowhere, or Python tries to write it again on leaving and complains."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        try:
            sys.stdout.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _say(line: str, color: str) -> None:
    with contextlib.suppress(OSError, ValueError, AttributeError):
        typer.secho(line, fg=color or None, err=True)
