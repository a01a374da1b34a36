"""The house has floors: the import contract holds, and a wrong import anywhere breaks it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def contract(folder: Path) -> subprocess.CompletedProcess[str]:
    command = [str(Path(sys.executable).with_name("lint-imports")), "--config", "pyproject.toml", "--no-cache"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    ignored = shutil.ignore_patterns("__pycache__", "data")
    shutil.copytree(ROOT / "lens_heads", tmp_path / "lens_heads", ignore=ignored)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def test_the_contract_holds(copy: Path) -> None:
    done = contract(copy)
    assert done.returncode == 0, done.stdout
    assert "2 kept, 0 broken" in done.stdout


@pytest.mark.parametrize(
    ("file", "line", "named"),
    [
        ("plots/theme.py", "from lens_heads.heads.scores import HeadScores", "plots is not allowed to import"),
        (
            "heads/head.py",
            "from lens_heads.heads.scores import HeadScores",
            "No cycles are allowed in lens_heads.heads",
        ),
        ("stats/intervals.py", "def f():\n    from lens_heads.model.load import load_model", "lens_heads.stats is not"),
        ("runs/store.py", "if TYPE_CHECKING:\n    from lens_heads.trials.trial import Trial", "lens_heads.runs is not"),
        ("extra/room.py", "", "extra"),
    ],
)
def test_a_wrong_import_breaks_it(copy: Path, file: str, line: str, named: str) -> None:
    place = copy / "lens_heads" / file
    if not place.exists():
        place.parent.mkdir()
        (place.parent / "__init__.py").touch()
        place.touch()
    place.write_text(place.read_text() + f"\nfrom typing import TYPE_CHECKING\n{line}\n")
    done = contract(copy)
    assert done.returncode != 0
    assert named in done.stdout


def test_nothing_but_folders_stands_at_the_root() -> None:
    files = {path.name for path in (ROOT / "lens_heads").iterdir() if path.is_file()}
    assert files == {"__init__.py", "py.typed"}
