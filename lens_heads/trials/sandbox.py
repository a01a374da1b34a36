"""Programs that a model wrote, run apart from everything: does one come to its end, through its tests?

Each runs in a process of its own with limits on CPU time, memory, file size and processes; in an empty folder that is its
working directory and home, and is deleted afterwards; without environment, input, or packages other than the standard
library. What counts is the time a program computes, not how long that takes on a machine with other work to do; a limit by
the clock, many times as long, stops those that only wait. It has no network: where the kernel allows it (Linux with user
namespaces), it gets a network namespace with nothing in it; everywhere, an audit hook refuses sockets, processes, signals, C
libraries, and changes to files outside the folder. Where there is only the hook, a warning says so.

This stops what generated code does by accident or in the usual ways. It is no security boundary: the program can read the
files that you can read, and Python's audit hooks can be got around by a program written for that. For code you distrust use a
container or a virtual machine, and run this inside.
"""

from __future__ import annotations

import math
import os
import secrets
import signal
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

CHILD = Path(__file__).with_name("sandbox_child.py")
SMALLEST = 64
"""Megabytes below which Python itself may not start."""


@dataclass(frozen=True)
class Verdict:
    """Whether a program came to its end, and if not, `why`: the exception, the limit, or that it left early.

    `why` tells a program that used up its CPU time from one that the clock stopped, which slept, or hardly got to compute.
    """

    passed: bool
    why: str = ""


def passes(program: str) -> bool:
    """Whether a program, its tests included, runs to its end; see `run`."""
    return run(program).passed


def run(program: str, seconds: int = 5, megabytes: int = 512, clock: float = 60) -> Verdict:
    """Run a Python program, its tests included, in the sandbox.

    Passing is proved by a secret of this run, which the process reads from a pipe once the program is done: leaving early
    (`sys.exit(0)`, `os._exit(0)`) or printing something is no pass. A program that looks for the pipe finds it too.

    `seconds`: of CPU time, Python's start included; the system counts whole ones. `megabytes`: of address space. `clock`:
    seconds by the clock. The default lets a program that shares its core with ten others use up its CPU time first.

    Raises ValueError for a limit that nothing could pass, OSError where processes cannot be limited (Windows).
    """
    if not isinstance(seconds, int) or not 1 <= seconds <= clock < math.inf or megabytes < SMALLEST:
        raise ValueError(
            f"seconds={seconds}, megabytes={megabytes}, clock={clock}: give whole seconds, 1 or more, at least {SMALLEST} "
            "megabytes, and a finite clock, no shorter than seconds"
        )
    if os.name != "posix":
        raise OSError(f"generated code runs on Linux and macOS only, this is {sys.platform}: use generate=False")
    secret = secrets.token_bytes(32)
    with (
        tempfile.TemporaryDirectory(prefix="lens-heads-", ignore_cleanup_errors=True) as folder,
        _pipe() as (key, give),
        _pipe() as (answer, result),
    ):
        Path(folder, "program.py").write_text(program, encoding="utf-8", errors="replace", newline="\n")
        os.write(give, secret)
        code = _child(folder, key, result, seconds, megabytes, clock)
        os.set_blocking(answer, False)
        with suppress(BlockingIOError):
            return _verdict(os.read(answer, 4096), secret, code, seconds, clock)
        return _verdict(b"", secret, code, seconds, clock)


def _child(folder: str, key: int, result: int, seconds: int, megabytes: int, clock: float) -> int | None:
    """The exit code of the process, None when it was stopped after `clock`; nothing that it started is left."""
    limits = (key, result, seconds, megabytes)
    process = subprocess.Popen(
        [sys.executable, "-I", "-S", "-B", "-X", "utf8", str(CHILD), *map(str, limits)],
        cwd=folder,
        env={"HOME": folder},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        pass_fds=(key, result),
    )
    try:
        return process.wait(clock)
    except subprocess.TimeoutExpired:
        return None
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _verdict(said: bytes, secret: bytes, code: int | None, seconds: int, clock: float) -> Verdict:
    """What the child's exit code and its message mean: a sign for its network, then the secret or an exception."""
    network, rest = said[:1], said[1:]
    if network == b"-":
        warnings.warn(
            "this system gives generated programs no network namespace of their own: only Python's audit hook keeps them "
            "from the network; run in a container without network, or allow user namespaces",
            stacklevel=3,
        )
    if secrets.compare_digest(rest, secret):
        return Verdict(True)
    if code is None:
        return Verdict(False, f"stopped after {clock} s by the clock")
    if code == -signal.SIGXCPU:
        return Verdict(False, f"stopped after {seconds} s of CPU time")
    if rest:
        return Verdict(False, rest.decode(errors="replace"))
    how = f"by {signal.Signals(-code).name}" if code < 0 else f"with exit code {code}"
    return Verdict(False, f"ended {how} before its tests were done")


@contextmanager
def _pipe() -> Iterator[tuple[int, int]]:
    """The two ends of a pipe, closed at the end."""
    ends = os.pipe()
    try:
        yield ends
    finally:
        for end in ends:
            os.close(end)
