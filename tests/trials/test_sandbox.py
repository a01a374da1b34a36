"""The sandbox: its limits, what a program finds in it, and what is left of a program afterwards: nothing."""

from __future__ import annotations

import os
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lens_heads.trials import confinement, sandbox
from lens_heads.trials.sandbox import Outcome, run
from tests.sandboxed import DOUBLE, TESTS, needs_confinement


@pytest.fixture(autouse=True)
def started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """The processes that a test starts; after each test, neither they nor their group nor their folder are left."""
    pids: list[int] = []

    class Recorded(subprocess.Popen):  # type: ignore[type-arg]
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            pids.append(self.pid)

    folder = tmp_path / "temporary"
    folder.mkdir()
    confinement.missing()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    monkeypatch.setattr(subprocess, "Popen", Recorded)
    yield pids
    assert list(folder.iterdir()) == []
    gone(lambda: [pid for pid, (_, group) in processes().items() if group in pids])


def processes() -> dict[int, tuple[int, int]]:
    """Parent and group of every process, without those that are dead and only not yet waited for by whoever inherited them."""
    found: dict[int, tuple[int, int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, parent, group = stat.read_text().rpartition(")")[2].split()[:3]
        except (FileNotFoundError, ProcessLookupError):
            continue
        if state != "Z":
            found[int(stat.parent.name)] = int(parent), int(group)
    return found


def gone(left: Any) -> None:
    """A killed process needs a moment to die."""
    until = time.monotonic() + 10
    while left() and time.monotonic() < until:
        time.sleep(0.02)
    assert not left()


def program(body: str, **options: Any) -> Outcome:
    """The verdict on a program that does something when it is imported, and is right otherwise."""
    return run(f"{body}\n{DOUBLE}", TESTS, DOUBLE, **options)


PASSING = {
    "the standard library": "import collections, dataclasses, hashlib, heapq, math, re, ssl, sqlite3, typing\n"
    "@dataclasses.dataclass\nclass Point:\n    x: int\nassert Point(1) == Point(1)\n"
    "assert collections.namedtuple('P', 'x')(3).x == 3 and hashlib.md5(b'').hexdigest()",
    "no environment": "import os\nassert set(os.environ) <= {'HOME', 'PWD'} and os.environ['HOME'] == '/tmp', os.environ",
    "files in its own folder": "import os\nhere = os.getcwd()\nassert os.listdir() == []\n"
    "os.mkdir('d')\nwith open('a', 'w') as file:\n    file.write('x')\nos.rename('a', here + '/d/b')\n"
    "assert open('d/b').read() == 'x'\nos.chmod('d', 0)",
    "output": "import sys\nprint('x' * 1_000_000)\nsys.stderr.write('y' * 1_000_000)",
    "an exception it catches": "try:\n    1 / 0\nexcept ZeroDivisionError:\n    pass",
    "what stands under __main__ is not run": "if __name__ == '__main__':\n    input()",
    "nothing of its command": "import sys\nassert sys.argv == ['program.py']",
}

FAILING = {
    "no code": ("def f(:\n", "SyntaxError: invalid syntax"),
    "no such name": ("double(4)", "NameError: name 'double'"),
    "too deep": ("def f():\n    f()\nf()", "RecursionError"),
    "memory": ("x = bytearray(10**10)", "MemoryError"),
    "a file too large": ("with open('a', 'wb') as file:\n    file.write(bytes(20_000_000))", "File too large"),
    "input": ("input()", "EOFError"),
    "a fork bomb": ("import os\nwhile True:\n    os.fork()", "Operation not permitted"),
    "a command": ("import subprocess\nsubprocess.run(['true'])", "Operation not permitted"),
    "another program": ("import os\nos.execv('/bin/true', ['true'])", "No such file or directory"),
    "a host's name": ("import socket\nsocket.getaddrinfo('example.org', 80)", "gaierror"),
    "more memory": (
        "import resource\nresource.setrlimit(resource.RLIMIT_AS, (-1, -1))",
        "not allowed to raise maximum",
    ),
    "packages": ("import numpy", "No module named 'numpy'"),
    "this package": ("import lens_heads", "No module named 'lens_heads'"),
    "leaving early": ("import sys\nsys.exit(0)", "SystemExit: 0"),
    "leaving at once": ("import os\nos._exit(0)", "ended with exit code 0 before its tests were done"),
    "killing itself": ("import os, signal\nsignal.raise_signal(signal.SIGKILL)", "ended by SIGKILL before its tests"),
}


@needs_confinement
@pytest.mark.parametrize("body", PASSING.values(), ids=PASSING)
def test_a_program_that_is_right_passes(body: str) -> None:
    assert program(body) == Outcome(True)


@needs_confinement
@pytest.mark.parametrize(("body", "why"), FAILING.values(), ids=FAILING)
def test_a_program_that_does_not_says_why(body: str, why: str) -> None:
    verdict = program(body)
    assert not verdict.passed
    assert why in verdict.why


@needs_confinement
def test_a_failed_test_says_why() -> None:
    assert run(DOUBLE, "assert double(1) == 3, 'sum'", DOUBLE) == Outcome(False, "AssertionError: sum")


BUSY = "while True:\n    pass"
EITHER = pytest.mark.parametrize(
    "unsafe", [pytest.param(False, marks=needs_confinement), True], ids=["confined", "unsafe"]
)


@pytest.mark.slow
@EITHER
def test_a_busy_program_is_stopped_by_its_cpu_time(unsafe: bool) -> None:
    assert program(BUSY, seconds=1, unsafe=unsafe) == Outcome(False, "stopped after 1 s of CPU time")


@pytest.mark.slow
@EITHER
def test_a_busy_program_that_ignores_the_signal_is_killed(unsafe: bool) -> None:
    deaf = f"import signal\nsignal.signal(signal.SIGXCPU, signal.SIG_IGN)\n{BUSY}"
    assert program(deaf, seconds=1, unsafe=unsafe) == Outcome(False, "ended by SIGKILL before its tests were done")


@pytest.mark.slow
@EITHER
def test_busy_tests_are_stopped_too(unsafe: bool) -> None:
    verdict = run(DOUBLE, f"double(1)\n{BUSY}", DOUBLE, seconds=1, unsafe=unsafe)
    assert verdict == Outcome(False, "stopped after 1 s of CPU time")


@pytest.mark.slow
@EITHER
def test_a_sleeping_program_is_stopped_by_the_clock(unsafe: bool) -> None:
    verdict = program("import time\ntime.sleep(60)", seconds=1, clock=1, unsafe=unsafe)
    assert verdict == Outcome(False, "stopped after 1 s of elapsed time")


@pytest.mark.slow
@needs_confinement
def test_waiting_is_not_computing() -> None:
    """As a right program on a machine with much else to do, it takes longer by the clock than it may compute."""
    assert program("import time\ntime.sleep(1.5)", seconds=1) == Outcome(True)


@needs_confinement
def test_a_hoard_of_small_things_is_stopped() -> None:
    verdict = program("x = []\nwhile True:\n    x.append([0] * 1000)", seconds=20, megabytes=100)
    assert not verdict.passed
    assert "stopped" not in verdict.why, "by its memory, not by its time"


@needs_confinement
def test_the_kernel_gives_it_a_network_with_nothing_in_it() -> None:
    """The wall behind the refused sockets."""
    found = "import socket\ns, _ = socket.socketpair()\nimport fcntl, struct\n"
    names = "assert [name for _, name in socket.if_nameindex()] in ([], ['lo'])"
    assert program(f"{found}try:\n    {names}\nexcept OSError:\n    pass") == Outcome(True)


@pytest.mark.slow
@needs_confinement
def test_confined_processes_die_with_the_call(started: list[int]) -> None:
    done: list[Outcome] = []
    sleep = "import time\ntime.sleep(60)"
    caller = threading.Thread(target=lambda: done.append(program(sleep, seconds=1, clock=2)))
    caller.start()
    inside, until = set(started), time.monotonic() + 1.9
    while len(inside) < 6 and time.monotonic() < until:  # Bubblewrap, its init, the program; twice.
        inside |= set(started) | {pid for pid, (parent, _) in processes().items() if parent in inside}
        time.sleep(0.01)
    assert len(inside) >= 6
    caller.join()
    assert done == [Outcome(False, "stopped after 2 s of elapsed time")]
    gone(lambda: inside & processes().keys())


def test_what_an_unconfined_program_starts_is_stopped_with_it(started: list[int]) -> None:
    body = "import subprocess\nsubprocess.Popen(['sleep', '60'])"
    program(body, unsafe=True)
    assert len(started) == 2  # What `started` looks at when this is over.


@EITHER
def test_an_interrupt_leaves_no_process(unsafe: bool, started: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    wait = subprocess.Popen.wait

    def interrupted(process: Any, clock: float | None = None) -> int:
        if clock is not None:
            raise KeyboardInterrupt
        return wait(process)

    monkeypatch.setattr(subprocess.Popen, "wait", interrupted)
    with pytest.raises(KeyboardInterrupt):
        program("import time\ntime.sleep(60)", unsafe=unsafe)
    assert len(started) == 2


@needs_confinement
def test_no_descriptor_is_left() -> None:
    before = os.listdir("/proc/self/fd")
    program("")
    assert os.listdir("/proc/self/fd") == before


@pytest.mark.parametrize(
    "limits",
    [
        {"seconds": 0},
        {"seconds": 1.5},
        {"seconds": True},
        {"seconds": float("inf")},
        {"seconds": 2, "clock": 1.9},
        {"clock": float("inf")},
        {"clock": float("nan")},
        {"megabytes": 8},
        {"megabytes": 100.5},
    ],
)
def test_limits_that_nothing_could_pass_are_refused(limits: dict[str, Any], started: list[int]) -> None:
    with pytest.raises(ValueError, match="must be a"):
        program("", **limits)
    assert started == []


def test_where_processes_cannot_be_limited_nothing_runs(monkeypatch: pytest.MonkeyPatch, started: list[int]) -> None:
    monkeypatch.setattr(sandbox, "os", type("os", (), {"name": "nt"}))
    with pytest.raises(OSError, match="on Linux and macOS only"):
        program("", unsafe=True)
    assert started == []


@needs_confinement
@pytest.mark.parametrize("role", ["program", "tests"])
def test_a_process_that_does_not_start_is_no_verdict(role: str, monkeypatch: pytest.MonkeyPatch) -> None:
    start = sandbox._start

    def broken(stack: Any, name: str, *args: Any) -> Any:
        monkeypatch.setattr(
            sandbox, "CHILD", Path("/nowhere") if name == role else Path(sandbox.__file__).parent / "guest"
        )
        return start(stack, name, *args)

    monkeypatch.setattr(sandbox, "_start", broken)
    with pytest.raises(OSError, match=r"the sandbox did not start \(exit code 1\)"):
        program("")


@needs_confinement
def test_an_older_bubblewrap_leaves_the_folder_read_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(confinement, "_sized", lambda: False)
    assert program("try:\n    open('a', 'w')\n    raise SystemExit\nexcept OSError:\n    pass") == Outcome(True)
