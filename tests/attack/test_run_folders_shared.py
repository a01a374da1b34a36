"""Run folders under a full disk, without permission, with strange names and paths, and used by two processes at once."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch

import lens_heads as lh
from lens_heads.ranking.one_pass.definition import Scorer
from lens_heads.runs import engine, files
from lens_heads.runs.shards import Result
from lens_heads.runs.store import RunFolder
from tests.attack.held import refused
from tests.conftest import random_trial, tiny

ITEMS = [f"item {i}" for i in range(6)]
TRIALS = [random_trial(seed, n=14, needle=(3, 6), answer=1) for seed in range(2)]


def work(batch: list[str], size: int = 4) -> list[Result]:
    return [Result({"x": torch.full((size,), float(item.split()[1]))}, {"item": item}) for item in batch]


def run(folder: RunFolder, does: Any = work) -> list[float]:
    results = engine.run(ITEMS, does, lambda item: item, folder=folder, progress=False)
    return [float(result.arrays["x"][0]) for result in results]


# Disks


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 1 MiB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(disk)], capture_output=True)
    if made.returncode:
        pytest.skip("disks can only be mounted by root")
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


def test_a_full_disk_is_named_and_what_is_finished_is_kept(small_disk: Path) -> None:
    def large(batch: list[str]) -> list[Result]:
        return work(batch, size=100_000)

    folder = RunFolder(small_disk / "run", {"n": 1})
    says = f"{small_disk / 'run' / 'trials'}"
    refused(lambda: run(folder, large), says)
    with pytest.raises(
        OSError, match=r"cannot be written \(No space left on device\): free some space. A run folder keeps"
    ):
        run(folder, large)
    assert len(list(folder.shards.glob("*.safetensors"))) == 2
    assert not list(folder.shards.glob("*.partial"))
    subprocess.run(["mount", "-o", "remount,size=20m", str(small_disk)], check=True)
    ran: list[str] = []
    assert run(RunFolder(small_disk / "run", {"n": 1}), lambda batch: ran.extend(batch) or large(batch)) == list(
        range(6)
    )
    assert ran == ITEMS[2:]


def test_a_finished_folder_on_a_read_only_disk_opens(small_disk: Path) -> None:
    def score() -> Any:
        return lh.score_heads(
            tiny("llama-gqa"), TRIALS, "locos", teacher_forced=True, progress=False, out=small_disk / "run"
        )

    before = score()["locos"].per_trial
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    assert torch.equal(score()["locos"].per_trial, before)
    (small_disk / "run").stat()
    refused(lambda: RunFolder(small_disk / "new", {}), "choose a folder that you may write to")


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS, errno.EACCES, errno.EFBIG])
def test_a_write_that_fails_names_the_file_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    folder = RunFolder(tmp_path / "run", {})

    def fail(_: int) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "fsync", fail)
    refused(lambda: run(folder), str(folder.shards))
    monkeypatch.undo()
    assert not list(folder.shards.iterdir())
    assert run(folder) == list(range(6))


def test_where_there_are_no_hard_links_a_run_begins_only_once_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none(*_: Any) -> None:
        raise OSError(errno.EPERM, "no links here")

    monkeypatch.setattr(os, "link", none)
    assert files.create(tmp_path / "run.json", "one")
    assert not files.create(tmp_path / "run.json", "other")
    assert [file.read_text() for file in tmp_path.iterdir()] == ["one"]


def test_leftovers_of_killed_processes_are_removed_and_those_of_living_ones_kept(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run", {})
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    left = [folder.shards / f".{files._MACHINE}-{pid}-ab.partial" for pid in (ended.pid, os.getpid())]
    elsewhere, old = folder.path / ".another-7-ab.partial", folder.path / ".old.partial"
    for file in (*left, elsewhere, old):
        file.write_text("half")
    os.utime(old, (0, 0))
    RunFolder(tmp_path / "run", {})
    assert [file.exists() for file in (*left, elsewhere, old)] == [False, True, True, False]


# Paths and names

PATHS: dict[str, tuple[Any, str]] = {
    "a number": (7, "out=7: must be a path"),
    "a truth value": (True, "out=True: must be a path"),
    "bytes": (b"run", "must be a path"),
    "a list": (["run"], "must be a path"),
    "empty": ("", "out='': is empty"),
    "blanks": ("  ", "is empty"),
    "a null byte": ("a\0b", "a character that no path can have"),
    "half a character": ("a\ud800", "a character that no path can have"),
    "too long": ("x" * 300, "cannot be used as a run folder (File name too long)"),
    "below a file": ("{tmp}/file/run", "cannot be used as a run folder"),
    "a file": ("{tmp}/file", "is a file, but a run needs a folder"),
    "a loop": ("{tmp}/loop", "cannot be"),
    "a device": ("/dev/null", "is a file, but a run needs a folder"),
}


@pytest.mark.parametrize(("out", "says"), PATHS.values(), ids=PATHS)
def test_a_path_that_cannot_be_a_run_folder(tmp_path: Path, out: Any, says: str) -> None:
    (tmp_path / "file").write_text("mine")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    out = out.format(tmp=tmp_path) if isinstance(out, str) else out
    refused(lambda: lh.evaluate(tiny("llama-gqa"), TRIALS, progress=False, out=out), says, tiny("llama-gqa"))
    assert (tmp_path / "file").read_text() == "mine"


REFUSED = [
    "../../x",
    "a/b",
    "/etc/x",
    "..",
    ".",
    "",
    " ",
    "run",
    "RUN",
    "support",
    "a\\b",
    "a\nb",
    "a\0b",
    "\ud800",
    "~",
    "-x",
    "_x",
]
REFUSED += ["__metadata__", "x" * 201, "é" * 101, "x.", "x ", "a:b", "a*", 'a"', "a|b", "<x>", "\x1b[31m", ".hidden"]
ACCEPTED = [
    "my scorer",
    "Mine (v2)",
    "größe",
    "得分",
    "a.b",
    "locos2",
    "a-b_c",
    "9",
    "x" * 200,
    "seconds",
    "trials",
    "x [red]",
]


def scored(out: Path, name: str) -> dict[str, Any]:
    scorer = Scorer(name, lambda view: view.pattern.mean((-1, -2)), "answer")
    return lh.score_heads(tiny("llama-gqa"), TRIALS, scorer, teacher_forced=True, progress=False, out=out)


@pytest.mark.parametrize("name", REFUSED, ids=ascii)
def test_a_name_that_no_file_can_have(tmp_path: Path, name: str) -> None:
    refused(lambda: scored(tmp_path / "in" / "run", name), "name", tiny("llama-gqa"))
    assert {file.name for file in tmp_path.rglob("*") if file.is_file()} <= {"run.json", "support.json"}


@pytest.mark.parametrize("name", ACCEPTED, ids=ascii)
def test_a_name_that_a_file_can_have(tmp_path: Path, name: str) -> None:
    found = scored(tmp_path / "run", name)
    assert torch.equal(lh.HeadScores.load(tmp_path / "run" / f"{name}.json").values, found[name].values)
    assert torch.equal(scored(tmp_path / "run", name)[name].values, found[name].values)


def test_units_of_work_never_share_a_file(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run", {})
    keys = [
        ("a", "b|c"),
        ("a|b", "c"),
        "a|b|c",
        ("a", "b", "c"),
        ("a,b", "c"),
        '["a", "b"]',
        ("a", "b"),
        "",
        ("",),
        ("a",),
        "a",
    ]
    for i, key in enumerate(keys):
        folder.write(key, Result({}, {"n": i}))
    assert [folder.read(key).record["n"] for key in keys] == list(range(len(keys)))  # type: ignore[union-attr]


def test_two_units_of_one_key_are_refused(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run", {})
    twice = lambda: engine.run(["a", "b", "a"], work, lambda item: item, folder=folder, progress=False)  # noqa: E731
    refused(twice, "two units of this run are called 'a'")


SETTINGS: list[tuple[Any, Any]] = [
    (1, True),
    (0, False),
    (1, 1.0),
    (None, "None"),
    ({}, None),
    ([], {}),
    ("1", 1),
    ([1], [1, 2]),
]
SETTINGS += [({"a.b": 1}, {"a": {"b": 1}}), ("a", "A"), ("é", "e\u0301"), (float("nan"), None)]


@pytest.mark.parametrize(("before", "now"), SETTINGS, ids=ascii)
def test_settings_that_only_look_alike_are_different(tmp_path: Path, before: Any, now: Any) -> None:
    RunFolder(tmp_path / "run", {"x": before})
    RunFolder(tmp_path / "run", {"x": before})
    refused(lambda: RunFolder(tmp_path / "run", {"x": now}), "in the folder")


# Two processes, and signals

RUN = """
import sys, time, torch
from lens_heads.runs import engine
from lens_heads.runs.shards import Result
from lens_heads.runs.store import RunFolder

which, out, at, pause = sys.argv[1], sys.argv[2], float(sys.argv[3]), float(sys.argv[4])

def work(batch):
    time.sleep(pause)
    return [Result({"x": torch.full((3,), float(which))}, {"which": which}) for _ in batch]

time.sleep(max(0.0, at - time.time()))
try:
    folder = RunFolder(out, {"which": which})
    found = engine.run([str(i) for i in range(8)], work, lambda item: item, folder=folder, progress=False)
except ValueError as error:
    print(error)
    sys.exit(3)
assert all(float(one.arrays["x"][0]) == float(which) and one.record == {"which": which} for one in found)
"""


def start(out: Path, which: int, at: float = 0.0, pause: float = 0.0) -> subprocess.Popen[str]:
    given = [sys.executable, "-c", RUN, str(which), str(out), str(at), str(pause)]
    return subprocess.Popen(given, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.parametrize("round", range(20))
def test_two_threads_on_one_new_folder(tmp_path: Path, round: int) -> None:
    together = threading.Barrier(2)

    def begin(which: int) -> str:
        together.wait()
        try:
            return str(RunFolder(tmp_path / "run", {"which": which}).settings["which"])
        except ValueError as error:
            return str(error)

    with ThreadPoolExecutor(2) as pool:
        one, other = sorted(pool.map(begin, (1, 2)), key=len)
    assert one in ("1", "2")
    assert "holds a run with different settings" in other
    assert RunFolder(tmp_path / "run", {"which": int(one)}).path.is_dir()


@pytest.mark.slow
@pytest.mark.parametrize("settings", [(1, 1), (1, 2)], ids=["the same settings", "other settings"])
def test_two_processes_on_one_new_folder(tmp_path: Path, settings: tuple[int, int]) -> None:
    """Both begin at the same moment: with other settings exactly one of them has the folder."""
    at, started = time.time() + 8, []
    for i in range(3):
        started += [(i, which, start(tmp_path / str(i), which, at)) for which in settings]
    ended = [(i, which, process.communicate(timeout=120), process.returncode) for i, which, process in started]
    for i in range(3):
        codes = {which: code for at, which, _, code in ended if at == i}
        said = "".join(out + errors for at, _, (out, errors), _ in ended if at == i)
        assert sorted(codes.values()) == ([0] if len(set(settings)) == 1 else [0, 3]), said
        winner = next(which for which, code in codes.items() if code == 0)
        assert json.loads((tmp_path / str(i) / "run.json").read_text())["settings"] == {"which": str(winner)}
        assert len(list((tmp_path / str(i) / "trials").iterdir())) == 8
        assert ("holds a run with different settings" in said) == (len(codes) > 1)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_a_run_and_says_how_to_continue(tmp_path: Path, number: signal.Signals) -> None:
    process = start(tmp_path / "run", 1, pause=0.3)
    while process.poll() is None and not list(tmp_path.glob("run/trials/*.safetensors")):
        time.sleep(0.01)
    process.send_signal(number)
    _, errors = process.communicate(timeout=60)
    assert process.returncode not in (0, 3)
    assert f"Finished work is kept in {tmp_path / 'run'}: the same call continues the run." in errors
    kept = {file.name: file.stat().st_mtime_ns for file in tmp_path.glob("run/trials/*")}
    assert 1 <= len(kept) < 8
    assert all(name.endswith(".safetensors") for name in kept)
    again = start(tmp_path / "run", 1)
    assert again.wait(timeout=60) == 0, again.communicate()
    assert kept.items() <= {file.name: file.stat().st_mtime_ns for file in tmp_path.glob("run/trials/*")}.items()


def test_signals_are_as_before_after_a_run(tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGTERM)
    run(RunFolder(tmp_path / "run", {}))
    assert signal.getsignal(signal.SIGTERM) == before
    mine = lambda number, frame: None  # noqa: E731
    signal.signal(signal.SIGTERM, mine)
    try:
        inside: list[Any] = []
        run(
            RunFolder(tmp_path / "other", {}),
            lambda batch: inside.append(signal.getsignal(signal.SIGTERM)) or work(batch),
        )
        assert set(inside) == {mine}
    finally:
        signal.signal(signal.SIGTERM, before)
