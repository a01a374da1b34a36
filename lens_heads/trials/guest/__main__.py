"""The two processes of `lens_heads.trials.sandbox`: one runs a generated program, the other its tests.

Started as a folder with `-I -S`, a process has the standard library and nothing of this package. Messages are JSON with
their length in front. What the program's process sends is read as plain values, never trusted.
"""

from __future__ import annotations

import ast
import builtins
import io
import json
import os
import resource
import struct
import sys
import types
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import plain

LARGEST = 10_000_000
"""Bytes of a message, and of a file."""


def limit(seconds: int, megabytes: int) -> None:
    """Limit memory, CPU time, open files, file size, core dumps and processes, as far as the system supports it."""
    limits = {
        "RLIMIT_AS": megabytes * 1024 * 1024,
        "RLIMIT_CPU": seconds,
        "RLIMIT_FSIZE": LARGEST,
        "RLIMIT_NOFILE": 64,
        "RLIMIT_CORE": 0,
        "RLIMIT_NPROC": 0,
    }
    for name, value in limits.items():
        if hasattr(resource, name):
            # With equal limits a busy program would be killed without the signal that says why.
            hard = value + 1 if name == "RLIMIT_CPU" else value
            resource.setrlimit(getattr(resource, name), (value, hard))


class Nowhere(io.RawIOBase):
    """Takes whatever is written."""

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        return len(memoryview(data).cast("B"))


def silence() -> None:
    """Give up the caller's output, a device that could be changed through its descriptors."""
    for fd, name in ((1, "stdout"), (2, "stderr")):
        os.dup2(0, fd)
        stream = io.TextIOWrapper(io.BufferedWriter(Nowhere()), "utf-8", "backslashreplace")
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


class Channel:
    """Messages to and from the other process. `ended` once that process is gone."""

    def __init__(self, incoming: int, outgoing: int) -> None:
        self.incoming, self.outgoing = os.fdopen(incoming, "rb"), os.fdopen(outgoing, "wb")
        self.ended = False

    def send(self, *message: Any) -> None:
        """Raises ValueError for a message that is too large, EOFError when nobody reads it."""
        data = plain.dumps(list(message))
        if len(data) > LARGEST:
            raise ValueError(f"{len(data)} bytes are too many to pass on")
        try:
            self.outgoing.write(struct.pack("<I", len(data)) + data)
            self.outgoing.flush()
        except BrokenPipeError:
            raise self._end() from None

    def receive(self) -> bytes:
        """The next message. Raises ValueError for one that is too large, EOFError when there is none."""
        head = self.incoming.read(4)
        size = struct.unpack("<I", head)[0] if len(head) == 4 else 0
        if size > LARGEST:
            raise ValueError(f"{size} bytes are too many to pass on")
        data = self.incoming.read(size)
        if not data or len(data) < size:
            raise self._end()
        return data

    def _end(self) -> EOFError:
        self.ended = True
        return EOFError("the program ended")


def module(source: str) -> dict[str, Any]:
    """The names that this code defines. Its module is not "__main__": code guarded by that is not a test."""
    made = sys.modules[plain.PROGRAM] = types.ModuleType(plain.PROGRAM)
    exec(compile(source, "program.py", "exec"), made.__dict__)
    return made.__dict__


def raised(error: BaseException) -> tuple[str, list[str], str]:
    """The message that stands for an exception: the names of its classes, and its text."""
    return "raised", [kind.__name__ for kind in type(error).__mro__], str(error)[:1000]


def serve(given: dict[str, str], channel: Channel) -> None:
    """Run the generated program, then answer calls of its functions until the tests are done."""
    channel.send("started")
    try:
        program = module(given["program"])
    except BaseException as error:  # SystemExit too: leaving early is not a pass.
        channel.send(*raised(error))
        return
    channel.send("ready")
    with suppress(EOFError):
        while True:
            request = channel.receive()
            try:
                answer = called(program, request)
            except BaseException as error:
                answer = raised(error)
            channel.send(*answer)


def called(program: dict[str, Any], request: bytes) -> tuple[str, str, str | None]:
    """The message with the value of a call, and with the arguments if the call changed them, both in JSON."""
    name, args, kwargs = plain.loads(request, program)
    if name not in program:
        raise NameError(f"name {name!r} is not defined")
    value = plain.dumps(program[name](*args, **kwargs)).decode()
    with suppress(TypeError, RecursionError):
        left = plain.dumps(args).decode()
        if left != plain.dumps(plain.loads(request, program)[1]).decode():
            return "returned", value, left
    return "returned", value, None


class Calls:
    """The program's functions, as the tests see them."""

    def __init__(self, channel: Channel, known: dict[str, Any]) -> None:
        self.channel, self.known, self.made, self.fault = channel, known, 0, ""

    def of(self, name: str) -> Callable[..., Any]:
        """A function that calls the program's function of this name."""

        def call(*args: Any, **kwargs: Any) -> Any:
            self.made += 1
            try:
                self.channel.send(name, list(args), kwargs)
            except plain.NotPlainError as error:
                self.fault = f"the tests call {name} with a value that cannot be passed on: {error}"
                raise
            value, left = self.reply()
            for old, new in zip(args, plain.loads(left, self.known) if left else (), strict=False):
                assign(old, new)
            return plain.loads(value, self.known)

        return call

    def reply(self) -> list[Any]:
        """What the program's process says next. Raises the exception that it reports."""
        kind, *values = plain.loads(self.channel.receive(), self.known)
        if kind == "raised":
            raise self._error(*values)
        return values

    def _error(self, names: list[str], text: str) -> BaseException:
        """The exception by the first of its classes that is known here; one that leaves Python leaves the tests."""
        for name in names:
            kind = self.known.get(name, getattr(builtins, name, None))
            if isinstance(kind, type) and issubclass(kind, Exception):
                with suppress(TypeError):  # UnicodeDecodeError and the like take more than a text.
                    return kind(text if kind.__name__ == names[0] else f"{names[0]}: {text}")
        return (RuntimeError if "Exception" in names else SystemExit)(f"{names[0]}: {text}")


def assign(old: Any, new: Any) -> None:
    """Give an argument of the tests the content that the program left in it."""
    if type(old) is not type(new):
        return
    if isinstance(old, list | bytearray):
        old[:] = new
    elif isinstance(old, dict | set | deque):
        old.clear()
        old.extend(new) if isinstance(old, deque) else old.update(new)
    elif hasattr(old, "__dict__"):
        vars(old).update(vars(new))


def test(given: dict[str, str], channel: Channel) -> tuple[str, str]:
    """Run the tests with the functions that the answer defines replaced by calls.

    Returns "passed", "failed" and why, "ended" for a program that is gone, "unstarted" for one that never was there, or
    "reference" and why no program could pass.
    """
    try:
        known = module(given["reference"])
        names = answered(given["preamble"], given["reference"], known)
    except BaseException as error:
        return "reference", _named(error)
    if not names:
        return "reference", "it defines no function after the preamble"
    calls, why = Calls(channel, known), ""
    try:
        calls.reply()
    except EOFError:
        return "unstarted", ""
    try:
        calls.reply()
        # The reference's own classes and helpers keep calling its own functions.
        exec(compile(given["tests"], "tests.py", "exec"), {**known, **{name: calls.of(name) for name in names}})
    except BaseException as error:
        why = _named(error)
    if channel.ended:  # Also where the tests expect an exception, and took this for it.
        return "ended", ""
    if calls.fault:
        return "reference", calls.fault
    if not why and not calls.made:
        return "reference", "the tests call none of the functions that it defines after the preamble"
    return ("failed", why) if why else ("passed", "")


def _named(error: BaseException) -> str:
    try:
        return f"{type(error).__name__}: {error}"[:1000]
    except BaseException:  # The class is the reference's own; the program chose what it was made of.
        return type(error).__name__


def answered(preamble: str, reference: str, known: dict[str, Any]) -> list[str]:
    """The functions that the reference defines or completes after the preamble; classes belong to the tests."""
    before = preamble.count("\n") + bool(preamble.rpartition("\n")[2])
    names: list[str] = []
    for node in ast.parse(reference).body:
        if (node.end_lineno or 0) > before:
            if isinstance(node, ast.FunctionDef):
                names.append(node.name)
            elif isinstance(node, ast.Assign):
                names += [target.id for target in node.targets if isinstance(target, ast.Name)]
    return [name for name in names if callable(known[name]) and not isinstance(known[name], type)]


def main() -> None:
    role, seconds, megabytes, incoming, outgoing, *verdict = sys.argv[1:]
    sys.argv[:] = ["program.py"]
    os.environ.pop("LC_CTYPE", None)  # Python puts it there itself.
    given = json.load(sys.stdin)
    silence()
    limit(int(seconds), int(megabytes))
    channel = Channel(int(incoming), int(outgoing))
    if role == "program":
        serve(given, channel)
    else:
        os.write(int(verdict[0]), json.dumps(test(given, channel)).encode())
    os._exit(0)


if __name__ == "__main__":
    main()
