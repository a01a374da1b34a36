"""Damaged files of mean activations, and damaged notes of a study: the same content, or an error of ours."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console
from safetensors.torch import save_file

from lens_heads.interventions.activations import MeanActivations
from lens_heads.studies.runner import StageRun
from tests.attack.held import refused

MEANS = MeanActivations(torch.randn(2, 4, 8).flip(1), torch.randn(2, 8, 4).transpose(1, 2), ("a", "b"), {"model": "m"})
META = {"trial_ids": '["a"]', "meta": "{}"}
ZERO = torch.zeros(2, 4, 8)


def saved(tensors: dict[str, torch.Tensor], meta: dict[str, str] | None) -> Callable[[Path], Any]:
    return lambda file: save_file(tensors, file, metadata=meta)


BOTH = {"z": ZERO, "q": ZERO.clone()}
DAMAGES: dict[str, tuple[Callable[[Path], Any], str]] = {
    "empty": (lambda file: file.write_bytes(b""), "not saved mean activations"),
    "half": (lambda file: file.write_bytes(file.read_bytes()[:200]), "not saved mean activations"),
    "noise": (lambda file: file.write_bytes(bytes(range(256))), "not saved mean activations"),
    "text": (lambda file: file.write_text("mine"), "not saved mean activations"),
    "missing": (lambda file: file.unlink(), "does not exist"),
    "a folder": (lambda file: (file.unlink(), file.mkdir()), "is a folder"),
    "a dangling link": (lambda file: (file.unlink(), file.symlink_to("nowhere")), "a link that leads to no file"),
    "no q": (saved({"z": ZERO}, META), "not saved mean activations"),
    "no metadata": (saved(BOTH, None), "not saved mean activations"),
    "no trials": (saved(BOTH, {"meta": "{}"}), "not saved mean activations"),
    "trials that are a number": (saved(BOTH, {**META, "trial_ids": "7"}), "not saved mean activations"),
    "meta that is a list": (saved(BOTH, {**META, "meta": "[1]"}), "not saved mean activations"),
    "whole numbers": (saved({"z": ZERO.int(), "q": ZERO.int().clone()}, META), "must be [layer, head, d_head]"),
    "two dimensions": (saved({"z": ZERO[0], "q": ZERO[0].clone()}, META), "must be [layer, head, d_head]"),
    "other shapes": (saved({"z": ZERO, "q": ZERO[:1].clone()}, META), "must be [layer, head, d_head]"),
}


@pytest.mark.parametrize(("damage", "says"), DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_file_of_mean_activations(tmp_path: Path, damage: Callable[[Path], Any], says: str) -> None:
    file = MEANS.save(tmp_path / "means.safetensors")
    back = MeanActivations.load(file)
    assert torch.equal(back.z, MEANS.z)
    assert torch.equal(back.q, MEANS.q)
    assert (back.trial_ids, back.meta) == (MEANS.trial_ids, MEANS.meta)
    damage(file)
    refused(lambda: MeanActivations.load(file), says)


@pytest.mark.parametrize("path", ["", "a\0b", 7, None], ids=ascii)
def test_a_path_that_no_file_can_have(path: Any) -> None:
    refused(lambda: MEANS.save(path), "path=")
    refused(lambda: MeanActivations.load(path), "path=")


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    refused(lambda: MEANS.save(tmp_path), f"{tmp_path} cannot be written")


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"a": "b"}', '{"a": null}', '{"a": NaN}'])
def test_a_study_continues_without_damaged_times(tmp_path: Path, text: str) -> None:
    StageRun.begin(tmp_path / "run", {"preset": "quick"}, Console(quiet=True)).stage("one", lambda: None)
    assert set(StageRun.begin(tmp_path / "run", {"preset": "quick"}, Console(quiet=True)).seconds) == {"one"}
    (tmp_path / "run" / "seconds.json").write_text(text)
    assert StageRun.begin(tmp_path / "run", {"preset": "quick"}, Console(quiet=True)).seconds == {}
