"""A sandbox for generated programs: does a program run to completion, tests included?

Each program runs in its own process, with limits on CPU time, memory, file size and subprocesses, in an empty folder that
serves as working directory and home and is deleted afterwards. It has no environment, no input, and only the standard
library. CPU time is limited, so that other work on the machine does not matter, and elapsed time only to stop programs that
wait. Where the kernel allows it (Linux with user namespaces), the process gets an empty network namespace, else a warning
says that it has none. In any case an audit hook denies sockets, processes, signals, C libraries, and changes to files
outside the folder.

This stops accidents and common attacks, but it is not a security boundary: the program can read the files that you can
read, and bypass Python's audit hooks if it was written to. Run untrusted code inside a container or a virtual machine.
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
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

CHILD = Path(__file__).with_name("sandbox_child.py")
SMALLEST = 64
"""Megabytes below which Python itself might not start."""


@dataclass(frozen=True)
class Verdict:
    """Whether a program ran to completion, and if not, `why`: the exception, the limit, or that it exited early."""

    passed: bool
    why: str = ""


def passes(program: str) -> bool:
    """Whether a program, including its tests, runs to completion; see `run`."""
    return run(program).passed


def run(program: str, seconds: int = 5, megabytes: int = 512, clock: float = 60) -> Verdict:
    """Run a Python program, including its tests, in the sandbox.

    A pass is proved by a secret of this run, which the process reads from a pipe once the program is done: exiting early
    (`sys.exit(0)`, `os._exit(0)`) or printing something is not a pass. A program that searches for the pipe can find it.

    `seconds`: whole seconds of CPU time, including Python's start. `megabytes`: of address space. `clock`: seconds of
    elapsed time; the default lets a program that shares its core with ten others use up its CPU time first.

    Raises ValueError for limits that no program could meet, OSError on systems that cannot limit processes (Windows).
    """
    if not isinstance(seconds, int) or not 1 <= seconds <= clock < math.inf or megabytes < SMALLEST:
        raise ValueError(
            f"seconds={seconds}, megabytes={megabytes}, clock={clock}: seconds must be a positive integer, megabytes at "
            f"least {SMALLEST}, and clock finite and at least seconds"
        )
    if os.name != "posix":
        raise OSError(f"generated code runs on Linux and macOS only, not on {sys.platform}: use generate=False")
    secret = secrets.token_bytes(32)
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="lens-heads-", ignore_cleanup_errors=True))
        key, give, answer, result = [*os.pipe(), *os.pipe()]
        for end in (key, give, answer, result):
            stack.callback(os.close, end)
        Path(folder, "program.py").write_text(program, encoding="utf-8", errors="replace", newline="\n")
        os.write(give, secret)
        code = _child(folder, key, result, seconds, megabytes, clock)
        os.set_blocking(answer, False)
        with suppress(BlockingIOError):
            return _verdict(os.read(answer, 4096), secret, code, seconds, clock)
        return _verdict(b"", secret, code, seconds, clock)


def _child(folder: str, key: int, result: int, seconds: int, megabytes: int, clock: float) -> int | None:
    """The exit code of the process, None if it was stopped after `clock`. Every process it started is killed."""
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
    """The meaning of the child's exit code and message: "+" or "-" for its network, then the secret or an exception."""
    network, rest = said[:1], said[1:]
    if network == b"-":
        warnings.warn(
            "generated programs have no network namespace of their own on this system: only Python's audit hook blocks "
            "their network access; allow user namespaces, or run in a container without network",
            stacklevel=3,
        )
    if secrets.compare_digest(rest, secret):
        return Verdict(True)
    if code is None:
        return Verdict(False, f"stopped after {clock} s of elapsed time")
    if code == -signal.SIGXCPU:
        return Verdict(False, f"stopped after {seconds} s of CPU time")
    if rest:
        return Verdict(False, rest.decode(errors="replace"))
    how = f"by {signal.Signals(-code).name}" if code < 0 else f"with exit code {code}"
    return Verdict(False, f"ended {how} before its tests were done")
