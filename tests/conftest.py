"""Fixtures shared by all tests: tiny models by architecture, and an encoded trial for them."""

from __future__ import annotations

import os
from functools import cache
from typing import Any

import pytest
import torch

from lens_heads.trials import EncodedTrial
from tests import zoo

if "PYTEST_XDIST_WORKER" in os.environ:
    # Workers side by side take a core each, and so do the kernels and commands they start.
    os.environ["OMP_NUM_THREADS"] = "1"
    torch.set_num_threads(1)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Notebooks first: they take longest, and would keep one worker busy after the others are done."""
    items.sort(key=lambda item: "test_notebooks" not in item.nodeid)


@cache
def tiny(name: str) -> Any:
    return zoo.bridge(name)


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


@pytest.fixture
def trial() -> EncodedTrial:
    return random_trial()
