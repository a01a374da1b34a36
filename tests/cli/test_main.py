"""The command line on a tiny model in a folder: results, files, exit codes and one-line errors."""

from __future__ import annotations

import json
import subprocess
import sys
import warnings
from importlib import import_module
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch

from lens_heads.cli import ablate as cli_ablate
from lens_heads.cli import explore as cli_explore
from lens_heads.cli.loading import Loading
from lens_heads.heads.scores import HeadScores
from tests.commands import model_folder, needles, run, score_file
from tests.sandboxed import needs_confinement


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return model_folder(tmp_path_factory.mktemp("tiny-llama"))


def task(source: Path, needle_set: str) -> list[str]:
    given = [f"source={source}", f"needle_set={needle_set}.json", "lengths=[260]", "depths=[0.5]", "chat=false"]
    return ["--task", "nolima", *[part for pair in given for part in ("--with", pair)]]


@pytest.mark.slow
def test_rank_by_several_methods(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    source, out = needles(tmp_path / "data"), tmp_path / "run"
    command = ["rank", "-m", str(folder), *task(source, "one"), "--methods", "locos,random_numbers,patching_answer"]
    assert run(*command, "--calibrate", "1", "-o", str(out), monkeypatch=monkeypatch) == 0
    said = capsys.readouterr().out
    assert "patching_answer" in said
    assert "3 of 3 methods on 1 trials" in said
    for name in ("locos", "random_numbers", "patching_answer"):
        assert HeadScores.load(out / f"{name}.json").method == name
    assert run("methods", monkeypatch=monkeypatch) == 0
    assert "best_in_turn" in capsys.readouterr().out


@pytest.mark.slow
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
    assert set(json.loads((out / "run.json").read_text())["settings"]["methods"]) == {"locos", "copy"}

    assert run("explore", str(out), "--to", str(tmp_path / "page.html"), monkeypatch=monkeypatch) == 0
    assert "data-explorer" in (tmp_path / "page.html").read_text()
    assert "page.html" in capsys.readouterr().out

    again = tmp_path / "again.json"
    assert run("heads", str(out / "locos.json"), "--save", str(again), "--form", "lists", monkeypatch=monkeypatch) == 0
    assert str(scores.top(1)[0]) in capsys.readouterr().out
    assert torch.equal(HeadScores.load(again, method="locos").values, scores.values)

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
    assert run(*arguments, "--draws", "1", "--max-new-tokens", "2", "-o", str(curve), monkeypatch=monkeypatch) == 0
    assert "k = 2" in capsys.readouterr().out
    assert (curve / "per_trial.parquet").exists()

    monkeypatch.setenv("COLUMNS", "200")
    judged = [*arguments, "--verdict", "3", "--precision", "0.5", "--no-text"]
    assert run(*judged, "--specificity", "arithmetic", monkeypatch=monkeypatch) == 0
    shown = capsys.readouterr().out
    assert "k = 3" in shown
    assert "without the needle" in shown
    assert "locos's top 3 heads break nolima" in shown
    assert "arithmetic is spared by locos's top 3 heads" in shown


@pytest.mark.slow
def test_attention_to_every_needle_is_multiplied(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    scores = score_file(tmp_path / "scores.json")
    given = ["ablate", "-m", str(folder), "-s", str(scores), *task(needles(tmp_path / "data"), "one"), "--no-text"]
    given += ["--kind", "emphasise", "--option", "span=needle", "--option", "factor=50", "--ks", "4", "--draws", "1"]
    assert run(*given, "-o", str(tmp_path / "run"), monkeypatch=monkeypatch) == 0
    assert "k = 4" in capsys.readouterr().out
    rows = pd.read_parquet(tmp_path / "run" / "per_trial.parquet").set_index(["trial", "set"])["logprob"]
    for trial in rows.index.get_level_values("trial").unique():
        assert rows[trial, "top"] != rows[trial, "none"]


@pytest.mark.slow
@pytest.mark.parametrize(("flag", "begins"), [("--prepend-bos", "<bos>"), ("--no-prepend-bos", "no BOS")])
def test_prompts_begin_as_the_command_says(
    flag: str, begins: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "run"
    arguments = ["score", "-m", str(folder), *task(needles(tmp_path / "data"), "one"), "--teacher-forced", flag]
    assert run(*arguments, "--methods", "locos", "-o", str(out), monkeypatch=monkeypatch) == 0
    assert json.loads((out / "run.json").read_text())["settings"]["begins"] == begins


@pytest.mark.slow
def test_scores_are_held_against_other_spans(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "run"
    arguments = ["score", "-m", str(folder), *task(needles(tmp_path / "data"), "one"), "--teacher-forced"]
    assert run(*arguments, "--methods", "locos", "--null-spans", "19", "-o", str(out), monkeypatch=monkeypatch) == 0
    assert HeadScores.load(out / "locos.json").p_values().min() >= 0.05


@pytest.mark.slow
def test_check_says_whether_it_holds(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    assert run("check", str(folder), monkeypatch=monkeypatch) == 0
    assert "contributions close on the logit" in capsys.readouterr().out
    monkeypatch.setattr(import_module("lens_heads.model.check").CheckReport, "passed", property(lambda self: False))
    assert run("check", str(folder), monkeypatch=monkeypatch) == 1


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["check", "/nowhere/at/all"], "no model at /nowhere/at/all"),
        (["score", "-m", "FOLDER", "--task", "pakaged"], "did you mean 'packaged'?"),
        (["score", "-m", "FOLDER", "--with", "split"], "'split' is not of the form name=value"),
        (["score", "-m", "FOLDER", "--with", "half=test"], "has no argument 'half'"),
        (["score", "-m", "FOLDER", "--methods", "locus", "--with", "n=2"], "did you mean 'locos'?"),
        (["score", "-m", "FOLDER", "--dtype", "int8", "--with", "n=2"], "--dtype 'int8'"),
        (["heads", "missing.json"], "missing.json"),
        (["explore", "/nowhere"], "/nowhere is no folder"),
        (["explore", "FOLDER"], "holds no explorer: the commands score (with --out)"),
        (["why", "-m", "FOLDER", "--prompt", ""], "'' is empty. Give a value"),
        (
            ["why", "-m", "FOLDER", "--prompt", "a b", "--answer", "c", "--needle", "d"],
            "'d' occurs 0 times in the prompt",
        ),
        (["why", "-m", "FOLDER", "--prompt", "a b", "--answer", "c", "-k", "99"], "-k 99"),
        (["heads", "FOLDER"], "is a folder: pass a score file in it"),
        (["heads", "SCORES", "--save", "/dev/null/scores.json"], "/dev/null"),
        (["ablate", "-m", "FOLDER", "-s", "SCORES", "--ks", "1,,2"], "--ks '1,,2': '' is not a positive integer"),
        (["ablate", "-m", "FOLDER", "-s", "SCORES", "--ks", "x"], "--ks 'x': 'x' is not a positive integer"),
        (
            ["ablate", "-m", "FOLDER", "-s", "SCORES", "--ks", "1,0"],
            "'0' is not a positive integer. Use a list such as 1,5,10",
        ),
        (["ablate", "-m", "FOLDER", "-s", "SCORES", "--ks", "1,-2"], "'-2' is not a positive integer"),
        (
            ["ablate", "-m", "nowhere", "-s", "SCORES", "-t", "none", "--kind", "maen"],
            "--kind 'maen' does not exist. Use zero",
        ),
        (
            ["ablate", "-m", "nowhere", "-s", "SCORES", "-t", "none", "--kind", "resample"],
            "--kind 'resample' needs activations of a trial, or vectors, which only Python can pass. Use zero, mean",
        ),
        (["demo", "--quick", "--full"], "--quick conflicts with --full"),
        (
            ["ablate", "-m", "nowhere", "-s", "SCORES", "-t", "mbpp"],
            "task 'mbpp' runs generated code to judge answers. Pass --allow-code-execution, or measure",
        ),
        (
            ["ablate", "-m", "nowhere", "-s", "SCORES", "--specificity", "humaneval"],
            "task 'humaneval' runs generated code to judge answers",
        ),
        (
            ["ablate", "-m", "nowhere", "-s", "SCORES", "--allow-code-execution", "--specificity", "arithmetic"],
            "--allow-code-execution: no task of packaged, arithmetic runs generated code. Omit the flag",
        ),
        (
            ["ablate", "-m", "nowhere", "-s", "SCORES", "-t", "mbpp", "--no-text", "-w", "allow_code_execution=true"],
            "--with allow_code_execution=... is not accepted. Use the flag --allow-code-execution",
        ),
        (["score", "-m", "nowhere", "-t", "mbpp", "-w", "allow_code_execution=true"], "Use the flag --allow-code-ex"),
    ],
)
def test_wrong_input_ends_in_one_line_and_exit_code_2(
    arguments: list[str], text: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made = {"FOLDER": folder, "SCORES": score_file(folder / "scores.json") if "SCORES" in arguments else ""}
    given = [str(made.get(part, part)) for part in arguments]
    assert run(*given, monkeypatch=monkeypatch) == 2
    printed = capsys.readouterr().err
    assert text in printed
    assert "Traceback" not in printed


@pytest.mark.parametrize("debug", ["", "1"])
def test_a_warning_is_one_line(debug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LENS_HEADS_DEBUG", debug)
    run("--help", monkeypatch=monkeypatch)
    shown = warnings.formatwarning("few masks", UserWarning, "file.py", 7, "the_line()")
    assert shown == ("file.py:7: UserWarning: few masks\n  the_line()\n" if debug else "warning: few masks\n")


@pytest.mark.parametrize("error", [ImportError("no module named 'accelerate'"), OSError("no space left on device")])
def test_a_missing_package_or_a_full_disk_ends_in_one_line_too(
    error: Exception, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(Loading, "load", fail)
    assert run("check", "anything", monkeypatch=monkeypatch) == 2
    assert capsys.readouterr().err == f"error: {error}\n"


@pytest.mark.parametrize("top", ["0", "5", "1000"])
def test_any_number_of_heads_can_be_asked_for(
    top: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("heads", str(score_file(tmp_path / "s.json")), "--top", top, monkeypatch=monkeypatch) == 0
    assert "L2H3" in capsys.readouterr().out


def test_work_that_is_done_is_shown_whatever_top_says_and_nothing_saved_is_said(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    given = [*task(needles(tmp_path / "data"), "one"), "--teacher-forced", "--methods", "locos"]
    for top in ("0", "1000"):
        assert run("score", "-m", str(folder), *given, "--top", top, monkeypatch=monkeypatch) == 0
        printed = capsys.readouterr().out
        assert "results were not saved (pass --out FOLDER to save them)" in printed
        assert "run folder" not in printed


def test_score_files_of_one_method_keep_their_own_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = [score_file(tmp_path / run / f"{name}.json", name) for run in ("a", "b") for name in ("locos", "copy")]
    names = ["locos", "copy", "b/locos", "b/copy", "b/locos #2", "b/locos #3"]
    found = cli_ablate._rankings([*files, files[2], files[2]])
    assert list(found) == names
    assert [scores.method for scores in found.values()] == ["locos", "copy", "locos", "copy", "locos", "locos"]
    monkeypatch.chdir(tmp_path / "b")
    assert list(cli_ablate._rankings([files[0], Path("locos.json")])) == ["locos", "b/locos"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("given", "splits"),
    [
        ([], ("test", "select")),
        (["--task", "ioi"], ("test", "select")),
        (["--with", "n=3", "--calibrate-with", "n=3"], ("test", "select")),
        (["--with", "split=select", "--calibrate-with", "split=test"], ("select", "test")),
    ],
)
def test_arguments_of_a_task_add_to_its_split(
    given: list[str], splits: tuple[str, str], folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[set[str]] = []

    def stop(loaded: object, trials: list[Any], *_: object, **__: object) -> None:
        listed = next(iter(trials.values())) if isinstance(trials, dict) else trials
        seen.append({trial.id.removeprefix("ioi-").partition("-")[0] for trial in listed})

    def stop_here(*arguments: Any, **options: Any) -> None:
        stop(*arguments, **options)
        raise ValueError("far enough")

    monkeypatch.setattr("lens_heads.interventions.activations.mean_activations", stop)
    monkeypatch.setattr("lens_heads.evidence.curve.ablation_curve", stop_here)
    scores = score_file(tmp_path / "s.json")
    assert run("ablate", "-m", str(folder), "-s", str(scores), *given, monkeypatch=monkeypatch) == 2
    assert seen == [{splits[1]}, {splits[0]}]


@pytest.mark.parametrize(
    ("flags", "allowed"),
    [
        pytest.param(["ALLOW"], True, marks=needs_confinement),
        (["ALLOW=unsafe"], "unsafe"),
        (["--no-text"], False),
        (["--no-text", "ALLOW"], True),
    ],
)
def test_the_permission_to_run_code_reaches_the_tasks_that_take_it(
    flags: list[str], allowed: bool, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = {"task_id": 1, "text": "Add.", "code": "def f(): pass", "test_list": ["f()"], "test_setup_code": ""}
    (tmp_path / "mbpp.jsonl").write_text(json.dumps(row))
    seen: list[Any] = []

    def stop_here(loaded: object, trials: list[Any], *_: object, **options: Any) -> None:
        seen.extend([*trials["mbpp"], *options["specificity"]["arithmetic"]])
        raise ValueError("far enough")

    monkeypatch.setattr("lens_heads.evidence.curve.ablation_curve", stop_here)
    given = [flag.replace("ALLOW", "--allow-code-execution") for flag in flags]
    source = ["-t", "mbpp", "-w", f"path={tmp_path / 'mbpp.jsonl'}", "--kind", "zero", "--specificity", "arithmetic"]
    scores = str(score_file(tmp_path / "s.json"))
    assert run("ablate", "-m", str(folder), "-s", scores, *source, *given, monkeypatch=monkeypatch) == 2
    assert [getattr(trial.judge, "allowed", False) for trial in seen] == [allowed] + [False] * (len(seen) - 1)
    assert len(seen) > 1


def test_tasks_are_listed_with_their_arguments(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    assert run("tasks", monkeypatch=monkeypatch) == 0
    printed = capsys.readouterr().out
    assert all(name in printed for name in ("packaged", "nolima", "niah", "parametric", "arithmetic", "split='select'"))
    assert "allow_code_execution" not in printed, "it is no argument of --with"


def test_help_and_import_do_not_import_torch() -> None:
    code = "import sys, lens_heads, lens_heads.cli.main; print('torch' in sys.modules, 'transformers' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]


@pytest.mark.slow
def test_finding_and_comparing_heads_import_transformers_only_with_a_model() -> None:
    """Notebooks silence its progress bars after their imports."""
    code = "import sys, lens_heads.compare, lens_heads.evidence; print('huggingface_hub' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_an_interrupt_is_reported_and_not_a_traceback(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(import_module("lens_heads.model.check"), "check_model", stop)
    assert run("check", str(folder), monkeypatch=monkeypatch) == 130
    assert "interrupted" in capsys.readouterr().err.lower()


SIZES = {"precision": None, "max_trials": None, "plan": False}


@pytest.mark.slow
def test_why_writes_a_page(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    prompt = tmp_path / "prompt.txt"
    prompt.write_text("The key is in the blue box. Where is the key? It is in the")
    given = ["-m", str(folder), "--prompt", str(prompt), "--answer", "blue", "--needle", "blue box", "--kind", "zero"]
    options = ["-k", "2", "--draws", "3", "--max-new-tokens", "2", "-o", str(tmp_path)]
    assert run("why", *given, *options, monkeypatch=monkeypatch) == 0
    shown = capsys.readouterr().out
    assert "Heads that write most towards it, from the needle: L" in shown
    assert "mean and range of 3 sets, of which" in shown
    assert "data-explorer" in (tmp_path / "why.html").read_text()


def test_a_prompt_of_a_file_has_no_last_line_break_and_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    file = tmp_path / "prompt.txt"
    file.write_text("Two\nlines\n")
    assert cli_explore._text(str(file)) == "Two\nlines"
    assert cli_explore._text("What is in prompt.txt") == "What is in prompt.txt"
    for name in (str(tmp_path), "prompt.txt", str(tmp_path / "other.md")):
        with pytest.raises(ValueError, match="there is no such file: correct its name, or pass the text of the prompt"):
            cli_explore._text(name)


def test_study_locos_hands_its_options_on(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from lens_heads.studies.locos_paper import study

    calls: list[tuple[Any, ...]] = []
    monkeypatch.setattr(study, "locos", lambda *args, **kwargs: calls.append((*args, kwargs)))
    given = [
        "-m",
        "a",
        "-m",
        "b",
        "--preset",
        "quick",
        "--out",
        str(tmp_path),
        "--dtype",
        "bfloat16",
        "--device",
        "cpu",
        "--max-trials",
        "30",
        "--workers",
        "2",
    ]
    assert run("study", "locos", *given, monkeypatch=monkeypatch) == 0
    assert run("study", "locos", monkeypatch=monkeypatch) == 0
    loading = {"device": "cpu", "dtype": "bfloat16", "workers": "2", "num_gpus": 1.0}
    assert calls == [
        (["a", "b"], "quick", tmp_path, None, {**SIZES, "max_trials": 30, **loading}),
        (study.MODELS, "packaged", Path("runs/locos"), None, {**SIZES, "dtype": "float32"}),
    ]


def test_study_fragile_tasks_hands_its_options_on(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from lens_heads.studies.fragile_paper import study

    calls: list[tuple[Any, ...]] = []
    monkeypatch.setattr(study, "fragile_tasks", lambda *args, **kwargs: calls.append((*args, kwargs)))
    given = ["-m", "a", "--quick", "--path", "10-K.zip", "--out", str(tmp_path), "--dtype", "bfloat16"]
    assert run("study", "fragile-tasks", *given, monkeypatch=monkeypatch) == 0
    assert run("study", "fragile-tasks", monkeypatch=monkeypatch) == 0
    assert calls == [
        (["a"], "quick", tmp_path, Path("10-K.zip"), {**SIZES, "dtype": "bfloat16"}),
        (study.MODELS, "packaged", Path("runs/fragile-tasks"), None, {**SIZES, "dtype": "float32"}),
    ]
    assert run("study", "fragile-tasks", "--quick", "--preset", "paper", monkeypatch=monkeypatch) == 2


def test_study_capability_hands_its_options_on(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from lens_heads.studies.capability_paper import study

    with monkeypatch.context() as patch:
        calls: list[tuple[Any, ...]] = []
        patch.setattr(study, "capability", lambda *args, **kwargs: calls.append((*args, kwargs)))
        given = ["-m", "a", "--capability", "capitals", "--capability", "rhyme", "--quick", "--out", str(tmp_path)]
        more = ["--dtype", "bfloat16", "--allow-code-execution", "--words", "list.txt"]
        assert run("study", "capability", *given, *more, monkeypatch=monkeypatch) == 0
        assert run("study", "capability", monkeypatch=monkeypatch) == 0
        loading = {**SIZES, "dtype": "float32"}
        assert calls == [
            (
                ["a"],
                ["capitals", "rhyme"],
                "quick",
                tmp_path,
                Path("list.txt"),
                True,
                loading | {"dtype": "bfloat16"},
            ),
            (study.MODELS, None, "packaged", Path("runs/capability"), None, False, loading),
        ]
        assert run("study", "capability", "--quick", "--preset", "paper", monkeypatch=monkeypatch) == 2
        assert "--quick conflicts with --preset paper" in capsys.readouterr().err
    assert run("study", "capability", "--preset", "big", monkeypatch=monkeypatch) == 2
    assert "error: --preset 'big': use packaged, quick, thorough, paper" in capsys.readouterr().err
    assert run("study", "capability", "--capability", "poetry", monkeypatch=monkeypatch) == 2
    assert "there is no capability 'poetry' in this preset: use arithmetic, retrieval" in capsys.readouterr().err
    assert run("study", "capability", "--allow-code-execution", monkeypatch=monkeypatch) == 2
    assert "--allow-code-execution is given, but none of arithmetic" in capsys.readouterr().err


def test_documents_are_scored_from_the_shell(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [
        {
            "idx": "q",
            "question": "Who?",
            "paragraphs": [{"idx": "a", "paragraph_text": "He."}, {"idx": "b", "paragraph_text": "She did."}],
            "gt_docs": ["b"],
        }
    ]
    (tmp_path / "data.json").write_text(json.dumps(rows))
    arguments = ["-m", str(folder), "-t", "qrhead", "-w", f"path={tmp_path / 'data.json'}", "-o", str(tmp_path / "run")]
    assert run("score", *arguments, monkeypatch=monkeypatch) == 0
    found = HeadScores.load(tmp_path / "run" / "qr.json")
    assert found.meta["rule"] == "gold_mass"
    assert str(found.top(1)[0]) in capsys.readouterr().out


def test_options_that_document_trials_cannot_use_are_refused(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    paragraphs = [{"idx": "a", "paragraph_text": "He."}, {"idx": "b", "paragraph_text": "She did."}]
    row = {"idx": "q", "question": "Who?", "paragraphs": paragraphs, "gt_docs": ["b"]}
    (tmp_path / "data.json").write_text(json.dumps([row]))
    arguments = ["-m", str(folder), "-t", "qrhead", "-w", f"path={tmp_path / 'data.json'}", "--teacher-forced"]
    assert run("score", *arguments, monkeypatch=monkeypatch) == 2
    assert "--teacher-forced applies to trials with a needle" in capsys.readouterr().err


def test_a_wrong_preset_ends_in_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("study", "locos", "--preset", "big", monkeypatch=monkeypatch) == 2
    assert (
        "error: --preset 'big': use demo-quick, demo, demo-full, packaged, thorough, negative-model, negative-needles"
        in capsys.readouterr().err
    )


@pytest.mark.slow
@pytest.mark.parametrize(("more", "method"), [([], "patching_all"), (["--ig-steps", "1"], "attribution")])
def test_patch_writes_the_scores_that_python_gives(
    more: list[str],
    method: str,
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    import lens_heads as lh

    source, out = needles(tmp_path / "data"), tmp_path / "run"
    arguments = ["-m", str(folder), *task(source, "one"), "--positions", "all", "-o", str(out), *more]
    assert run("patch", *arguments, monkeypatch=monkeypatch) == 0
    found = HeadScores.load(out / f"{method}.json")
    trials = lh.tasks.nolima(source, needle_set="one.json", lengths=[260], depths=[0.5], chat=False)
    function = lh.patch_heads if method == "patching_all" else lh.attribution_patch
    wanted = function(lh.load_model(folder), trials, positions="all", progress=False)
    torch.testing.assert_close(found.values, wanted.values, atol=1e-5, rtol=1e-4)
    shown = capsys.readouterr().out
    assert str(wanted.top(1)[0]) in shown
    assert f"2 pairs; run folder: {out}" in shown.replace("\n", "")


@pytest.mark.slow
def test_localize_finds_saves_and_goes_on(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    arguments = ["localize", "-m", str(folder), "-t", "arithmetic", "-w", "n=4", "-w", "digits=1", "-o", str(out)]
    masks = ["--masks", "12", "--sparsity", "0.2", "-k", "2"]
    assert run(*arguments, *masks, monkeypatch=monkeypatch) == 0
    said = capsys.readouterr().out
    assert f"run folder: {out}" in said
    scores = HeadScores.load(out / "css.json")
    assert f"{scores.evaluations} evaluations of 4 trials, logprob {scores.base:.3f}" in said
    assert str(scores.top(1)[0]) in said
    assert scores.best == "lowest"
    stored = len(list((out / "trials").iterdir()))
    assert run(*arguments, "--method", "one_shot", monkeypatch=monkeypatch) == 0
    assert len(list((out / "trials").iterdir())) > stored
    assert HeadScores.load(out / "one_shot.json").evaluations == 13


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--method", "cs"], "unknown method 'cs': use css, csb, csl, elastic_net, greedy, one_shot"),
        (["--metric", "choice"], "trial arithmetic-"),
        (["--sparsity", "0.01"], "--sparsity 0.01 of 12 heads is less than one head"),
        (["--allow-code-execution"], "no task of arithmetic runs generated code"),
    ],
)
def test_localize_says_what_is_wrong_in_a_line(
    folder: Path, arguments: list[str], said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    base = ["localize", "-m", str(folder), "-t", "arithmetic", "-w", "n=2", "-w", "digits=1"]
    assert run(*base, *arguments, monkeypatch=monkeypatch) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("score", "--methods", "locus"), "did you mean 'locos'"),
        (("score", "--direction", "lens.safetensors"), "no tuned lens at lens.safetensors"),
        (("patch", "--metric", "loss"), "--metric 'loss'"),
        (("patch", "--positions", "some"), "--positions 'some'"),
        (("patch", "--corruption", "noise"), "--corruption 'noise'"),
        (("localize", "--method", "cs"), "unknown method 'cs'"),
        (("localize", "--unit", "head"), "--unit='head'"),
        (("localize", "--sparsity", "2"), "--sparsity 2"),
        (("ablate", "-s", "nowhere.json"), "nowhere.json"),
        (("why", "--prompt", "x", "--kind", "median"), "--kind='median'"),
        (("bench", "--methods", "locus"), "locus"),
    ],
)
def test_what_is_wrong_is_said_before_the_model_is_loaded(
    arguments: tuple[str, ...],
    named: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    def never(*_: Any, **__: Any) -> None:
        raise AssertionError("loaded")

    monkeypatch.setattr("lens_heads.model.load.load_model", never)
    monkeypatch.chdir(tmp_path)
    assert run(*arguments, "-m", "smollm2-135m-instruct", monkeypatch=monkeypatch) == 2
    assert named in capsys.readouterr().err


@pytest.mark.parametrize("command", [("describe",), ("prune", "pruned")])
def test_heads_that_cannot_be_read_are_said_before_the_model_is_loaded(
    command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    given = ["nowhere"] if command[0] == "describe" else ["-m", "nowhere"]
    assert run(*command, *given, "--heads", "L0H1,L0X2", monkeypatch=monkeypatch) == 2
    assert "L0X2" in capsys.readouterr().err
