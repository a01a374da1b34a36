"""The house has floors: the import contract holds, and a wrong import anywhere breaks it."""

from __future__ import annotations

import importlib
import shutil
import subprocess
import sys
from pathlib import Path

import grimp
import pytest

import lens_heads as lh

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
        (
            "ranking/causal/patching.py",
            "def f():\n    from lens_heads.evidence.curve import ablation_curve",
            "lens_heads.ranking is not allowed to import lens_heads.evidence",
        ),
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
    assert files == {"__init__.py", "__init__.pyi", "py.typed"}


FLOORS = sorted(path.parent.name for path in (ROOT / "lens_heads").glob("*/__init__.py"))
ABOVE = ("cli", "studies")


def test_no_floor_imports_more_than_half_of_the_others() -> None:
    graph = grimp.build_graph("lens_heads")
    for floor in [name for name in FLOORS if name not in ABOVE]:
        others = [name for name in FLOORS if name != floor]
        modules = {f"lens_heads.{floor}"} | graph.find_descendants(f"lens_heads.{floor}")
        found = {one for module in modules for one in graph.find_modules_directly_imported_by(module)}
        imported = {one.split(".")[1] for one in found} - {floor}
        assert len(imported) <= len(others) / 2, f"{floor} imports {len(imported)}: {sorted(imported)}"


@pytest.mark.parametrize("floor", [name for name in FLOORS if name != "cli"])
def test_a_floor_has_a_face(floor: str) -> None:
    face = importlib.import_module(f"lens_heads.{floor}")
    assert face.__doc__
    assert len(face.__all__) == len(set(face.__all__))
    for name in face.__all__:
        assert getattr(face, name) is not None


def test_every_public_name_is_there() -> None:
    for name in lh.__all__:
        assert getattr(lh, name) is not None
    with pytest.raises(AttributeError, match="did you mean score_heads"):
        _ = lh.score_head  # type: ignore[attr-defined]
