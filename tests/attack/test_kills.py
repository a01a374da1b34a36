"""SIGKILL at random moments: the next call of each function continues the run, and nothing finished is lost."""

from __future__ import annotations

import multiprocessing
import os
import random
import shutil
import signal
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch

import lens_heads as lh
from lens_heads.causal.pairs import TokenPair
from lens_heads.heads.scores import HeadScores
from tests import planted, zoo
from tests.conftest import random_trial, tiny

pytestmark = pytest.mark.slow

KILLS = 20


@cache
def model() -> Any:
    return planted.model()


def score(out: Path | None) -> Any:
    trials = [random_trial(seed, 20 + seed) for seed in range(12)]
    return lh.score_heads(tiny("llama-gqa"), trials, ["locos", "dla"], teacher_forced=True, progress=False, out=out)[
        "locos"
    ]


def curve(out: Path | None) -> Any:
    trials = [random_trial(20 + seed, 20) for seed in range(3)]
    ranking = HeadScores.from_trials(
        "mine", torch.randn(2, 3, 4, generator=torch.Generator().manual_seed(0)), ("s", "t")
    )
    how: dict[str, Any] = {"ks": (1, 2, 3), "kind": "zero", "generate": False, "progress": False}
    return lh.ablation_curve(tiny("llama-gqa"), {"main": trials}, ranking, out=out, **how)


def patch(out: Path | None) -> Any:
    pairs = []
    for seed in range(12):
        tokens = torch.randint(3, zoo.VOCAB, (2, 20), generator=torch.Generator().manual_seed(seed))
        tokens[1, 10:] = tokens[0, 10:]
        pairs.append(TokenPair(tokens[0], tokens[1], (18, 20), f"pair-{seed}"))
    return lh.patch_heads(tiny("llama-gqa"), pairs, positions="all", progress=False, out=out)


def localize(out: Path | None) -> Any:
    return lh.localize_heads(model(), planted.trials(3, 20), n_masks=24, sparsity=0.25, progress=False, out=out)


def numbers(found: Any) -> Any:
    return found.per_trial if not isinstance(found.per_trial, pd.DataFrame) else found.per_trial.to_dict("records")


def same(one: Any, other: Any) -> bool:
    a, b = numbers(one), numbers(other)
    return torch.equal(a, b) if isinstance(a, torch.Tensor) else str(a) == str(b)


def shards(out: Path) -> dict[str, int]:
    return {file.name: file.stat().st_mtime_ns for file in out.glob("trials/*.safetensors")}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
@pytest.mark.parametrize("call", [score, curve, patch, localize])
def test_killed_at_random_moments_and_continued(tmp_path: Path, call: Callable[[Path | None], Any]) -> None:
    whole, out, chance, during = call(None), tmp_path / "run", random.Random(0), 0
    began = time.monotonic()
    call(tmp_path / "timed")
    longest = time.monotonic() - began
    for _ in range(KILLS):
        before = shards(out)
        process = multiprocessing.get_context("fork").Process(target=call, args=(out,))
        process.start()
        time.sleep(chance.uniform(0, 0.4 * longest))
        os.kill(process.pid or 0, signal.SIGKILL)
        process.join()
        assert before.items() <= shards(out).items(), "what is finished is never written again"
        during += len(before) < len(shards(out))
        if process.exitcode == 0:
            assert same(call(out), whole)
            shutil.rmtree(out)
    assert same(call(out), whole)
    assert during > 2, "some kills came in the middle of the work"
    assert not [file for file in out.rglob("*") if file.suffix == ".partial"]
