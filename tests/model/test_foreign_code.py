"""Code of a model's folder runs by an explicit word alone: no question on standard input, no way around."""

from __future__ import annotations

import io
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import dynamic_module_utils

import lens_heads as lh
from lens_heads.model.copies import packed
from lens_heads.model.foreign_code import brought_along, foreign_code, nothing_installed
from lens_heads.model.planning import shape_of
from tests.commands import model_folder, run
from tests.families import family_folder

MODULE = """
from pathlib import Path
with Path({mark!r}).open("a") as mark:
    mark.write("x")
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
class Config(LlamaConfig):
    model_type = "own"
class Model(LlamaForCausalLM):
    config_class = Config
class Tokenizer(PreTrainedTokenizerFast):
    pass
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A model of an unknown type with code of its own, which leaves a mark where it runs. Whoever asks is told yes."""
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n" * 20))
    monkeypatch.setattr("builtins.input", lambda *given: "y")
    monkeypatch.setattr(dynamic_module_utils, "HF_MODULES_CACHE", str(tmp_path / "modules"))
    monkeypatch.setattr(sys, "path", [*sys.path])
    whole = model_folder(tmp_path / "own")
    config = json.loads((whole / "config.json").read_text())
    own = {"AutoConfig": "code.Config", "AutoModelForCausalLM": "code.Model"}
    config |= {"auto_map": own, "model_type": "own", "architectures": ["LlamaForCausalLM"]}
    (whole / "config.json").write_text(json.dumps(config))
    (whole / "code.py").write_text(MODULE.format(mark=str(tmp_path / "mark")))
    return whole


def ran(folder: Path) -> bool:
    return (folder.parent / "mark").exists()


NEEDED = r"brings code of its own .*: read it, and pass trust_remote_code=True if you trust it"


def test_code_of_a_folder_does_not_run(folder: Path) -> None:
    for call in (lh.load_model, lambda name: lh.load_model(name, device_map="cpu"), lambda name: shape_of(str(name))):
        with pytest.raises(ValueError, match=NEEDED):
            call(folder)
    assert not ran(folder)


def test_it_runs_where_it_is_trusted(folder: Path) -> None:
    model = lh.load_model(folder, device="cpu", trust_remote_code=True)
    assert ran(folder)
    assert type(model.original_model).__module__.startswith("transformers_modules")
    assert shape_of(str(folder), trust_remote_code=True).n_layers == 3
    with torch.no_grad():
        assert model(torch.arange(3, 9)[None]).isfinite().all()
    with pytest.raises(TypeError, match="trust_remote_code='yes': must be True or False"):
        lh.load_model(folder, trust_remote_code="yes")  # type: ignore[arg-type]


@pytest.mark.slow
def test_workers_get_trusted_code_with_the_model(folder: Path, tmp_path: Path) -> None:
    """Another process, which has no such module, makes the model again."""
    cloudpickle: Any = pytest.importorskip("ray.cloudpickle")
    model = lh.load_model(folder, device="cpu", trust_remote_code=True)
    mine = [module for module in brought_along() if str(tmp_path) in str(module.__file__)]
    assert mine
    for module in mine:
        cloudpickle.register_pickle_by_value(module)
    try:
        (tmp_path / "sent").write_bytes(cloudpickle.dumps(packed(model)))
    finally:
        for module in mine:
            cloudpickle.unregister_pickle_by_value(module)
    code = (
        "import pickle, sys, torch; from lens_heads.model.copies import unpacked;"
        "model = unpacked(pickle.load(open(sys.argv[1], 'rb')), 'cpu');"
        "print(float(model(torch.arange(3, 9)[None]).sum()))"
    )
    told = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "sent")], capture_output=True, text=True, check=True
    )
    with torch.no_grad():
        assert float(told.stdout) == pytest.approx(float(model(torch.arange(3, 9)[None]).sum()), rel=1e-4)


def test_nothing_is_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """TransformerLens would install torchvision for a model that also sees, and with it another torch."""
    commands: list[Any] = []
    monkeypatch.setattr(subprocess, "check_call", lambda command, *given, **options: commands.append(command) or 0)
    model = lh.load_model(family_folder("gemma3-seeing", tmp_path / "model"), device="cpu")
    assert lh.check_model(model).passed
    assert commands == []
    with nothing_installed(), pytest.raises(RuntimeError, match="nothing is installed while a model is loaded"):
        subprocess.check_call([sys.executable, "-m", "pip", "install", "torchvision"])
    subprocess.check_call(["after"])
    assert commands == [["after"]]


def test_a_known_model_keeps_to_transformers_own_code(folder: Path) -> None:
    """As transformers does: code that is not needed is no reason to refuse."""
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"model_type": "llama"}))
    assert type(lh.load_model(folder, device="cpu").original_model).__module__.startswith("transformers.models.llama")
    assert not ran(folder)


def test_a_tokenizer_of_its_own(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"model_type": "llama"}))
    told = json.loads((folder / "tokenizer_config.json").read_text())
    told |= {"tokenizer_class": "Tokenizer", "auto_map": {"AutoTokenizer": [None, "code.Tokenizer"]}}
    (folder / "tokenizer_config.json").write_text(json.dumps(told))
    with pytest.raises(ValueError, match=NEEDED):
        lh.load_model(folder, device="cpu")
    assert not ran(folder)


def test_an_adapter_that_imports_a_folder_s_modules_cannot(folder: Path) -> None:
    """Baichuan's in TransformerLens does, whatever was passed."""
    with foreign_code(False, "m"), pytest.raises(ValueError, match="trust_remote_code is not set"):
        dynamic_module_utils.get_class_from_dynamic_module("code.Model", str(folder), local_files_only=True)
    assert not ran(folder)
    before = dynamic_module_utils.TIME_OUT_REMOTE_CODE, dynamic_module_utils.get_class_in_module
    with pytest.raises(KeyError), foreign_code(False, "m"):
        raise KeyError("other errors stay what they are")
    assert (dynamic_module_utils.TIME_OUT_REMOTE_CODE, dynamic_module_utils.get_class_in_module) == before


@pytest.mark.parametrize(
    "words",
    [
        ("score", "-m", "MODEL", "--plan"),
        ("check", "MODEL"),
        ("describe", "MODEL"),
        ("score", "-m", "MODEL"),
        ("patch", "-m", "MODEL"),
        ("localize", "-m", "MODEL"),
        ("why", "-m", "MODEL", "--prompt", "Tom is in Oslo. Tom is in"),
        ("prune", "-m", "MODEL", "OUT", "--heads", "L0H0"),
    ],
)
def test_no_command_asks(
    words: tuple[str, ...], folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    places = {"OUT": str(folder.parent / "out"), "MODEL": str(folder)}
    assert run(*[places.get(word, word) for word in words], monkeypatch=monkeypatch) == 2
    assert "read it, and pass --trust-remote-code if you trust it" in (said := capsys.readouterr().err), said
    assert not ran(folder)


@pytest.mark.slow
def test_the_flag_of_the_commands(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    given: tuple[Any, ...] = ("-m", str(folder), "--trust-remote-code")
    assert run("score", *given, "-w", "n=2", "--plan", monkeypatch=monkeypatch) == 0
    assert run("check", str(folder), "--trust-remote-code", "--device", "cpu", monkeypatch=monkeypatch) == 0
    assert "hooks fire" in capsys.readouterr().out
    assert ran(folder)
    shutil.rmtree(folder.parent / "modules", ignore_errors=True)


def test_a_model_from_a_folder_asks_nothing_of_the_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its image processor would be looked for under a name that is a label: for minutes, without a connection."""
    asked: list[Any] = []
    monkeypatch.setattr("socket.getaddrinfo", lambda *given, **_: asked.append(given) or pytest.fail("asked"))
    lh.load_model(family_folder("gemma3-seeing", tmp_path / "model"), device="cpu")
    assert asked == []
