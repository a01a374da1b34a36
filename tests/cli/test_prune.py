"""`lens-heads prune`: a checkpoint, its size and speed, and one line for wrong input."""

from __future__ import annotations

from pathlib import Path

import pytest

import lens_heads as lh
from lens_heads.model.geometry import head_geometry
from tests.commands import model_folder, run, score_file


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return model_folder(tmp_path_factory.mktemp("tiny-llama"))


@pytest.mark.slow
def test_prune_writes_a_checkpoint(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    to = tmp_path / "pruned"
    heads = "L0H0,L0H1,L1H2,L1H3,L2H0,L2H1"
    assert run("prune", "-m", str(folder), str(to), "--heads", heads, "--remove", monkeypatch=monkeypatch) == 0
    said = capsys.readouterr().out
    assert "Heads pruned: 6;" in said
    assert "prefill" in said
    assert head_geometry(lh.load_model(to)).n_kv_heads == 1


@pytest.mark.slow
def test_the_lowest_heads_of_a_score_file(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    scores = score_file(tmp_path / "scores.json")
    given = ("prune", "-m", str(folder), "--scores", str(scores), "-k", "2")
    assert run(*given, str(tmp_path / "zeroed"), monkeypatch=monkeypatch) == 0
    assert "Heads pruned: 2;" in capsys.readouterr().out
    model = lh.load_model(tmp_path / "zeroed")
    for head in lh.HeadScores.load(scores).bottom(2):
        assert model.blocks[head.layer].attn.W_O.reshape(4, -1)[head.head].abs().max() == 0
    assert run(*given[:-1], "1", str(tmp_path / "removed"), "--remove", monkeypatch=monkeypatch) == 0
    assert "Heads pruned: 6;" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--heads", "L0H0", "--scores", "x.json"], "pass either --heads"),
        ([], "pass either --heads"),
        (["--heads", "L0H0", "--remove"], "L0H1 still need it"),
        (["--heads", "L9H0"], "head L9H0 does not exist"),
    ],
)
def test_wrong_input_is_one_line(
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    message: str,
) -> None:
    assert run("prune", "-m", str(folder), str(tmp_path / "pruned"), *words, monkeypatch=monkeypatch) == 2
    said = capsys.readouterr().err
    assert message in said
    assert "Traceback" not in said
    assert said.strip().splitlines()[-1].startswith("error: ")
    assert not (tmp_path / "pruned").exists()
