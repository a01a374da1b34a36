"""Run folders: what is finished stays, what is half-written does not count, other settings are refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lens_heads.runs.digests import digest
from lens_heads.runs.files import write_atomic
from lens_heads.runs.shards import Result
from lens_heads.runs.store import RunFolder

SETTINGS: dict[str, Any] = {"model": "m", "max_new_tokens": 50, "methods": ["a", "b"], "nested": {"x": 1, "y": None}}


def result(value: float = 1.0) -> Result:
    return Result(
        {"scores": torch.full((2, 3), value), "other": torch.arange(3)}, {"outcome": "passed", "text": "é\n🙂"}
    )


def shards(folder: RunFolder) -> list[Path]:
    return sorted(folder.shards.glob("*.safetensors"))


def test_other_versions_of_the_packages_are_named(tmp_path: Path) -> None:
    about = RunFolder(tmp_path / "run", SETTINGS).path / "run.json"
    stored = json.loads(about.read_text())
    RunFolder(about.parent, SETTINGS)  # The same versions are not worth a word.
    stored["versions"]["transformer-lens"] = "0.0.1"
    about.write_text(json.dumps(stored))
    with pytest.warns(UserWarning, match=r"was started with transformer-lens 0\.0\.1: .*another folder"):
        RunFolder(about.parent, SETTINGS)


def same(a: Result | None, b: Result) -> bool:
    return (
        a is not None
        and a.record == b.record
        and a.arrays.keys() == b.arrays.keys()
        and all(torch.equal(a.arrays[name], b.arrays[name]) for name in b.arrays)
    )


@pytest.mark.slow
@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(keys=st.lists(st.text(), min_size=1, max_size=4, unique=True), record=st.dictionaries(st.text(), st.text()))
def test_any_key_and_record_come_back(tmp_path_factory: Any, keys: list[str], record: dict[str, str]) -> None:
    folder = RunFolder(tmp_path_factory.mktemp("run") / "r", SETTINGS)
    written = [Result({"x": torch.tensor([float(i)])}, {**record, "n": i}) for i in range(len(keys))]
    for key, one in zip(keys, written, strict=True):
        assert folder.read(key) is None
        folder.write(key, one)
    for key, one in zip(keys, written, strict=True):
        assert same(folder.read(key), one)


def test_work_is_found_when_the_folder_is_opened_again(tmp_path: Path) -> None:
    RunFolder(tmp_path / "run", SETTINGS).write("a", result(2.5))
    again = RunFolder(tmp_path / "run", dict(reversed(SETTINGS.items())))  # The order of settings is no setting.
    assert same(again.read("a"), result(2.5))
    assert again.read("b") is None


def test_a_result_without_arrays_and_one_that_is_no_contiguous_array_come_back(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run", SETTINGS)
    folder.write("none", Result({}, {"outcome": "gate_failed"}))
    assert same(folder.read("none"), Result({}, {"outcome": "gate_failed"}))
    turned = torch.arange(6.0).reshape(2, 3).T
    folder.write("turned", Result({"x": turned}, {}))
    assert same(folder.read("turned"), Result({"x": turned}, {}))


def test_other_settings_are_refused_with_each_difference(tmp_path: Path) -> None:
    RunFolder(tmp_path / "run", SETTINGS)
    changed = {"model": "m", "max_new_tokens": 20, "methods": ["a"], "nested": {"x": 1, "z": 3}}
    with pytest.raises(ValueError, match="holds a run with different settings") as error:
        RunFolder(tmp_path / "run", changed)
    lines = str(error.value).splitlines()
    assert "  max_new_tokens: 50 in the folder, 20 now" in lines
    assert "  methods: ['a', 'b'] in the folder, ['a'] now" in lines
    assert "  nested.y: None in the folder, (absent) now" in lines
    assert "  nested.z: (absent) in the folder, 3 now" in lines
    assert not any(line.startswith(("  model", "  nested.x")) for line in lines)
    assert lines[-1] == "use the same settings to continue it, or choose another folder"


def test_an_emptied_setting_is_a_difference(tmp_path: Path) -> None:
    RunFolder(tmp_path / "run", SETTINGS)
    with pytest.raises(ValueError, match=r"nested\.x: 1 in the folder"):
        RunFolder(tmp_path / "run", {**SETTINGS, "nested": {}})


def test_a_folder_of_something_else_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(ValueError, match=r"is not empty and contains no run\.json"):
        RunFolder(tmp_path, SETTINGS)
    assert [f.name for f in tmp_path.iterdir()] == ["notes.txt"]


@pytest.mark.parametrize("left", [[], [".run.json.12.partial"], [".run.json.12.partial", "trials/ab.12.partial"]])
def test_a_run_killed_at_its_start_can_be_started_again(tmp_path: Path, left: list[str]) -> None:
    (tmp_path / "run" / "trials").mkdir(parents=True)
    for name in left:
        (tmp_path / "run" / name).write_text('{"sett')
    folder = RunFolder(tmp_path / "run", SETTINGS)
    folder.write("a", result())
    assert same(RunFolder(tmp_path / "run", SETTINGS).read("a"), result())


def test_finished_work_without_its_settings_is_not_a_fresh_folder(tmp_path: Path) -> None:
    RunFolder(tmp_path / "run", SETTINGS).write("a", result())
    (tmp_path / "run" / "run.json").unlink()
    with pytest.raises(ValueError, match=r"is not empty and contains no run\.json"):
        RunFolder(tmp_path / "run", SETTINGS)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "trials").write_text("a file of that name")
    with pytest.raises(ValueError, match=r"is not empty and contains no run\.json"):
        RunFolder(tmp_path / "other", SETTINGS)


def test_a_file_is_no_run_folder(tmp_path: Path) -> None:
    (tmp_path / "run.txt").write_text("mine")
    with pytest.raises(ValueError, match=r"out='.*run\.txt' is a file, but a run needs a folder"):
        RunFolder(tmp_path / "run.txt", SETTINGS)
    assert (tmp_path / "run.txt").read_text() == "mine"


@pytest.mark.parametrize("text", ["", '{"settings": {', "[]", '{"hash": 1}'])
def test_a_broken_run_json_is_refused_by_name(tmp_path: Path, text: str) -> None:
    RunFolder(tmp_path / "run", SETTINGS)
    (tmp_path / "run" / "run.json").write_text(text)
    with pytest.raises(ValueError, match=r"run\.json cannot be read"):
        RunFolder(tmp_path / "run", SETTINGS)


def test_run_json_says_what_was_run(tmp_path: Path) -> None:
    RunFolder(tmp_path / "run", SETTINGS)
    about = json.loads((tmp_path / "run" / "run.json").read_text())
    assert about["settings"] == SETTINGS
    assert about["hash"] == digest(SETTINGS)
    assert about["versions"]["torch"] == torch.__version__


@pytest.mark.parametrize("keep", [0, 1, 7, 8, 20, -1])
def test_a_truncated_shard_counts_as_unfinished_and_can_be_written_again(tmp_path: Path, keep: int) -> None:
    folder = RunFolder(tmp_path / "run", SETTINGS)
    folder.write("a", result())
    (shard,) = shards(folder)
    whole = shard.read_bytes()
    shard.write_bytes(whole[:keep])
    assert folder.read("a") is None
    folder.write("a", result())
    assert same(folder.read("a"), result())


def test_a_shard_without_its_record_counts_as_unfinished(tmp_path: Path) -> None:
    from safetensors.torch import save_file

    folder = RunFolder(tmp_path / "run", SETTINGS)
    folder.write("a", result())
    (shard,) = shards(folder)
    save_file({"scores": torch.zeros(1)}, shard)
    assert folder.read("a") is None


def test_a_leftover_partial_file_is_no_result(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run", SETTINGS)
    folder.write("a", result())
    (shard,) = shards(folder)
    shard.rename(shard.with_suffix(".123.partial"))
    again = RunFolder(tmp_path / "run", SETTINGS)
    assert again.read("a") is None
    again.write("a", result(3.0))
    assert same(again.read("a"), result(3.0))


def test_a_write_that_fails_leaves_the_old_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = RunFolder(tmp_path / "run", SETTINGS)
    folder.write("a", result(1.0))

    def power_cut(*_: Any) -> None:
        raise OSError("power cut")

    monkeypatch.setattr("os.replace", power_cut)
    with pytest.raises(OSError, match="power cut"):
        folder.write("a", result(2.0))
    with pytest.raises(OSError, match="power cut"):
        write_atomic(folder.path / "run.json", "{}")
    monkeypatch.undo()
    assert same(RunFolder(tmp_path / "run", SETTINGS).read("a"), result(1.0))


def test_the_digest_follows_content_not_order() -> None:
    assert digest({"a": 1, "b": [1, 2]}) == digest({"b": [1, 2], "a": 1})
    assert len({digest(v) for v in ({"a": 1}, {"a": 2}, {"b": 1}, [1, 2], [2, 1], "1", 1, None)}) == 8


WEIGHTS: dict[str, Any] = {"model": "/models/a", "weights": "0123abcd", "dtype": "torch.float32", "x": 1}


@pytest.mark.parametrize("nested", [False, True])
def test_a_model_under_another_name_continues_its_run(nested: bool, tmp_path: Path) -> None:
    def of(**changes: Any) -> dict[str, Any]:
        return {"target": {**WEIGHTS, **changes}, "y": 2} if nested else {**WEIGHTS, **changes}

    RunFolder(tmp_path / "run", of()).write("a", result(2.5))
    about = (tmp_path / "run" / "run.json").read_bytes()
    for name in ("/models/b", "hub/b"):
        renamed = RunFolder(tmp_path / "run", of(model=name))
        assert same(renamed.read("a"), result(2.5))
        renamed.write(name, result(3.5))
        assert not renamed.damaged
    back = RunFolder(tmp_path / "run", of())
    assert same(back.read("/models/b"), result(3.5))
    assert (tmp_path / "run" / "run.json").read_bytes() == about
    for other in ({"weights": "other"}, {"dtype": "torch.bfloat16"}, {"x": 2}):
        with pytest.raises(ValueError, match="different settings") as error:
            RunFolder(tmp_path / "run", of(model="/models/b", **other))
        assert ("model: " in str(error.value)) == ("weights" in other), "a name counts only where the weights differ"


def test_a_name_counts_where_nothing_is_known_of_the_weights(tmp_path: Path) -> None:
    RunFolder(tmp_path / "run", {**WEIGHTS, "weights": ""})
    with pytest.raises(ValueError, match="model: /models/a in the folder, b now"):
        RunFolder(tmp_path / "run", {**WEIGHTS, "weights": "", "model": "b"})
