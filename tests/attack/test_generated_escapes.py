"""Generated programs that try to get out: files, processes, sockets and secrets of the test are what and where they were.

Every line is the body of a function, run when the program is imported. It returns what it got hold of, if anything; the program
then answers its tests rightly only if that is nothing. What it destroys is looked for afterwards.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from lens_heads.trials.sandbox import Outcome, run
from tests.sandboxed import DOUBLE, TESTS, needs_confinement

SECRET = "the-secret-of-the-test"

FILES = {
    "rmtree": "import shutil; shutil.rmtree({folder!r}, ignore_errors=True)",
    "rmtree of everything": "import shutil; shutil.rmtree('/', ignore_errors=True)",
    "remove": "os.remove({file!r})",
    "remove by dir_fd": "os.remove('mine.txt', dir_fd=os.open({folder!r}, os.O_RDONLY))",
    "remove from a folder of descriptors": "os.chdir({folder!r}); os.unlink('mine.txt')",
    "rename by dir_fd": "d = os.open({folder!r}, os.O_RDONLY); os.rename('mine.txt', 'yours', src_dir_fd=d, dst_dir_fd=d)",
    "replace": "open('x', 'w').close(); os.replace('x', {file!r})",
    "mkdir by dir_fd": "os.mkdir('new', dir_fd=os.open({folder!r}, os.O_RDONLY))",
    "open by dir_fd": "os.open('new', os.O_CREAT | os.O_WRONLY, dir_fd=os.open({folder!r}, os.O_RDONLY))",
    "truncating open": "open({file!r}, 'w').close()",
    "FileIO of a PathLike": "import io, pathlib; io.FileIO(pathlib.Path({file!r}), 'w').close()",
    "append by an opener": "open('any', 'a', opener=lambda *_: os.open({file!r}, os.O_WRONLY | os.O_APPEND)).write('x')",
    "truncate": "os.truncate({file!r}, 0)",
    "chmod": "os.chmod({file!r}, 0)",
    "chmod by descriptor": "os.fchmod(os.open({file!r}, os.O_RDONLY), 0o777)",
    "chown": "os.chown({file!r}, 65534, 65534)",
    "utime": "os.utime({file!r}, (0, 0))",
    "setxattr": "os.setxattr({file!r}, 'user.mark', b'x')",
    "mkfifo": "os.mkfifo({folder!r} + '/fifo')",
    "mknod": "os.mknod({folder!r} + '/node')",
    "symlink": "os.symlink('/', {folder!r} + '/root')",
    "hard link": "os.link({file!r}, {folder!r} + '/second')",
    "link from its own folder": "os.symlink({folder!r}, 'out'); open('out/new', 'w').close()",
    "sqlite3": "import sqlite3; sqlite3.connect({folder!r} + '/db').execute('create table t (x)')",
    "dbm": "import dbm.dumb; dbm.dumb.open({folder!r} + '/db', 'c').close()",
    "temporary file": "import tempfile; tempfile.mkstemp(dir={folder!r})",
    "log file": "import logging; logging.FileHandler({folder!r} + '/log')",
    "zip": "import zipfile; zipfile.ZipFile({folder!r} + '/zip', 'w').close()",
    "unlink in C": "import ctypes; ctypes.CDLL(None).unlink({file!r}.encode())",
    "bytecode": "import py_compile; py_compile.compile(os.__file__, {folder!r} + '/os.pyc')",
    "parent folders": "open('../' * 20 + {file!r}, 'w').close()",
    "chmod of a device": "os.chmod('/dev/null', 0o666); return 'changed'",
    "chmod of its output": "import stat; return [os.fchmod(fd, 0o666) for fd in (1, 2) if stat.S_ISCHR(os.fstat(fd).st_mode)]",
    "times of its output": "import stat; return [os.utime(fd) for fd in (1, 2) if stat.S_ISCHR(os.fstat(fd).st_mode)]",
    "own libraries": "return open(os.__file__, 'a')",
    "own child's code": "return open('/sandbox/plain.py', 'a')",
    "root folder": "return open('/new', 'w')",
    "shared memory": "return open('/dev/shm/new', 'w')",
    "kernel settings": "return open('/proc/sys/kernel/core_pattern', 'r+')",
    "control groups": "return os.listdir('/sys/fs/cgroup')",
}

PROCESSES = {
    "fork": "return os.fork() + 1",
    "vfork and exec": "import _posixsubprocess, subprocess; return subprocess.run([sys.executable, '-c', ''])",
    "posix_spawn": "return os.posix_spawn(sys.executable, ['x', '-c', ''], {{}})",
    "shell": "return os.system('true') == 0",
    "clone in C": "import ctypes; return ctypes.CDLL(None).syscall(56, 17, 0, 0, 0, 0) >= 0",
    "multiprocessing": "import multiprocessing as m; p = m.get_context('fork').Process(); p.start(); return 'started'",
    "thread": "import threading; threading.Thread(target=print).start(); return 'started'",
    "kill": "os.kill({pid}, 9)",
    "kill a group": "os.killpg({pid}, 9)",
    "pidfd": "import signal; signal.pidfd_send_signal(os.pidfd_open({pid}), 9)",
    "kill the parent's parent": "os.kill({parent}, 9)",
    "ptrace": "import ctypes; return ctypes.CDLL(None).ptrace(16, {pid}, 0, 0) == 0",
    "priority": "return os.setpriority(os.PRIO_PROCESS, {pid}, 19) is None",
    "affinity": "return os.sched_setaffinity({pid}, [0]) is None",
    "other processes": "return [name for name in os.listdir('/proc') if name.isdigit()]",
    "environment of a process": "return open('/proc/{parent}/environ').read()",
    "descriptors of a process": "return os.listdir('/proc/{parent}/fd')",
    "memory of a process": "return open('/proc/{pid}/mem', 'rb+')",
    "root of a process": "return os.listdir('/proc/{parent}/root')",
    "descriptors of bubblewrap": "import ctypes; c = ctypes.CDLL(None).syscall; pid = c(434, 1, 0)\n"
    "return [fd for fd in range(64) if c(438, pid, fd, 0) >= 0]",
    "memory of bubblewrap": "import ctypes; c = ctypes.CDLL(None, use_errno=True); return [n for n in (310, 311)"
    " if c.syscall(n, 1, None, 0, None, 0, 0) == 0]",
}

SOCKETS = {
    "tcp": "import socket; return socket.create_connection(('127.0.0.1', {port}), 2)",
    "tcp by the C module": "import _socket; s = _socket.socket(); s.connect(('127.0.0.1', {port})); return s",
    "http": "import urllib.request; return urllib.request.urlopen('http://127.0.0.1:{port}', timeout=1)",
    "unix socket": "import socket; s = socket.socket(socket.AF_UNIX); s.connect({folder!r} + '/socket'); return s",
    "abstract socket": "import socket; s = socket.socket(socket.AF_UNIX); s.connect('\\0lens-heads-{port}'); return s",
    "netlink": "import socket; return socket.socket(socket.AF_NETLINK, socket.SOCK_RAW)",
    "listening": "import socket; return socket.create_server(('127.0.0.1', 0))",
    "names": "import socket; return socket.getaddrinfo('localhost', 80, socket.AF_INET, 0, 0, 0) and open('/etc/hosts')",
}

SECRETS = {
    "environment": "return [v for k, v in os.environ.items() if k not in ('HOME', 'PWD')]",
    "environment in C": "import ctypes; g = ctypes.CDLL(None).getenv; g.restype = ctypes.c_char_p; return g(b'A_SECRET')",
    "file": "return open({file!r}).read()",
    "file in C": "import ctypes; return ctypes.CDLL(None).open({file!r}.encode(), 0) >= 0",
    "folder": "return os.listdir({folder!r})",
    "home": "return [n for n in os.listdir({home!r}) if not {python!r}.startswith(os.path.join({home!r}, n))]",
    "accounts": "return open('/etc/passwd').read()",
    "temporary files": "return os.listdir('/tmp')",
    "this package": "import lens_heads; return lens_heads",
    "packages": "import numpy; return numpy",
    "search by import": "sys.path.append({package!r}); import lens_heads; return lens_heads",
    "tests in its own process": "import gc; return [o for o in gc.get_objects() if type(o) is dict and 'reference' in o]",
    "tests on its input": "return sys.stdin.read() or os.read(0, 9)",
    "other descriptors": "return [fd for fd in range(3, 64) if is_open(fd)][2:]",
    "terminal": "return open('/dev/tty')",
    "disks": "return os.listdir('/dev')",
}

LIMITS = {
    "more memory": "import resource; resource.setrlimit(resource.RLIMIT_AS, (-1, -1)); return 'raised'",
    "another user": "os.setuid(0); return 'root'",
    "another root": "os.chroot('/tmp'); return 'changed'",
    "capabilities": "return os.getuid() == 0",
    "namespace": "import ctypes; return ctypes.CDLL(None).unshare(0x10000000) == 0",
    "mount": "import ctypes; return ctypes.CDLL(None).mount(b'/usr', b'/tmp', None, 4096, None) == 0",
    "memory as files": "return os.memfd_create('x')",
    "shared memory segment": "import ctypes; return ctypes.CDLL(None).shmget(0, 1 << 30, 0o1600) >= 0",
    "io_uring": "import ctypes; return ctypes.CDLL(None).syscall(425, 8, ctypes.create_string_buffer(200)) >= 0",
    "keyring": "import ctypes; return ctypes.CDLL(None).syscall(250, 0, -3, 0) >= 0",
    "disk": "for i in range(60):\n    open(str(i), 'wb').write(bytes(5_000_000))\nreturn 'filled'",
    "one large file": "open('x', 'wb').write(bytes(20_000_000)); return 'filled'",
    "descriptors without end": "return [os.dup(0) for _ in range(100)]",
    "bytes without end": "return len(bytearray(2_000_000_000))",
    "reopened input": "return os.write(0, b'x')",
    "no new limits by exec": "os.execv('/bin/sh', ['sh', '-c', 'true'])",
}

ESCAPES = {**FILES, **PROCESSES, **SOCKETS, **SECRETS, **LIMITS}

PROGRAM = """import os, sys
def is_open(fd):
    try:
        return os.fstat(fd) is not None
    except OSError:
        return False
def attempt():
{attempt}
try:
    got = attempt()
except BaseException as error:
    got = None
def double(x):
    return str(got) if got else 2 * x
"""


@dataclass
class Canaries:
    """Things of the test that a program could reach if nothing kept it from them."""

    folder: Path
    process: subprocess.Popen[bytes]
    servers: list[socket.socket]

    def places(self) -> dict[str, object]:
        return {
            "folder": str(self.folder),
            "file": str(self.folder / "mine.txt"),
            "pid": self.process.pid,
            "parent": os.getpid(),
            "port": self.servers[0].getsockname()[1],
            "home": str(Path.home()),
            "python": sys.base_prefix,
            "package": str(Path(__file__).parents[2]),
        }

    def state(self) -> list[object]:
        files = {path.name: os.lstat(path) for path in self.folder.rglob("*")}
        kept = {name: (s.st_mode, s.st_uid, s.st_size, s.st_mtime, s.st_nlink) for name, s in sorted(files.items())}
        mine = self.folder / "mine.txt"
        content = [os.listxattr(mine), mine.read_text()] if mine.exists() else []
        priority = os.getpriority(os.PRIO_PROCESS, self.process.pid)
        return [kept, content, self.process.poll(), os.sched_getaffinity(self.process.pid), priority]

    def called(self) -> bool:
        """Whether anybody has connected to one of the servers."""
        for server in self.servers:
            server.setblocking(False)
            try:
                server.accept()[0].close()
            except BlockingIOError:
                continue
            return True
        return False


@pytest.fixture
def canaries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Canaries]:
    monkeypatch.setenv("A_SECRET", SECRET)
    folder = tmp_path / "mine"
    (folder / "deep").mkdir(parents=True)
    for file in (folder / "mine.txt", folder / "deep" / "more.txt"):
        file.write_text(SECRET)
    tcp = socket.create_server(("127.0.0.1", 0))
    servers = [tcp]
    here = os.open(folder, os.O_RDONLY)
    for address in (
        f"/proc/self/fd/{here}/socket",
        f"\0lens-heads-{tcp.getsockname()[1]}",
    ):  # Paths of sockets are short.
        servers.append(socket.socket(socket.AF_UNIX))
        servers[-1].bind(address)
        servers[-1].listen()
    process = subprocess.Popen(["sleep", "60"], start_new_session=True)
    yield Canaries(folder, process, servers)
    process.kill()
    process.wait()
    os.close(here)
    for server in servers:
        server.close()


def attempted(attempt: str, canaries: Canaries, **options: bool) -> Outcome:
    body = textwrap.indent(attempt.format(**canaries.places()), "    ")
    return run(PROGRAM.replace("{attempt}", body), TESTS, DOUBLE, **options)


@pytest.mark.slow
@needs_confinement
@pytest.mark.parametrize("attempt", ESCAPES.values(), ids=ESCAPES)
def test_nothing_gets_out(attempt: str, canaries: Canaries) -> None:
    before = canaries.state()
    verdict = attempted(attempt, canaries)
    assert canaries.state() == before
    assert not canaries.called()
    if "os.exec" not in attempt:  # It got nothing, and otherwise did what it should.
        assert verdict == Outcome(True), verdict.why


UNCONFINED = (
    "rmtree",
    "remove by dir_fd",
    "FileIO of a PathLike",
    "chmod by descriptor",
    "mkfifo",
    "kill",
    "pidfd",
    "tcp",
)


@pytest.mark.parametrize("name", UNCONFINED)
def test_the_same_attempts_succeed_where_the_machine_is_declared_disposable(name: str, canaries: Canaries) -> None:
    """So the lines above can fail."""
    before = canaries.state()
    attempted(ESCAPES[name], canaries, unsafe=True)
    if name in ("kill", "pidfd"):
        assert canaries.process.wait(5) == -9
    else:
        assert canaries.called() if name == "tcp" else canaries.state() != before
