"""The study runner, on a study of one line: folders, pairs, JSON, presets, and models that fail."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from lens_heads import report, studies
from lens_heads.model.geometry import head_geometry
from lens_heads.model.hooks import has_hooks
from lens_heads.studies import runner
from lens_heads.studies.finding import Finding, records
from lens_heads.studies.fragile_paper.claims import PRESETS as FRAGILE
from lens_heads.studies.presets import named_preset, resized
from lens_heads.studies.runner import StageRun, Study, conduct
from tests.conftest import random_trial, tiny


@dataclass(frozen=True)
class Plan:
    note: Any = None


class Noted(Finding):
    def notes(self) -> dict[str, Any]:
        return {"note": self.settings["preset"]["note"]}


class OneLine(Study[Plan, Noted]):
    """Every model has one claim, whose value is its number of layers; every two have none that is measured."""

    name = "one_line"

    def registered(self) -> pd.DataFrame:
        row = {"id": "layers", "claim": "It has layers", "estimand": "their number", "metric": "layers", "threshold": 0}
        return pd.DataFrame([row | {"k": "none", "n": "one model", "holds_if": "above 0"}])

    def costs(self, shape: Any) -> dict[str, int]:
        return {"counting": 3, "nothing": 0}

    def probe(self) -> list[Any]:
        return [random_trial(seed) for seed in range(2)]

    def one(self, model: Any, run: StageRun) -> Noted:
        layers = run.stage("counting", lambda: model.cfg.n_layers)
        return self._found(head_geometry(model).name, run, layers)

    def pair_settings(self, a: Noted, b: Noted) -> dict[str, Any]:
        return {"models": [a.model, b.model], "preset": a.settings["preset"]}

    def two(self, models: tuple[Any, Any], a: Noted, b: Noted, run: StageRun) -> Noted:
        assert [head_geometry(model).name for model in models] == [a.model, b.model]
        return self._found(f"{a.name} and {b.name}", run, None)

    def _found(self, name: str, run: StageRun, value: float | None) -> Noted:
        claim = {"claim": f"{name} has layers", "paper": "32", "found": "", "value": value, "low": value, "high": value}
        claims = pd.DataFrame([claim | {"verdict": "holds", "holds_if": "above 0"}])
        return Noted(model=name, settings=run.settings, frames={"claims": claims}, seconds=run.seconds)

    def page(self, findings: Sequence[Noted], pairs: Sequence[Noted]) -> report.Page:
        listed = ", ".join(each.model for each in [*findings, *pairs])
        return report.Page("One line", report.Summary(listed, 1, [], f"Studied: {listed}."), [])


def run(models: Any, out: Path, note: Any = None, **loading: Any) -> tuple[list[Noted], list[Noted]]:
    return conduct(OneLine(Plan(note), "own"), models, out, {"command": "the command", **loading})


def summary(out: Path) -> dict[str, Any]:
    text = (out / "study_one_line.json").read_text()
    return json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))


THREE = ("qwen3", "gemma3", "olmo3")


@pytest.mark.slow
def test_every_model_and_every_two_have_a_folder_and_a_place_in_the_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    findings, pairs = run([tiny(name) for name in THREE], tmp_path)
    assert [each.model for each in findings] == list(THREE)
    names = ["qwen3--gemma3", "qwen3--olmo3", "gemma3--olmo3"]
    assert {folder.name for folder in tmp_path.iterdir() if folder.is_dir()} == {*THREE, *names}
    for folder in (*THREE, *names):
        assert (tmp_path / folder / "tables" / "claims.parquet").exists()
    written = summary(tmp_path)
    assert list(written["models"]) == list(THREE)
    assert [pair["claims"][0]["claim"] for pair in written["pairs"]] == [
        f"{name.replace('--', ' and ')} has layers" for name in names
    ]
    assert [pair["claims"][0]["value"] for pair in written["pairs"]] == [None] * 3
    shown = capsys.readouterr().out
    assert all(f"{each.model}: claims" in shown for each in [*findings, *pairs])
    assert "gemma3 and olmo3" in (tmp_path / "report.html").read_text()


def test_a_model_that_fails_takes_nothing_away_from_those_before_it(tmp_path: Path) -> None:
    """Neither their findings nor what they show beside each other."""
    (tmp_path / "damaged.gguf").write_bytes(b"GGUF")
    with pytest.raises((ValueError, OSError), match="damaged"):
        run([tiny("qwen3"), tiny("gemma3"), tmp_path / "damaged.gguf"], tmp_path / "run")
    written = summary(tmp_path / "run")
    assert list(written["models"]) == ["qwen3", "gemma3"]
    assert len(written["pairs"]) == 1


def test_a_model_that_is_not_there_shows_before_the_first_one_runs(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no-such-model"):
        run([tiny("qwen3"), tmp_path / "no-such-model.gguf"], tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_numbers_of_numpy_are_numbers_in_the_json_and_nan_is_null(tmp_path: Path) -> None:
    note = {"count": np.int64(5), "share": np.float32(0.5), "sure": np.bool_(True), "p": float("nan")}
    note |= {"bound": float("-inf"), "list": (np.float64("nan"), 1), "array": np.array([1, 2]), "by_k": {3: Path("a")}}
    run(tiny("qwen3"), tmp_path, note)
    assert summary(tmp_path)["models"]["qwen3"]["note"] == {
        "count": 5,
        "share": 0.5,
        "sure": True,
        "p": None,
        "bound": None,
        "list": [None, 1],
        "array": [1, 2],
        "by_k": {"3": "a"},
    }


def test_rows_for_json_have_four_digits_and_no_infinity() -> None:
    frame = pd.DataFrame({"value": [1 / 3, float("inf")], "small": np.array([np.pi, np.nan], np.float32), "n": [7, 8]})
    assert records(frame) == [
        {"value": 0.3333, "small": 3.142, "n": 7},
        {"value": None, "small": None, "n": 8},
    ]


def test_a_finished_study_is_read_again_and_the_clock_goes_on(tmp_path: Path) -> None:
    (first,), _ = run(tiny("qwen3"), tmp_path)
    spent = first.seconds["counting"]
    (again,), _ = run(tiny("qwen3"), tmp_path)
    assert again.seconds["counting"] > spent
    pd.testing.assert_frame_equal(again.claims, first.claims)
    with pytest.raises(ValueError, match=r"preset\.note: None in the folder, other now"):
        run(tiny("qwen3"), tmp_path, "other")


def test_the_path_of_the_page_is_printed_as_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(tiny("qwen3"), tmp_path / "[bold]" / "[" / "run]")
    assert "[bold]/[/run]/report.html" in capsys.readouterr().out.replace("\n", "")


def test_options_of_loading_are_refused_where_nothing_is_loaded(tmp_path: Path) -> None:
    """Else a misspelt option would be ignored."""
    with pytest.raises(TypeError, match="prset"):
        run(tiny("qwen3"), tmp_path, prset="quick")
    assert not list(tmp_path.iterdir())


def test_presets_by_name_or_of_the_same_study() -> None:
    presets = {"small": Plan(1), "large": Plan(2)}
    assert named_preset("large", presets) == (Plan(2), "large")
    assert named_preset(Plan(3), presets) == (Plan(3), "own")
    for wrong in ("huge", FRAGILE["quick"], None, {"note": 1}):
        with pytest.raises(ValueError, match=r"preset=.*: use small, large, or a Preset"):
            named_preset(wrong, presets)
    with pytest.raises(ValueError, match=r"preset=Preset.*: use demo-quick"):
        studies.locos("any", FRAGILE["quick"])  # type: ignore[arg-type]


def test_models_may_come_from_a_generator(tmp_path: Path) -> None:
    assert [each.model for each in run((tiny(name) for name in THREE[:1]), tmp_path)[0]] == ["qwen3"]
    missing = (tmp_path / name for name in ["no-such-model.gguf"])
    with pytest.raises(FileNotFoundError):
        studies.locos(missing, out=tmp_path / "run", tuned_lens=tmp_path / "lens.safetensors")


def test_only_one_other_model_is_loaded_for_a_pair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded: list[str] = []
    monkeypatch.setattr(runner, "load_model", lambda name: loaded.append(str(name)) or tiny(str(name)))
    run(THREE, tmp_path)
    assert loaded == ["qwen3", "gemma3", "qwen3", "olmo3", "qwen3", "gemma3"]


def test_a_model_from_a_file_is_named_with_the_sum_of_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "one.gguf"
    file.write_bytes(b"abc")
    monkeypatch.setattr(runner, "load_model", lambda given: tiny("qwen3"))
    run([file], tmp_path / "file")
    run(["qwen3"], tmp_path / "name")
    (stored,), (named,) = (summary(tmp_path / each)["models"].values() for each in ("file", "name"))
    assert stored["file_sha256"] == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"  # FIPS 180-2
    assert named["file_sha256"] is None


def test_claims_are_printed_before_anything_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run([tiny("qwen3")], tmp_path)
    printed = capsys.readouterr().out
    assert printed.index("registered before the run") < printed.index("counting: ")
    assert "their number" in printed


def test_a_plan_counts_passes_and_runs_no_stage(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = runner.planned(OneLine(Plan(), "own"), [tiny("qwen3"), tiny("gemma3")], {})
    assert found["passes"].tolist() == [3, 0, 3, 0]
    assert (found["minutes"] >= 0).all()
    assert found.loc[found["passes"] == 0, "minutes"].sum() == 0
    assert found["minutes"].iloc[0] > 0
    assert not has_hooks(tiny("qwen3"))
    printed = capsys.readouterr().out
    assert "what it would cost" in printed
    assert "counting: " not in printed


@dataclass(frozen=True)
class Negative:
    control: str | None = None
    precision: float = 0.25
    max_trials: int | None = None


def test_a_negative_control_of_the_model_is_untrained() -> None:
    model = tiny("qwen3")
    assert runner.controlled(model, Negative()) is model
    untrained = runner.controlled(model, Negative("random_initialised"))
    assert head_geometry(untrained).name == "qwen3 random-initialised seed 0"


def test_a_preset_takes_another_precision() -> None:
    assert resized(Negative(), None, None) == Negative()
    assert resized(Negative(), 0.1, 50) == Negative(None, 0.1, 50)


@pytest.mark.parametrize("precision", [0.0, -1.0, float("nan"), float("inf")])
def test_a_precision_that_is_no_half_width_is_named(precision: float) -> None:
    with pytest.raises(ValueError, match=r"precision=.*use a half-width in nats above 0"):
        resized(FRAGILE["quick"], precision, None)
