"""The process in which `lens_heads.trials.sandbox` runs a program: it confines itself, then runs `program.py` in its folder.

Started by its path with `-I -S`, it has the standard library, but nothing from this package or the environment.
"""

from __future__ import annotations

import os
import resource
import sys
import types
from collections.abc import Callable
from typing import Any

FILE_BYTES = 10_000_000

_NEW_USER, _NEW_NETWORK = 0x10000000, 0x40000000  # CLONE_NEWUSER and CLONE_NEWNET of <sched.h>

_DENIED = (
    *("socket.", "subprocess.", "ctypes.", "fcntl.", "gc.get_", "pty.", "resource.", "signal.pthread_kill", "sqlite3."),
    *(f"os.{name}" for name in ("exec", "fork", "kill", "link", "posix_spawn", "spawn", "symlink", "system")),
)
_CHANGES = {
    f"os.{name}" for name in ("chmod", "chown", "mkdir", "remove", "rename", "rmdir", "setxattr", "truncate", "utime")
}
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


def own_network() -> bool:
    """Move into an empty network namespace; False if the kernel does not allow that."""
    try:
        import ctypes

        unshare = ctypes.CDLL(None).unshare
    except (ImportError, OSError, AttributeError):
        return False
    return any(unshare(flags) == 0 for flags in (_NEW_USER | _NEW_NETWORK, _NEW_NETWORK))


def limit(seconds: int, megabytes: int) -> None:
    """Limit memory, CPU time, file size, core dumps and further processes, as far as the system supports it."""
    limits = {
        "RLIMIT_AS": megabytes * 1024 * 1024,
        "RLIMIT_CPU": seconds,
        "RLIMIT_FSIZE": FILE_BYTES,
        "RLIMIT_CORE": 0,
        "RLIMIT_NPROC": 0,  # Per user, so already exceeded: no process or thread can be added (except by root).
    }
    for name, value in limits.items():
        if hasattr(resource, name):
            # With equal limits a busy program would be killed without the signal that says why.
            hard = value + 1 if name == "RLIMIT_CPU" else value
            resource.setrlimit(getattr(resource, name), (value, hard))


def wall(root: str) -> Callable[[str, tuple[Any, ...]], None]:
    """An audit hook: PermissionError for network, processes, signals, C libraries, and file changes outside `root`."""
    realpath, inside, nowhere = os.path.realpath, root + os.sep, os.devnull

    def hook(event: str, args: tuple[Any, ...]) -> None:
        if event.startswith(_DENIED):
            raise PermissionError(f"{event} is not allowed in the sandbox")
        if event == "open" and (args[2] or 0) & _WRITING:
            paths = args[:1]
        elif event in _CHANGES:
            paths = args
        else:
            return
        for path in paths:
            if isinstance(path, str | bytes) and path != nowhere and not realpath(os.fsdecode(path)).startswith(inside):
                raise PermissionError(f"{event} of {path!r} is not allowed in the sandbox: it is outside its folder")

    return hook


def main() -> None:
    """Run the program; if it completes, read the secret and return it as proof, otherwise report the exception."""
    key, result, seconds, megabytes = map(int, sys.argv[1:])
    sys.argv[:] = ["program.py"]
    os.environ.pop("LC_CTYPE", None)  # Python puts it there itself.
    with open("program.py", encoding="utf-8") as file:
        source = file.read()
    read, write, leave, root = os.read, os.write, os._exit, os.path.realpath(os.getcwd())
    write(result, b"+" if own_network() else b"-")
    limit(seconds, megabytes)
    program = sys.modules["program"] = types.ModuleType("program")  # Not "__main__": code guarded by it is not a test.
    sys.addaudithook(wall(root))
    try:
        exec(compile(source, "program.py", "exec"), program.__dict__)
    except BaseException as error:  # SystemExit too: exiting early is not a pass.
        write(result, f"{type(error).__name__}: {error}"[:1000].encode(errors="replace"))
        leave(1)
    write(result, read(key, 4096))
    leave(0)


if __name__ == "__main__":
    main()
