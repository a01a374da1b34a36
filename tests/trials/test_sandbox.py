"""The sandbox: programs that pass, fail, hang, hoard, pry or cheat, each with its verdict; nothing is left of any."""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lens_heads.trials import sandbox
from lens_heads.trials.sandbox import Verdict, passes, run

FOLDER = "import os\nhere = os.getcwd()\n"


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
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    monkeypatch.setattr(subprocess, "Popen", Recorded)
    monkeypatch.setenv("A_SECRET_OF_MINE", "token")
    yield pids
    assert list(folder.iterdir()) == []
    until = time.monotonic() + 5  # A killed process needs a moment to die.
    while any(map(alive, pids)) and time.monotonic() < until:
        time.sleep(0.01)
    assert not [pid for pid in pids if alive(pid)]


def alive(group: int) -> list[str]:
    """The processes of a group, without those that are dead and only not yet waited for by whoever inherited them."""
    found: list[str] = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            name, _, rest = stat.read_text().rpartition(")")
        except (FileNotFoundError, ProcessLookupError):
            continue
        state, _, process_group = rest.split()[:3]
        if int(process_group) == group and state != "Z":
            found.append(name)
    return found


PASSING = {
    "tests": "def double(x):\n    return 2 * x\n\nassert double(4) == 8\n",
    "the standard library": "import collections, dataclasses, hashlib, heapq, math, re, typing\n"
    "@dataclasses.dataclass\nclass Point:\n    x: int\nassert Point(1) == Point(1)\n"
    "assert collections.namedtuple('P', 'x')(3).x == 3 and hashlib.md5(b'').hexdigest()",
    "no environment": FOLDER + "assert dict(os.environ) == {'HOME': here}, os.environ",
    "files in its own folder": FOLDER
    + "os.mkdir('d')\nwith open('a', 'w') as file:\n    file.write('x')\nos.rename('a', here + '/d/b')\n"
    "assert open('d/b').read() == 'x'\nos.chmod('d', 0)",
    "output": "import sys\nprint('x' * 1_000_000)\nsys.stderr.write('y' * 1_000_000)",
    "an exception it catches": "try:\n    1 / 0\nexcept ZeroDivisionError:\n    pass",
    "what stands under __main__ is not run": "if __name__ == '__main__':\n    input()",
}

FAILING = {
    "a failed test": ("assert 1 + 1 == 3, 'sum'", "AssertionError: sum"),
    "no code": ("def f(:\n", "SyntaxError: invalid syntax"),
    "no such name": ("double(4)", "NameError: name 'double'"),
    "too deep": ("def f():\n    f()\nf()", "RecursionError"),
    "memory": ("x = bytearray(10**10)", "MemoryError"),
    "a file too large": ("with open('a', 'wb') as file:\n    file.write(bytes(20_000_000))", "File too large"),
    "input": ("input()", "EOFError"),
    "a fork bomb": ("import os\nwhile True:\n    os.fork()", "os.fork is not allowed in the sandbox"),
    "a command": ("import subprocess\nsubprocess.run(['true'])", "subprocess.Popen is not allowed"),
    "a shell": ("import os\nos.system('true')", "os.system is not allowed"),
    "another program": ("import os\nos.execv('/bin/true', ['true'])", "os.exec is not allowed"),
    "a signal to its parent": ("import os\nos.kill(os.getppid(), 0)", "os.kill is not allowed"),
    "a host's name": ("import socket\nsocket.getaddrinfo('example.org', 80)", "socket.getaddrinfo is not allowed"),
    "C": ("import ctypes\nctypes.CDLL(None).getpid()", "ctypes.dlopen is not allowed"),
    "more memory": ("import resource\nresource.setrlimit(resource.RLIMIT_AS, (-1, -1))", "resource.setrlimit is not"),
    "a link out": ("import os\nos.symlink('/', 'root')", "os.symlink is not allowed"),
    "packages": ("import numpy", "No module named 'numpy'"),
    "this package": ("import lens_heads", "No module named 'lens_heads'"),
    "leaving early": ("import sys\nsys.exit(0)\nassert False", "SystemExit: 0"),
    "leaving at once": ("import os\nos._exit(0)\nassert False", "ended with exit code 0 before its tests were done"),
    "killing itself": ("import os, signal\nsignal.raise_signal(signal.SIGKILL)", "ended by SIGKILL before its tests"),
    "a false token": (
        "import os, secrets\nfor fd in range(1, 20):\n    try:\n        os.write(fd, secrets.token_bytes(32))\n"
        "    except OSError:\n        pass\nos._exit(0)",
        "",
    ),
}


@pytest.mark.parametrize("program", PASSING.values(), ids=PASSING)
def test_a_program_that_comes_to_its_end_passes(program: str) -> None:
    assert run(program) == Verdict(True, "")
    assert passes(program)


@pytest.mark.parametrize(("program", "why"), FAILING.values(), ids=FAILING)
def test_a_program_that_does_not_says_why(program: str, why: str) -> None:
    verdict = run(program)
    assert not verdict.passed
    assert why in verdict.why


BUSY = "while True:\n    pass"


def test_a_busy_program_is_stopped_by_its_cpu_time() -> None:
    assert run(BUSY, seconds=1) == Verdict(False, "stopped after 1 s of CPU time")


def test_a_busy_program_that_ignores_the_signal_is_killed() -> None:
    deaf = f"import signal\nsignal.signal(signal.SIGXCPU, signal.SIG_IGN)\n{BUSY}"
    assert run(deaf, seconds=1) == Verdict(False, "ended by SIGKILL before its tests were done")


def test_a_sleeping_program_is_stopped_by_the_clock() -> None:
    assert run("import time\ntime.sleep(60)", seconds=1, clock=1) == Verdict(False, "stopped after 1 s of elapsed time")


def test_waiting_is_not_computing() -> None:
    """As a right program on a machine with much else to do, it takes longer by the clock than it may compute."""
    assert run("import time\ntime.sleep(1.5)", seconds=1) == Verdict(True)


def test_a_hoard_of_small_things_is_stopped() -> None:
    verdict = run("x = []\nwhile True:\n    x.append([0] * 1000)", seconds=20, megabytes=100)
    assert not verdict.passed
    assert "stopped" not in verdict.why, "by its memory, not by its time"


@pytest.mark.parametrize("call", ["open({path!r}, 'w')", "os.open({path!r}, os.O_CREAT)", "os.mkdir({path!r})"])
@pytest.mark.parametrize("place", ["outside", "../outside", "link/outside"])
def test_nothing_is_written_outside_its_folder(tmp_path: Path, call: str, place: str) -> None:
    path = str(tmp_path / "outside") if place == "outside" else place
    if place == "link/outside":  # A way out that the program finds, not makes.
        path = str(tmp_path / "link" / "outside")
        (tmp_path / "link").symlink_to(tmp_path)
    verdict = run(f"import os\n{call.format(path=path)}")
    assert "is not allowed in the sandbox: it is outside its folder" in verdict.why
    assert not list(tmp_path.rglob("outside"))


def test_a_file_of_ours_cannot_be_removed(tmp_path: Path) -> None:
    mine = tmp_path / "mine.txt"
    mine.write_text("mine")
    for call in ("os.remove({!r})", "os.rename({!r}, 'a')", "os.truncate({!r}, 0)", "os.chmod({!r}, 0)"):
        assert "outside its folder" in run(f"import os\n{call.format(str(mine))}").why
    assert mine.read_text() == "mine"


def test_not_even_this_machine_can_be_reached() -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        socket.create_connection(("127.0.0.1", port)).close()  # It is there.
        program = f"import socket\nsocket.create_connection(('127.0.0.1', {port}), timeout=2)"
        assert "is not allowed in the sandbox" in run(program).why


def test_the_kernel_gives_it_a_network_with_nothing_in_it() -> None:
    """The wall behind the audit hook; without it there is a warning."""
    ours = os.readlink("/proc/self/ns/net")
    program = f"import os\nassert os.readlink('/proc/self/ns/net') != {ours!r}\n"
    program += "assert len(open('/proc/self/net/dev').read().splitlines()) == 3"  # Two lines of heading, and lo.
    try:
        subprocess.run(["unshare", "--user", "--net", "true"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        with pytest.warns(UserWarning, match="only Python's audit hook"):
            run("")
        pytest.skip("this kernel allows no network namespace")
    assert run(program) == Verdict(True, "")


def test_where_the_kernel_gives_no_namespace_a_warning_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    text = sandbox.CHILD.read_text().replace('b"+" if own_network() else b"-"', 'b"-"')
    child = tmp_path / "child.py"
    child.write_text(text)
    monkeypatch.setattr(sandbox, "CHILD", child)
    with pytest.warns(UserWarning, match="no network namespace of their own on this system: only Python's audit hook"):
        assert run("assert True").passed


def test_what_it_starts_all_the_same_is_stopped_with_it(started: list[int]) -> None:
    """A process started behind the audit hook's back, as root can, still dies with its group."""
    program = "from multiprocessing import util\nutil.spawnv_passfds(b'/bin/sleep', [b'sleep', b'60'], [])"
    run(program)
    assert len(started) == 1  # What `started` looks at when this is over.


def test_the_secret_is_another_one_each_time_and_not_in_reach(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[bytes] = []
    token_bytes = sandbox.secrets.token_bytes
    monkeypatch.setattr(sandbox.secrets, "token_bytes", lambda n: made.append(token_bytes(n)) or made[-1])
    program = "import os, sys\nassert sys.argv == ['program.py'] and os.listdir() == ['program.py']"
    assert run(program) == run(program) == Verdict(True, "")
    assert len(set(made)) == 2


@pytest.mark.parametrize(
    "limits",
    [
        {"seconds": 0},
        {"seconds": 1.5},
        {"seconds": float("inf")},
        {"seconds": 2, "clock": 1.9},
        {"clock": float("inf")},
        {"clock": float("nan")},
        {"megabytes": 8},
    ],
)
def test_limits_that_nothing_could_pass_are_refused(limits: dict[str, Any], started: list[int]) -> None:
    with pytest.raises(ValueError, match="a positive integer, megabytes at least 64, and clock finite and at least"):
        run("", **limits)
    assert started == []


def test_where_processes_cannot_be_limited_nothing_runs(monkeypatch: pytest.MonkeyPatch, started: list[int]) -> None:
    monkeypatch.setattr(sandbox, "os", type("os", (), {"name": "nt"}))
    with pytest.raises(OSError, match="on Linux and macOS only"):
        run("")
    assert started == []
