"""Names: files of a folder are told apart at a glance, and nothing public has the name of something else."""

from __future__ import annotations

import ast
import importlib
import itertools
import re
from collections import defaultdict
from pathlib import Path

import pytest

import lens_heads as lh

PACKAGE = Path(lh.__file__).parent
FILES = sorted(path for path in PACKAGE.rglob("*.py") if path.name != "__init__.py")
FOLDERS = sorted({path.parent for path in FILES})
ENDINGS = re.compile(r"(ations?|ities|ity|ings?|ions?|ers?|ors?|ed|es|e|s)$")

ONE_A_STUDY = {"Preset", "Setup"}
"""Every study has its own; the NoLiMa task has presets, too."""


def alike(one: str, other: str) -> bool:
    """Whether two names differ by an ending, or by a letter."""
    if ENDINGS.sub("", one) == ENDINGS.sub("", other):
        return True
    short, long = sorted((one, other), key=len)
    if len(short) == len(long):
        return sum(a != b for a, b in zip(short, long, strict=True)) == 1
    return len(long) == len(short) + 1 and any(long[:i] + long[i + 1 :] == short for i in range(len(long)))


def test_what_counts_as_alike() -> None:
    told = [
        ("scorer", "scored"),
        ("look", "looks"),
        ("encoded", "encoding"),
        ("identity", "identities"),
        ("lad", "lid"),
    ]
    assert all(alike(*pair) for pair in told)
    assert not any(alike(*pair) for pair in (("curve", "causal"), ("rope", "load")))


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_files_of_a_folder_are_told_apart(folder: Path) -> None:
    names = [path.stem for path in folder.iterdir() if path.suffix == ".py" or any(path.glob("*.py"))]
    assert [pair for pair in itertools.combinations(sorted(names), 2) if alike(*pair)] == []


@pytest.mark.slow
def test_a_class_has_a_name_of_its_own() -> None:
    found: dict[str, list[str]] = defaultdict(list)
    for path in FILES:
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found[node.name].append(str(path.relative_to(PACKAGE)))
    assert {name: where for name, where in found.items() if len(where) > 1 and name not in ONE_A_STUDY} == {}


def test_a_public_name_means_one_thing() -> None:
    """Folders may offer each other's things, under the same name."""
    found: dict[str, set[int]] = defaultdict(set)
    folders = [path.parent.name for path in PACKAGE.glob("*/__init__.py")]
    for face in (lh, *(importlib.import_module(f"lens_heads.{name}") for name in folders)):
        for name in getattr(face, "__all__", ()):
            found[name].add(id(getattr(face, name)))
    assert [name for name, things in found.items() if len(things) > 1] == []
