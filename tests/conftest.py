"""Fixtures shared by all tests: tiny models by architecture, and encoded trials for them."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from typing import Any

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


SLOW = (
    "tests/attack/test_command_line.py",
    "tests/attack/test_generated_",
    "tests/attack/test_interrupts.py",
    "tests/attack/test_kills.py",
    "tests/attack/test_run_folders_shared.py",
    "tests/attack/test_threads.py",
    "tests/studies/test_capability.py",
    "tests/studies/test_fragile_tasks.py",
    "tests/studies/test_locos.py",
    "tests/ranking/masks/test_degenerate.py",
    "tests/ranking/masks/test_greedy.py",
    "tests/ranking/masks/test_localize.py",
    "tests/ranking/masks/test_recovery.py",
    "tests/ranking/masks/test_search.py",
    "tests/trials/test_sandbox.py",
    "tests/tasks/sec10k/test_packaged.py",
    "tests/tasks/sec10k/test_sec10k.py",
    "tests/tasks/test_rhyme.py",
    "tests/evidence/test_correlation.py",
    "tests/evidence/test_transfer.py",
    "tests/evidence/test_validation.py",
    "tests/ranking/causal/test_paths.py",
    "tests/evidence/test_recovery.py",
    "tests/ranking/one_pass/test_score_heads.py::test_killed_outright",
    "tests/tasks/test_multiple_choice.py::test_a_faulty_row_is_named",
    "tests/test_notebooks.py::test_",
)
"""Tests that `make quick` leaves out; their files, or the beginning of their names."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What takes longest first, so that no worker is busy with it after the others are done.

    Two workers get a half each, and what is left at the end of one is taken over by the other: notebooks stand at the start of
    both, then tests of other real models in one, which loads each model once, and in the other those of studies, which is run
    once for all tests of it.
    """
    for item in items:
        if item.nodeid.startswith(SLOW):
            item.add_marker("slow")
    notebooks = [item for item in items if item.get_closest_marker("notebook") is not None]
    real = [item for item in items if item.get_closest_marker("real") is not None and item not in notebooks]
    studies = [item for item in items if "tests/studies" in item.nodeid and item not in real]
    placed = {*notebooks, *real, *studies}
    others = [item for item in items if item not in placed]
    one, other = notebooks[::2] + real, notebooks[1::2] + studies
    cut = max(0, len(items) // 2 - len(one))
    items[:] = [*one, *others[:cut], *other, *others[cut:]]


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
