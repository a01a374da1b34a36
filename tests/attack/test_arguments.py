"""Every argument of every public function, each with every malformed value that its annotation or its bounds exclude."""

from __future__ import annotations

import inspect
import math
import types
import typing
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import pytest
import torch

from lens_heads.model.hooks import has_hooks
from lens_heads.model.identity import fingerprint
from lens_heads.runs.typed import _hints, fits
from tests.attack.calls import CALLS, M
from tests.attack.held import refused

NAN = math.nan
VALUES: list[Any] = [
    None,
    True,
    1.5,
    -1,
    NAN,
    math.inf,
    10**20,
    "zz",
    b"x",
    object(),
    [None],
    {},
    np.array([NAN]),
    torch.ones(()),
]
NUMBERS: dict[Any, list[Any]] = {
    int: [None, True, 1.5, -1, NAN, 10**20, "zz", [None], {}, object(), np.array([NAN])],
    float: [None, True, NAN, math.inf, "zz", {}, object(), 10**400],
}
"""What no whole number, and no number, may be. Numbers are checked by the functions, all else by `typed`."""
SLOW = ("workers", "steps")
"""Workers are started for some of the values; a look's steps are counted after its answer."""
CALLED = {"k_a": "k", "k_b": "k", "sparsities": "sparsity", "precision": "half_width"}
"""How errors call an argument that they name otherwise."""


def malformed(hint: Any) -> list[Any]:
    """The values that an argument with this annotation excludes."""
    inner = typing.get_args(hint) if typing.get_origin(hint) in (typing.Union, types.UnionType) else (hint,)
    numeric = [each for each in inner if each in (int, float)]
    if not numeric:
        # Arrays of numbers become tensors.
        arrays = "Tensor" in str(hint)
        return [value for value in VALUES if not fits(value, hint) and not (arrays and isinstance(value, np.ndarray))]
    others = [each for each in inner if each not in numeric]
    return [value for value in NUMBERS[numeric[0]] if not any(fits(value, each) for each in others)]


def arguments() -> list[Any]:
    """A case for every argument of which anything is excluded."""
    found = []
    for name, (function, _) in CALLS.items():
        for argument, hint in _hints(function, inspect.signature(function)).items():
            if malformed(hint) and argument not in SLOW:
                found.append(pytest.param(name, argument, hint, id=f"{name}-{argument}"))
    return found


@pytest.fixture(scope="module", autouse=True)
def _unchanged() -> Any:
    before = fingerprint(M())
    yield
    assert fingerprint(M()) == before
    assert not has_hooks(M())


@pytest.mark.slow
@pytest.mark.parametrize(("name", "argument", "hint"), arguments())
def test_a_malformed_argument_is_refused_by_its_name(name: str, argument: str, hint: Any) -> None:
    function, given = CALLS[name]

    def call(value: Any) -> None:
        found = function(**{**given(), argument: value})
        if isinstance(found, AbstractContextManager):
            with found:
                pass

    for value in malformed(hint):
        refused(lambda value=value: call(value), CALLED.get(argument, argument))


def test_the_table_is_large() -> None:
    assert sum(len(malformed(case.values[2])) for case in arguments()) > 1200
