"""A sandbox for generated programs: do the tests of a generated program pass?

Two processes run, each confined on its own. One executes the generated program and answers calls of its functions; the other
executes the tests, in which these functions are calls of the first process. Only plain values cross (`guest/plain.py`). So
a program sees neither its tests nor their verdict, and cannot answer with an object that claims to equal everything.

The boundary is bubblewrap (https://github.com/containers/bubblewrap; Linux on x86_64 or aarch64). A process sees Python and
the system's libraries, read-only, and an empty folder in memory of 32 MB: no file of yours, no device, no other process, no
network, no environment. It has no capabilities, and a system-call filter refuses new processes, threads, sockets, the memory
of bubblewrap's own process, and memory that limits do not count. CPU time, memory and files are limited; all ends with the
caller. What remains: flaws of the kernel and of bubblewrap, load on the machine within the limits (with the kernel's memory
for empty files), and what stands in the library folders of the system and of Python, which the program may read.

Where bubblewrap cannot run, nothing is executed, unless the caller declares the machine disposable (`unsafe`): then only the
limits hold, and the program can do whatever you can, forge its verdict included.

Functions are tested. Arguments and results are copies, but changes that a function makes to its list, dict, set or object are
passed back. Classes that the reference defines belong to the tests, and iterators are read to their end.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from contextlib import ExitStack, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from lens_heads.runs import checks
from lens_heads.trials.confinement import confined, missing, python

CHILD = Path(__file__).with_name("guest")
SMALLEST = 64
"""Megabytes below which Python itself might not start."""
_OPTIONS = ("-I", "-S", "-B", "-X", "utf8")


@dataclass(frozen=True)
class Outcome:
    """Whether all tests passed, and if not, `why`: the exception, the limit, or that the program ended early."""

    passed: bool
    why: str = ""


def run(
    program: str,
    tests: str,
    reference: str,
    preamble: str = "",
    seconds: int = 5,
    megabytes: int = 512,
    clock: float = 60,
    unsafe: bool = False,
) -> Outcome:
    """Run the tests of a generated program.

    Args:
        program: the generated program, preamble included.
        tests: code that raises where the program is wrong.
        reference: a right program, preamble included. The functions that it defines after the preamble are tested.
        preamble: what comes before the answer in both.
        seconds: whole seconds of CPU time for each of the two processes, including Python's start.
        megabytes: of address space for each.
        clock: seconds of elapsed time; the default lets a program that shares its core with ten others use up its CPU time.
        unsafe: run unconfined, on a disposable machine.

    Raises ValueError for limits that no program could meet and for a reference that does not run or is not tested, OSError
    where nothing can be confined.
    """
    limits = (checks.whole_number("seconds", seconds), checks.whole_number("megabytes", megabytes, SMALLEST))
    checks.finite("clock", clock, seconds)
    check_confined(unsafe)
    given = {"reference": reference, "preamble": preamble, "tests": tests}
    with ExitStack() as stack:
        asked, ask = _pipe(stack)
        answered, answer = _pipe(stack)
        verdict, say = _pipe(stack)
        serving = _start(stack, "program", {"program": program}, (asked, answer), limits, unsafe)
        testing = _start(stack, "tests", given, (answered, ask, say), limits, unsafe)
        for end in (asked, ask, answered, answer, say):
            end.close()  # So that each process learns when the other has ended.
        try:
            testing.wait(clock)
        except subprocess.TimeoutExpired:
            return Outcome(False, f"stopped after {clock} s of elapsed time")
        said = os.read(verdict.fileno(), 65536)
        with suppress(subprocess.TimeoutExpired):
            serving.wait(1)
        return _verdict(said, serving.returncode, testing.returncode, seconds)


def permission(name: str, value: Any) -> bool | str:
    """Whether generated code may run: False, True (confined), or "unsafe". ValueError, with the name, for anything else."""
    if isinstance(value, bool) or (isinstance(value, str) and value == "unsafe"):
        return value
    raise ValueError(
        f'{name}={value!r}: must be True, False or "unsafe" (without confinement, on a disposable machine)'
    )


def check_confined(unsafe: bool) -> None:
    """OSError, with the remedy, unless programs can be confined here, or need not be."""
    if os.name != "posix":
        raise OSError(f"generated code runs on Linux and macOS only, not on {sys.platform}: use generate=False")
    if not unsafe and (why := missing()):
        raise OSError(
            f"generated code cannot be confined here: {why}. Install bubblewrap, let it create user namespaces, use "
            'generate=False, or on a disposable machine pass allow_code_execution="unsafe" (--allow-code-execution=unsafe)'
        )


def _pipe(stack: ExitStack) -> tuple[BinaryIO, BinaryIO]:
    read, write = os.pipe()
    return stack.enter_context(open(read, "rb", buffering=0)), stack.enter_context(open(write, "wb", buffering=0))


def _start(
    stack: ExitStack,
    role: str,
    given: dict[str, str],
    ends: tuple[BinaryIO, ...],
    limits: tuple[int, int],
    unsafe: bool,
) -> subprocess.Popen[bytes]:
    """One of the two processes, which has read what is given. It is killed, with all that it started, at the stack's end."""
    fds = [end.fileno() for end in ends]
    arguments = [*_OPTIONS, str(CHILD) if unsafe else "/sandbox", role, *map(str, (*limits, *fds))]
    folder = (
        tempfile.TemporaryDirectory(prefix="lens-heads-", ignore_cleanup_errors=True) if unsafe else nullcontext("/")
    )
    home = stack.enter_context(folder)
    with nullcontext(([python(), *arguments], None)) if unsafe else confined(arguments, CHILD) as (command, filtered):
        process = subprocess.Popen(
            command,
            cwd=home,
            env={"HOME": home if unsafe else "/tmp"},
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            pass_fds=fds if filtered is None else [*fds, filtered],
        )
    stack.callback(_kill, process)
    assert process.stdin is not None
    with suppress(BrokenPipeError), process.stdin as stdin:
        stdin.write(json.dumps(given).encode())
    return process


def _kill(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _verdict(said: bytes, program: int | None, tests: int, seconds: int) -> Outcome:
    """The meaning of what the tests' process said, and of both exit codes."""
    kind, why = json.loads(said) if said else ("", "")
    if kind == "reference":
        raise ValueError(
            f"the reference answer cannot judge programs ({why}): pass a right program and tests that call it"
        )
    if kind in ("passed", "failed"):
        return Outcome(kind == "passed", why)
    code = program if said else tests
    number = 0 if code is None else -code if code < 0 else max(0, code - 128)  # bubblewrap adds 128 to a signal.
    if number == signal.SIGXCPU:
        return Outcome(False, f"stopped after {seconds} s of CPU time")
    if kind == "unstarted" or (not said and not number):
        raise OSError(f"the sandbox did not start (exit code {code}): free memory or processes, and repeat the call")
    how = f"by {signal.Signals(number).name}" if number else f"with exit code {code}"
    return Outcome(False, f"ended {how} before its tests were done")
