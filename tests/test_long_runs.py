"""The page on long runs: its commands exist with their options, and so do the Python names."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest
import typer

import lens_heads as lh
from lens_heads.cli.main import app

ROOT = Path(__file__).parent.parent
TEXT = (ROOT / "lens_heads/runs/README.md").read_text()
COMMANDS = [line.strip() for line in TEXT.splitlines() if line.strip().startswith("lens-heads ")]


@pytest.mark.parametrize("line", COMMANDS)
def test_a_command_of_the_page_is_understood(line: str) -> None:
    words = shlex.split(line)[1:]
    group = typer.main.get_command(app)
    assert isinstance(group, click.Group) or hasattr(group, "commands")
    command = group.commands[words[0]]  # type: ignore[attr-defined]  # a group
    context = command.make_context(words[0], words[1:])
    assert not context.args


def test_the_page_shows_every_way() -> None:
    assert len(COMMANDS) >= 8
    for way in (
        "--workers auto",
        "--shard auto",
        "--workers ray://",
        "--device-map auto",
        "--gpus-per-worker",
        "--plan",
    ):
        assert any(way in line for line in COMMANDS), way
    for name in re.findall(r"lh\.(\w+)", TEXT):
        assert hasattr(lh, name), name
