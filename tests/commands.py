"""The command line in this process, and small inputs for it."""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path

import pytest
import torch

from lens_heads.cli import main as cli
from lens_heads.heads.scores import HeadScores
from tests import zoo


def model_folder(path: Path) -> Path:
    """A tiny model with its tokenizer, as `save_pretrained` writes them."""
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
    monkeypatch.setattr(warnings, "formatwarning", warnings.formatwarning)  # The command sets it.
    with pytest.raises(SystemExit) as done:
        cli.main()
    return int(done.value.code or 0)


def score_file(path: Path, method: str = "locos") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    scores = torch.arange(24.0).reshape(2, 3, 4)
    return HeadScores.from_trials(method, scores, ["a", "b"]).save(path)
