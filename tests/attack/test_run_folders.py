"""Damaged run folders: the same scores as before, or an error of ours that names the folder."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

import lens_heads as lh
from tests.attack.held import refused
from tests.conftest import random_trial, tiny

pytestmark = pytest.mark.filterwarnings("ignore")

TRIALS = [random_trial(seed, n=14, needle=(3, 6), answer=1) for seed in range(3)]
SHARDS = 3

Damage = Callable[[Path], Any]


def score(out: Path, **options: Any) -> dict[str, Any]:
    given: dict[str, Any] = {"teacher_forced": True, "progress": False, **options}
    return lh.score_heads(tiny("llama-gqa"), TRIALS, ["locos", "dla"], out=out, **given)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("finished") / "run"
    score(folder)
    score(folder.parent / "other", direction="exact")
    return folder


@pytest.fixture
def folder(finished: Path, tmp_path: Path) -> Path:
    shutil.copytree(finished.parent / "other", tmp_path / "other")
    return Path(shutil.copytree(finished, tmp_path / "run"))


@pytest.fixture(scope="module")
def whole(finished: Path) -> dict[str, Any]:
    return score(finished)


def assert_same(found: dict[str, Any], whole: dict[str, Any]) -> None:
    assert found.keys() == whole.keys()
    for name, scores in whole.items():
        assert torch.equal(found[name].per_trial, scores.per_trial)
        assert found[name].trial_ids == scores.trial_ids
        assert found[name].meta["trials"] == scores.meta["trials"]


def shards(folder: Path) -> list[Path]:
    return sorted((folder / "trials").glob("*.safetensors"))


def flip(at: float) -> Damage:
    """Flips every bit of one byte; `at` from 0 to 1, or a position."""

    def damage(file: Path) -> None:
        data = bytearray(file.read_bytes())
        place = int(at * (len(data) - 1)) if isinstance(at, float) else at
        data[place] ^= 0xFF if place % 2 else 0x01
        file.write_bytes(data)

    return damage


def keep(part: float) -> Damage:
    return lambda file: file.write_bytes(file.read_bytes()[: int(part * file.stat().st_size)])


def write(content: bytes) -> Damage:
    return lambda file: file.write_bytes(content)


def instead(make: Callable[[Path], Any]) -> Damage:
    """Something else in place of the file."""

    def damage(file: Path) -> None:
        file.unlink()
        make(file)

    return damage


def resaved(change: Callable[[dict[str, Any], dict[str, str]], Any]) -> Damage:
    """A valid safetensors file again, after a change of its arrays or metadata."""

    def damage(file: Path) -> None:
        with safe_open(file, framework="pt") as shard:
            arrays, meta = {name: shard.get_tensor(name) for name in shard.keys()}, dict(shard.metadata())  # noqa: SIM118
        change(arrays, meta)
        save_file(arrays, file, metadata=meta or None)

    return damage


def swap(file: Path) -> None:
    one, other = (
        file.read_bytes(),
        (rest := next(each for each in shards(file.parents[1]) if each != file)).read_bytes(),
    )
    file.write_bytes(other)
    rest.write_bytes(one)


def from_another_unit(file: Path) -> None:
    file.write_bytes(next(each for each in shards(file.parents[1]) if each != file).read_bytes())


def from_another_run(file: Path) -> None:
    file.write_bytes((file.parents[2] / "other" / "trials" / file.name).read_bytes())


def nan(arrays: dict[str, Any], meta: dict[str, str]) -> None:
    arrays["locos"][0, 0] = float("nan")


FLIPS = [0, 1, 3, 7, 8, 9, 20, 40, 60, 90, 120, 0.3, 0.4, 0.5, 0.55, 0.6, 0.65, 0.7, 0.8, 0.9, 0.95, 1.0]

OF_SHARDS: dict[str, Damage] = {
    **{f"byte {at} flipped": flip(at) for at in FLIPS},
    **{f"cut to {part}": keep(part) for part in (0.0, 0.01, 0.1, 0.5, 0.9, 0.99)},
    "bytes appended": lambda file: file.write_bytes(file.read_bytes() + b"more"),
    "zeros": lambda file: file.write_bytes(bytes(file.stat().st_size)),
    "noise": write(bytes(range(256)) * 4),
    "a huge header": write(b"\xff" * 8 + b"{}"),
    "an empty header": write((2).to_bytes(8, "little") + b"{}"),
    "a deep header": write((200_000).to_bytes(8, "little") + b"[" * 200_000),
    "a pickle": write(b"\x80\x04\x95\x0b\x00\x00\x00\x00\x00\x00\x00\x8c\x07builtin\x94."),
    "missing": lambda file: file.unlink(),
    "a dangling link": instead(lambda file: file.symlink_to(file.parent / "nowhere")),
    "a loop of links": instead(lambda file: file.symlink_to(file)),
    "a pipe": instead(lambda file: os.mkfifo(file)),
    "exchanged with another": swap,
    "a copy of another": from_another_unit,
    "from a run with other settings": from_another_run,
    "an array dropped": resaved(lambda arrays, meta: arrays.pop("locos")),
    "an array added": resaved(lambda arrays, meta: arrays.update(more=torch.zeros(1))),
    "an array renamed": resaved(lambda arrays, meta: arrays.update(copy=arrays.pop("dla"))),
    "arrays exchanged": resaved(lambda arrays, meta: arrays.update(locos=arrays["dla"], dla=arrays["locos"].clone())),
    "an array turned": resaved(lambda arrays, meta: arrays.update(locos=arrays["locos"].T.contiguous())),
    "an array in another dtype": resaved(lambda arrays, meta: arrays.update(locos=arrays["locos"].double())),
    "one number not finite": resaved(nan),
    "another record": resaved(lambda arrays, meta: meta.update(record='{"outcome": "gate_failed", "text": ""}')),
    "no record": resaved(lambda arrays, meta: meta.pop("record")),
    "a record that is no object": resaved(lambda arrays, meta: meta.update(record="null")),
    "a deep record": resaved(lambda arrays, meta: meta.update(record="[" * 100_000)),
    "another key": resaved(lambda arrays, meta: meta.update(key='"other"')),
    "no key": resaved(lambda arrays, meta: meta.pop("key")),
    "other settings": resaved(lambda arrays, meta: meta.update(settings="0" * 16)),
    "no checksum": resaved(lambda arrays, meta: meta.pop("checksum")),
    "another checksum": resaved(lambda arrays, meta: meta.update(checksum="0" * 16)),
    "no metadata": resaved(lambda arrays, meta: meta.clear()),
}


@pytest.mark.parametrize("which", range(SHARDS))
@pytest.mark.parametrize("damage", OF_SHARDS.values(), ids=OF_SHARDS)
def test_a_damaged_shard_is_computed_anew(folder: Path, whole: dict[str, Any], damage: Damage, which: int) -> None:
    file = shards(folder)[which]
    damage(file)
    assert_same(score(folder), whole)
    assert len(shards(folder)) == SHARDS
    assert_same(score(folder), whole)


def test_damage_is_said_once_with_its_reason(folder: Path) -> None:
    swap(shards(folder)[0])
    with pytest.warns(
        UserWarning, match="damaged results are computed anew: 2 of 3, the first .* another unit of work"
    ):
        score(folder)


def edited(**changes: Any) -> Damage:
    return lambda file: file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))


def settings_changed(file: Path) -> None:
    text = json.loads(file.read_text())
    text["settings"]["direction"] = "exact"
    file.write_text(json.dumps(text))


CANNOT, DAMAGED, EITHER = "run.json cannot be read", "run.json is damaged", ""

OF_RUN_JSON: dict[str, tuple[Damage, str | None]] = {
    **{f"byte {at} flipped": (flip(at), EITHER) for at in [0, 1, 2, 5, 14, 15, *(i / 20 for i in range(1, 20))]},
    **{f"cut to {part}": (keep(part), CANNOT) for part in (0.0, 0.01, 0.3, 0.7, 0.95)},
    "null": (write(b"null"), CANNOT),
    "a list": (write(b"[]"), CANNOT),
    "a number": (write(b"7"), CANNOT),
    "a text": (write(b'"settings"'), CANNOT),
    "no settings": (write(b"{}"), CANNOT),
    "binary": (write(bytes(range(256))), CANNOT),
    "deep": (write(b'{"settings": ' + b"[" * 100_000), CANNOT),
    "in UTF-16": (lambda file: file.write_bytes(file.read_text().encode("utf-16")), None),
    "settings are null": (edited(settings=None), DAMAGED),
    "settings are a list": (edited(settings=[]), DAMAGED),
    "settings are empty": (edited(settings={}), DAMAGED),
    "settings changed by hand": (settings_changed, DAMAGED),
    "no hash": (edited(hash=None), DAMAGED),
    "versions are null": (edited(versions=None), CANNOT),
    "versions are a list": (edited(versions=["torch"]), CANNOT),
    "versions are a number": (edited(versions=1), CANNOT),
    "versions are odd": (edited(versions={"torch": [1], "x": None}), None),
    "versions are missing": (edited(versions={}), None),
    "a folder": (instead(lambda file: file.mkdir()), "run.json cannot be read"),
    "a dangling link": (instead(lambda file: file.symlink_to(file.parent / "nowhere")), "contains no run.json"),
    "missing": (lambda file: file.unlink(), "contains no run.json"),
    "of another run": (
        lambda file: file.write_bytes((file.parents[1] / "other" / "run.json").read_bytes()),
        "direction: exact in the folder, raw now",
    ),
}
"""What is done to `run.json`, and the error (None: the same result; EITHER: one or the other)."""


@pytest.mark.parametrize(("damage", "says"), OF_RUN_JSON.values(), ids=OF_RUN_JSON)
def test_a_damaged_run_json(folder: Path, whole: dict[str, Any], damage: Damage, says: str | None) -> None:
    before = {file.name: file.read_bytes() for file in shards(folder)}
    damage(folder / "run.json")
    try:
        found = score(folder)
    except (ValueError, OSError):
        assert says is not None
        refused(lambda: score(folder), says or str(folder), tiny("llama-gqa"))
        assert before == {file.name: file.read_bytes() for file in shards(folder)}, "what was finished is still there"
    else:
        assert says in (None, EITHER)
        assert_same(found, whole)


def as_file(folder: Path) -> None:
    shutil.rmtree(folder)
    folder.write_text("a file")


def as_link(folder: Path) -> None:
    shutil.rmtree(folder)
    folder.symlink_to(folder.parent / "nowhere")


def only_folder(file: Path) -> None:
    file.unlink()
    file.mkdir()


OF_FOLDERS: dict[str, tuple[Damage, str | None]] = {
    "trials is a file": (lambda run: as_file(run / "trials"), "cannot be used as a run folder"),
    "trials is a dangling link": (lambda run: as_link(run / "trials"), "cannot be used as a run folder"),
    "trials is gone": (lambda run: shutil.rmtree(run / "trials"), None),
    "a shard is a folder": (lambda run: only_folder(shards(run)[1]), "cannot be written"),
    "a score file is a folder": (lambda run: only_folder(run / "locos.json"), "locos.json cannot be written"),
    "a score file is noise": (lambda run: (run / "locos.json").write_bytes(bytes(range(256))), None),
    "a score file is gone": (lambda run: (run / "dla.json").unlink(), None),
    "other files in the folder": (lambda run: (run / "notes.txt").write_text("mine"), None),
    "other files in trials": (lambda run: (run / "trials" / "x.safetensors").write_text("mine"), None),
    "partial files": (lambda run: (run / "trials" / ".9.partial").write_text("half"), None),
}


@pytest.mark.parametrize(("damage", "says"), OF_FOLDERS.values(), ids=OF_FOLDERS)
def test_a_damaged_folder(folder: Path, whole: dict[str, Any], damage: Damage, says: str | None) -> None:
    damage(folder)
    if says is None:
        assert_same(score(folder), whole)
    else:
        refused(lambda: score(folder), says, tiny("llama-gqa"))
