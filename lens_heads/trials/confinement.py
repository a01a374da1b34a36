"""Confinement of a process by bubblewrap: file system, network and processes of its own, and a system-call filter."""

from __future__ import annotations

import functools
import os
import platform
import shutil
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

LIBRARIES = ("/usr/lib", "/usr/lib32", "/usr/lib64", "/lib", "/lib32", "/lib64", "/nix/store", "/etc/ld.so.cache")
DISK = 32_000_000
"""Bytes that a process may write to its folder in memory."""

_MACHINES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_REFUSED = {  # System calls: their numbers on x86_64 and aarch64.
    "new processes and threads": ((57, 58, 56, 435), (220, 435)),  # fork, vfork, clone, clone3
    "sockets": ((41,), (198,)),  # socket; socketpair serves event loops
    "memory that no limit counts": (
        (319, 447, 29, 68, 64, 240),
        (279, 447, 194, 186, 190, 180),
    ),  # memfd, shm, ..., mq_open
    # The first process in there is bubblewrap's: unfiltered, and with the caller's output. ptrace, process_vm_*, pidfd_getfd
    "memory and descriptors of other processes": ((101, 310, 311, 438), (117, 270, 271, 438)),
    "namespaces": ((272, 308, 165), (97, 268, 40)),  # unshare, setns, mount
    "keys": ((248, 249, 250), (217, 218, 219)),  # add_key, request_key, keyctl
    "the kernel's machinery": ((425, 321, 323, 298), (425, 280, 282, 241)),  # io_uring, bpf, userfaultfd, perf
}
_LOAD, _IF_EQUAL, _IF_AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06
_KILL, _NOT_PERMITTED, _ALLOW = 0x80000000, 0x00050001, 0x7FFF0000


def seccomp_filter(machine: str) -> bytes:
    """The filter as a seccomp program: refused calls end in PermissionError. KeyError for an unknown machine."""
    audit = _MACHINES[machine]
    refused = [number for numbers in _REFUSED.values() for number in numbers[list(_MACHINES).index(machine)]]
    checks = [(_IF_EQUAL, len(refused) - at, 0, number) for at, number in enumerate(refused)]
    other_abi = (_IF_AT_LEAST, len(refused) + 1, 0, 0x40000000)  # x86's x32 numbers begin there.
    lines = [
        (_LOAD, 0, 0, 4),
        (_IF_EQUAL, 1, 0, audit),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, 0),
        other_abi,
        *checks,
        (_RETURN, 0, 0, _ALLOW),
        (_RETURN, 0, 0, _NOT_PERMITTED),
    ]
    return b"".join(struct.pack("<HBBI", *line) for line in lines)


@contextmanager
def confined(arguments: list[str], readable: Path | None = None) -> Iterator[tuple[list[str], int]]:
    """The command that runs this interpreter with `arguments`, confined, and a descriptor to pass on to it.

    The folder `readable` appears as `/sandbox`. The process sees libraries and Python, read-only, and an empty folder in
    memory, /tmp, which versions of bubblewrap before 0.7 leave read-only. No device: a caller who is root owns those, so
    the process could change their permissions.
    """
    read, write = os.pipe()
    with open(read, "rb") as filtered:
        with open(write, "wb") as file:
            file.write(seccomp_filter(platform.machine()))
        base = [Path(sys.base_prefix, name) for name in ("lib", "lib64")]
        binds = [str(word) for path in (*LIBRARIES, *base) for word in ("--ro-bind-try", path, path)]
        files = ["--ro-bind", python(), python(), *(["--ro-bind", str(readable), "/sandbox"] if readable else [])]
        yield (
            [
                *(_bubblewrap() or "bwrap", "--unshare-all", "--unshare-user", "--uid", "65534", "--gid", "65534"),
                *("--cap-drop", "ALL", "--die-with-parent", "--new-session", *binds, *files),
                *(("--size", str(DISK), "--tmpfs", "/tmp") if _sized() else ("--dir", "/tmp")),
                *("--remount-ro", "/", "--chdir", "/tmp", "--seccomp", str(filtered.fileno()), "--"),
                *(python(), *arguments),
            ],
            filtered.fileno(),
        )


@functools.cache
def missing() -> str:
    """Why processes cannot be confined here; empty if they can. Tried once."""
    if platform.machine() not in _MACHINES:
        return f"{platform.machine()} is neither x86_64 nor aarch64"
    if _bubblewrap() is None:
        return "bubblewrap (bwrap) is not installed"
    try:
        with confined(["-I", "-S", "-c", ""]) as (command, filtered):
            tried = subprocess.run(
                command, pass_fds=(filtered,), capture_output=True, text=True, errors="replace", timeout=60
            )
    except (OSError, subprocess.SubprocessError) as error:
        return f"bubblewrap fails ({error})"
    return "" if tried.returncode == 0 else f"bubblewrap fails ({tried.stderr.strip() or tried.returncode})"


def python() -> str:
    """This interpreter's own executable, outside any virtual environment."""
    return str(Path(sys.executable).resolve())


def _bubblewrap() -> str | None:
    return shutil.which("bwrap")


@functools.cache
def _sized() -> bool:
    """Whether bubblewrap (from 0.7 on) can limit the size of a folder in memory."""
    told = subprocess.run([_bubblewrap() or "bwrap", "--help"], capture_output=True, text=True, errors="replace")
    return "--size" in told.stdout + told.stderr
