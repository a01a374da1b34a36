"""Every argument of every method of results, each with every malformed value that its annotation excludes."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest

from lens_heads.runs.typed import _hints
from tests.attack.calls import CALLS
from tests.attack.held import refused
from tests.attack.test_arguments import malformed

RESULTS = (
    "ablation_curve",
    "evaluate",
    "faithfulness",
    "influence",
    "look",
    "match_heads",
    "mean_activations",
    "planted",
    "score_heads",
    "task_vectors",
    "token_curves",
    "checkpoint_series",
    "ov_similarity",
    "generality",
    "universal_heads",
)
"""The calls of which results are attacked: one for each class of results that takes no longer than a few seconds."""


@cache
def result(name: str) -> Any:
    function, given = CALLS[name]
    found = function(**given())
    return next(iter(found.values())) if isinstance(found, dict) else found


def methods(value: Any) -> Iterator[tuple[str, dict[str, inspect.Parameter], dict[str, Any]]]:
    """The public methods of this package, with what their arguments are annotated with."""
    for name, method in inspect.getmembers(type(value), callable):
        if name.startswith("_") or not getattr(method, "__module__", "").startswith("lens_heads"):
            continue
        plain = inspect.unwrap(getattr(method, "__func__", method))
        yield name, dict(inspect.signature(getattr(value, name)).parameters), _hints(plain, inspect.signature(plain))


@pytest.mark.slow
@pytest.mark.parametrize("call", RESULTS)
def test_a_malformed_argument_is_refused_by_its_name(call: str) -> None:
    value, tried = result(call), 0
    for method, parameters, hints in methods(value):
        needed = [
            name for name, one in parameters.items() if one.default is one.empty and one.kind is not one.VAR_KEYWORD
        ]
        for name in parameters:
            if set(needed) - {name}:  # Without the others nothing can be called.
                continue
            for wrong in malformed(hints.get(name, Any)):
                refused(lambda m=method, n=name, w=wrong: getattr(value, m)(**{n: w}), name)
                tried += 1
    assert tried or not list(methods(value))
