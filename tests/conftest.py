"""Fixtures shared by all tests: tiny models by architecture, and encoded trials for them."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from typing import Any

import hypothesis
import pytest
import torch

from lens_heads.model.load import load_model
from lens_heads.trials.encoded import EncodedTrial
from tests import zoo

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell starts background jobs this way, and the commands that tests interrupt would inherit it.
    signal.signal(signal.SIGINT, signal.default_int_handler)

if "PYTEST_XDIST_WORKER" in os.environ:
    # Workers side by side take a core each, and so do the kernels and commands they start.
    os.environ["OMP_NUM_THREADS"] = "1"
    torch.set_num_threads(1)


hypothesis.settings.register_profile("quick", max_examples=10)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """`make quick` takes one architecture of those that a test runs on."""
    further = set(zoo.ARCHITECTURES) - {"llama-gqa"}
    for item in items:
        given = getattr(item, "callspec", None)
        if given is not None and further & {each for each in given.params.values() if isinstance(each, str)}:
            item.add_marker("wide")


@cache
def tiny(name: str, dtype: torch.dtype = torch.float32) -> Any:
    return zoo.bridge(name, dtype=dtype)


@cache
def real_model(name: str) -> Any:
    """A packaged real model; treat it as read-only."""
    return load_model(name)


@pytest.fixture(params=zoo.ARCHITECTURES)
def arch(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def model(arch: str) -> Any:
    return tiny(arch)


@pytest.fixture
def gqa() -> Any:
    return tiny("llama-gqa")


def random_trial(seed: int = 0, n: int = 24, needle: tuple[int, int] = (7, 11), answer: int = 3) -> EncodedTrial:
    """Random tokens; the answer repeats needle tokens so that copies can happen."""
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(3, zoo.VOCAB, (n,), generator=generator)
    gold = tokens[needle[0] : needle[0] + answer]
    return EncodedTrial(tokens=tokens, needle=needle, answer="x", answer_tokens=gold, id=f"random-{seed}")


def few_shot(lengths: tuple[int, ...]) -> list[EncodedTrial]:
    """Prompts that share their first 20 tokens."""
    shots = random_trial(99, n=20).tokens
    made = [random_trial(i, n=length, needle=(0, 1), answer=1) for i, length in enumerate(lengths)]
    return [replace(trial, tokens=torch.cat([shots, trial.tokens]), needle=None) for trial in made]


@pytest.fixture
def alone() -> Iterator[None]:
    """Sets of heads run one after the other instead of side by side."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("lens_heads.interventions.replay.ROWS", {"cpu": 1})
        yield


@pytest.fixture
def trial() -> EncodedTrial:
    return random_trial()
