"""The command line on a tiny model in a folder: results, files, exit codes and one-line errors."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from lens_heads import cli
from lens_heads.heads import HeadScores
from tests import zoo


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tiny-llama")
    zoo.hf_model("llama-gqa").save_pretrained(path)
    zoo.tokenizer().save_pretrained(path)
    return path


def needles(path: Path, halves: tuple[str, ...] = ("one", "two")) -> Path:
    """Own data in NoLiMa's schema, short enough for byte tokens and a window of 512."""
    (path / "haystack").mkdir(parents=True)
    (path / "haystack" / "book.txt").write_text("It rained. The sea was grey. A bell rang. " * 40)
    for name in halves:
        entry = {
            "id": name,
            "needle": "{CHAR} owns a {1}.",
            "questions": {"onehop": "Who is fond of {2}?", "direct": "Who owns a {1}?"},
            "character_set": ["Megan" if name == "one" else "Yuki"],
            "tests": {"T1": {"input_args": ["boat", "sailing"]}, "T2": {"input_args": ["drum", "rhythm"]}},
            "task_template": "{haystack}\n{question} ",
        }
        (path / f"{name}.json").write_text(json.dumps([entry]))
    return path


def run(*arguments: str, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(sys, "argv", ["lens-heads", *arguments])
    with pytest.raises(SystemExit) as done:
        cli.main()
    return int(done.value.code or 0)


def task(source: Path, needle_set: str) -> list[str]:
    given = [f"source={source}", f"needle_set={needle_set}.json", "lengths=[260]", "depths=[0.5]", "chat=false"]
    return ["--task", "nolima", *[part for pair in given for part in ("--with", pair)]]


def test_score_then_heads_then_ablate(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    source, out = needles(tmp_path / "data"), tmp_path / "run"
    arguments = [
        "score",
        "-m",
        str(folder),
        *task(source, "one"),
        "--teacher-forced",
        "--methods",
        "locos,copy",
        "-o",
        str(out),
    ]
    assert run(*arguments, monkeypatch=monkeypatch) == 0
    assert "locos" in capsys.readouterr().out
    scores = HeadScores.load(out / "locos.json")
    assert (scores.n_layers, scores.n_heads, len(scores.trial_ids)) == (3, 4, 2)
    assert json.loads((out / "run.json").read_text())["settings"]["methods"] == ["locos", "copy"]

    again = tmp_path / "again.json"
    assert run("heads", str(out / "locos.json"), "--save", str(again), "--form", "lists", monkeypatch=monkeypatch) == 0
    assert str(scores.top(1)[0]) in capsys.readouterr().out
    assert torch.equal(HeadScores.load(again, "locos").values, scores.values)

    curve = tmp_path / "curve"
    arguments = [
        "ablate",
        "-m",
        str(folder),
        "-s",
        str(out / "locos.json"),
        *task(source, "two"),
        "--kind",
        "zero",
        "--ks",
        "1,2",
    ]
    assert run(*arguments, "--seeds", "1", "--max-new-tokens", "2", "-o", str(curve), monkeypatch=monkeypatch) == 0
    assert "k = 2" in capsys.readouterr().out
    assert (curve / "per_trial.parquet").exists()


def test_check_says_whether_it_holds(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    assert run("check", str(folder), monkeypatch=monkeypatch) == 0
    assert "contributions close on the logit" in capsys.readouterr().out
    monkeypatch.setattr("lens_heads.checking.CheckReport.passed", property(lambda self: False))
    assert run("check", str(folder), monkeypatch=monkeypatch) == 1


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["check", "/nowhere/at/all"], "no model at /nowhere/at/all"),
        (["score", "-m", "FOLDER", "--task", "pakaged"], "did you mean 'packaged'?"),
        (["score", "-m", "FOLDER", "--with", "split"], "'split' is not name=value"),
        (["score", "-m", "FOLDER", "--with", "half=test"], "has no argument 'half'"),
        (["score", "-m", "FOLDER", "--methods", "locus", "--with", "n=2"], "did you mean 'locos'?"),
        (["score", "-m", "FOLDER", "--dtype", "int8", "--with", "n=2"], "dtype 'int8'"),
        (["heads", "missing.json"], "missing.json"),
        (["demo", "--quick", "--full"], "not both"),
    ],
)
def test_wrong_input_ends_in_one_line_and_exit_code_2(
    arguments: list[str], text: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    given = [str(folder) if part == "FOLDER" else part for part in arguments]
    assert run(*given, monkeypatch=monkeypatch) == 2
    printed = capsys.readouterr().err
    assert text in printed
    assert "Traceback" not in printed


def test_tasks_are_listed_with_their_arguments(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    assert run("tasks", monkeypatch=monkeypatch) == 0
    printed = capsys.readouterr().out
    assert all(name in printed for name in ("packaged", "nolima", "niah", "parametric", "arithmetic", "split='select'"))


def test_help_and_import_do_not_import_torch() -> None:
    code = "import sys, lens_heads, lens_heads.cli; print('torch' in sys.modules, 'transformers' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]


def test_an_interrupt_is_reported_and_not_a_traceback(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("lens_heads.checking.check", stop)
    assert run("check", str(folder), monkeypatch=monkeypatch) == 130
    assert "interrupted" in capsys.readouterr().err.lower()
