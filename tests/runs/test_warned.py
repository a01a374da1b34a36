"""Warnings name the line that called the package, whatever lies between."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import lens_heads
import lens_heads as lh
from lens_heads.evidence.streaming import streaming_cache
from lens_heads.heads.head import Head
from lens_heads.heads.scores import HeadScores
from lens_heads.runs.typed import typed
from lens_heads.runs.warned import users_line
from tests.conftest import tiny

TIED = HeadScores.from_trials("tied", torch.ones(2, 2, 4), ["a", "b"], order=("L0H0",))


CALLS: dict[str, Callable[[], Any]] = {
    "held to its signature": lambda: lh.ranking.draw_masks("bernoulli", 8, 2, 3, 0.3),
    "a method": lambda: TIED.top(3),
    "by a block": lambda: streaming_cache(tiny("llama-gqa"), [Head(0, 1)], sink=1, recent=4).__enter__(),
    "by torch's decorators too": lambda: torch.no_grad()(typed(lh.ranking.draw_masks))("bernoulli", 8, 2, 3, 0.3),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=list(CALLS))
def test_a_warning_names_the_users_line(call: Callable[[], Any]) -> None:
    with pytest.warns(UserWarning, match=r"masks repeat|has ties|are taken for kv heads") as found:
        call()
    assert {(each.filename, each.lineno) for each in found} == {(__file__, call.__code__.co_firstlineno)}


def test_a_line_of_ones_own_is_the_first() -> None:
    with pytest.warns(UserWarning, match="mine") as found:
        warnings.warn("mine", stacklevel=users_line())
    assert found[0].filename == __file__


@pytest.mark.slow
def test_every_warning_of_the_package_does() -> None:
    """None counts the functions between by hand, which a decorator would make wrong."""
    for file in Path(lens_heads.__file__).parent.rglob("*.py"):
        for call in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(call, ast.Call) and ast.unparse(call.func) == "warnings.warn":
                assert "stacklevel=users_line()" in ast.unparse(call), f"{file}:{call.lineno}"
