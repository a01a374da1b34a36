"""A block that changes a model says so when it is forgotten."""

from __future__ import annotations

import gc
import re
import warnings
from typing import Any

import pytest

import lens_heads as lh
from lens_heads.model.hooks import has_hooks
from tests.conftest import random_trial, tiny

MADE: dict[str, Any] = {
    "ablate": lambda model: lh.ablate(model, ["L0H0"], kind="zero"),
    "steer": lambda model: lh.steer(model, ["L0H0"], lh.task_vectors(model, [random_trial()])),
    "patch": lambda model: lh.patch(model, ["L0H0"], random_trial()),
    "streaming_cache": lambda model: lh.evidence.streaming_cache(model, ["L0K0"]),
    "worker_pool": lambda model: lh.worker_pool(model, 2),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", MADE)
def test_a_block_that_is_never_entered_says_that_it_did_nothing(name: str) -> None:
    made = MADE[name](tiny("llama-gqa"))
    assert repr(made).startswith(f"<{name}(...) does nothing by itself: ")
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        del made
        gc.collect()
    assert re.match(rf"{name}\(...\) does nothing by itself: .*`with {name}\(...\):`", str(found[0].message))
    assert found[0].filename == __file__


@pytest.mark.slow
def test_as_a_decorator_it_is_not_forgotten() -> None:
    model = tiny("llama-gqa")

    @lh.ablate(model, ["L0H0"], kind="zero")
    def run() -> bool:
        return has_hooks(model)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert run()
        assert run()
        del run
        gc.collect()
    assert not has_hooks(model)


@pytest.mark.slow
def test_one_that_was_entered_or_refused_says_nothing() -> None:
    model = tiny("llama-gqa")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with MADE["ablate"](model):
            pass
        with pytest.raises(ValueError, match="does not exist"), lh.ablate(model, ["L99H0"], kind="zero"):
            pass
        gc.collect()
