"""Commands that share their work: shards of a run, workers, and a driver that is stopped in the middle."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from lens_heads.runs import parts
from tests.commands import model_folder, needles, run

START = "from lens_heads.cli.main import main; main()"
DEPTHS = [round(0.05 * i, 2) for i in range(21)]


@pytest.fixture(scope="module")
def command(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Scores some dozens of trials."""
    source = needles(tmp_path_factory.mktemp("needles") / "data")
    given = [f"source={source}", "needle_set=one.json", "lengths=[260]", f"depths={DEPTHS}", "chat=false"]
    task = ["--task", "nolima", *[part for pair in given for part in ("--with", pair)]]
    return ["score", "-m", str(model_folder(tmp_path_factory.mktemp("tiny"))), *task, "--teacher-forced"]


def started(command: list[str], out: Path, *options: str) -> subprocess.Popen[str]:
    """The command in a process of its own, with one thread, as each of two workers has."""
    words = [sys.executable, "-c", START, *command, "-o", str(out), *options]
    alone = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(words, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, env=alone)


def finished(command: list[str], out: Path) -> dict[str, bytes]:
    """What one process stores: this one."""
    with pytest.MonkeyPatch.context() as patch:
        assert run(*command, "-o", str(out), monkeypatch=patch) == 0
    return stored(out)


@pytest.fixture(scope="module")
def whole(command: list[str], tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    return finished(command, tmp_path_factory.mktemp("whole") / "run")


def stored(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.glob("trials/*.safetensors")}


@pytest.mark.slow
def test_shards_then_the_same_command(
    command: list[str],
    whole: dict[str, bytes],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(parts, "PATIENCE", 0.0)
    given = [*command, "-o", str(tmp_path / "run")]
    assert run(*given, "--shard", "0/2", monkeypatch=monkeypatch) == 0
    assert "part 0/2 is done; " in capsys.readouterr().err
    half = stored(tmp_path / "run")
    assert len(half) == (len(whole) + 1) // 2
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert run(*given, "--shard", "auto", monkeypatch=monkeypatch) == 0
    both = stored(tmp_path / "run")
    assert half.items() <= both.items()
    assert run(*given, monkeypatch=monkeypatch) == 0
    assert stored(tmp_path / "run") == both
    assert both.keys() == whole.keys()


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT], ids=["killed", "Ctrl-C"])
@pytest.mark.timeout(300)
def test_a_driver_that_is_stopped_is_continued_by_one_process(
    how: signal.Signals, command: list[str], whole: dict[str, bytes], tmp_path: Path
) -> None:
    pytest.importorskip("ray")
    out = tmp_path / "run"
    driver = started(command, out, "--workers", "2")
    while len(stored(out)) < 3 and driver.poll() is None:
        time.sleep(0.01)
    driver.send_signal(how)
    said = driver.communicate()[1]
    if how == signal.SIGINT:
        assert "repeat the same command to continue" in said
        assert driver.returncode == 130
    kept = stored(out)
    assert 3 <= len(kept) < len(whole), said
    assert finished(command, out) == whole
    assert {name: whole[name] for name in kept} == kept
