"""SIGKILL at random moments: the next call of each function continues the run, and nothing finished is lost."""

from __future__ import annotations

import gc
import multiprocessing
import os
import random
import re
import shutil
import sys
import time
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch

import lens_heads as lh
from lens_heads.heads.scores import HeadScores
from lens_heads.tasks.sec10k.filings import packaged_filings
from lens_heads.trials.pairs import TokenPair
from tests import commands, planted, zoo
from tests.compare.permuted import TEXTS, permuted
from tests.conftest import random_trial, tiny
from tests.pairs import trial_of
from tests.studies import test_capability, test_fragile_tasks, test_locos

pytestmark = pytest.mark.slow

KILLS = int(os.environ.get("LENS_HEADS_KILLS", "3"))
"""Of each call. Twenty of each were measured before a release; a study takes a while, and is killed a quarter as often."""
PATIENCE = 120.0
"""Seconds without a finished unit after which a call counts as hung."""


@cache
def model() -> Any:
    return planted.model()


def trials(first: int, n: int = 6) -> list[Any]:
    return [random_trial(first + seed, 20 + seed) for seed in range(n)]


@cache
def ranking() -> HeadScores:
    values = torch.randn(2, 3, 4, generator=torch.Generator().manual_seed(0))
    return HeadScores.from_trials("mine", values, ("s", "t"))


@cache
def pairs() -> list[lh.EncodedTrial]:
    made = []
    for seed in range(12):
        tokens = torch.randint(3, zoo.VOCAB, (2, 20), generator=torch.Generator().manual_seed(seed))
        tokens[1, 10:] = tokens[0, 10:]
        made.append(trial_of(TokenPair(tokens[0], tokens[1], (18, 20), f"pair-{seed}")))
    return made


@cache
def documents() -> list[Any]:
    texts: Any = ("A red fox.", "A grey sea.", "A bell rang.")
    return [lh.DocumentTrial(f"d{i}", "Who rang?", texts, ("3",)) for i in range(12)]


@cache
def matched() -> tuple[Any, Any]:
    copy, _ = permuted("llama-gqa")
    return lh.match_heads(tiny("llama-gqa"), copy, texts=TEXTS, resamples=2, permutations=1, progress=False), copy


# One trial at a time where numbers are compared to the last digit: what is left after a kill makes other batches.
HOW: dict[str, Any] = {"kind": "zero", "generate": False}
CALLS: dict[str, Callable[..., Any]] = {
    "score_heads": lambda m, **run: lh.score_heads(m, trials(0, 12), ["locos"], teacher_forced=True, **run)["locos"],
    "score_documents": lambda m, **run: lh.score_documents(m, documents(), ["qr"], **run)["qr"],
    "evaluate": lambda m, **run: lh.evaluate(m, trials(0, 12), max_new_tokens=4, **run),
    "ablation_curve": lambda m, **run: lh.ablation_curve(m, {"a": trials(9)}, ranking(), ks=(1, 2), **HOW, **run),
    "transfer_matrix": lambda m, **run: lh.evidence.transfer_matrix(
        m, {"a": trials(9)}, {"a": ranking()}, ks=(1, 2), metric="logprob", **HOW, **run
    ),
    "generality": lambda m, **run: lh.evidence.generality(
        m, {"a": trials(9)}, {"a": ["L0H1"]}, batch_size=1, **run, kind="zero"
    ),
    "patch_heads": lambda m, **run: lh.patch_heads(m, pairs(), positions="all", **run),
    "path_patch": lambda m, **run: lh.path_patch(m, pairs(), ["L0H0", "L0H1"], ["L2H1"], **run),
    "attribution_patch": lambda m, **run: lh.attribution_patch(m, pairs(), **run, positions="all"),
    "recovery": lambda m, **run: lh.recovery(
        m, trials(9), ["L0H1"], ["L0H1"], controls=lh.Controls(draws=2), flipped=False, **run, kind="zero"
    ),
    "localize_heads": lambda _, **run: lh.localize_heads(
        model(), planted.trials(3, length=20), n_masks=24, sparsity=0.25, batch_size=1, **run, kind="zero"
    ),
    "provenance": lambda m, **run: lh.inspection.provenance(m, trials(9, 40), ["L0H1"], teacher_forced=True, **run),
    "literalness": lambda m, **run: lh.inspection.literalness(m, trials(0, 12), teacher_forced=True, **run),
    "search": lambda _, **run: lh.ranking.search(
        model(),
        planted.trials(3, length=20),
        held_out=planted.trials(6, length=20, seed=1)[3:],
        n_masks=24,
        sparsities=0.25,
        k=2,
        batch_size=1,
        **run,
        kind="zero",
    ),
    "validate_match": lambda m, **run: lh.evidence.validate_match(
        matched()[0], m, matched()[1], {"a": trials(9), "b": trials(40)}, groups={"g": ["L0H1"]}, **run, kind="zero"
    ),
}


def numbers(found: Any) -> str:
    """What was found, to the last digit."""
    for name in ("per_trial", "frame"):
        table = getattr(found, name, None)
        if isinstance(table, torch.Tensor):
            return str(table.tolist())
        if isinstance(table, pd.DataFrame):
            return str(table.to_dict("records"))
    return str(found.to_dict("records"))


def shards(out: Path) -> dict[str, int]:
    """Every finished unit, and when it was written: some calls keep several run folders, which share names."""
    return {str(file.relative_to(out)): file.stat().st_mtime_ns for file in out.rglob("trials/*.safetensors")}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
@pytest.mark.parametrize("name", CALLS)
def test_killed_at_random_moments_and_continued(tmp_path: Path, name: str) -> None:
    def call(out: Path | None) -> str:
        return numbers(CALLS[name](tiny("llama-gqa"), progress=False, out=out))

    assert call(None) == call(tmp_path / "elsewhere")
    killed_and_continued(call, tmp_path, alike)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
@pytest.mark.parametrize("command", ["score", "ablate", "patch", "localize"])
def test_a_command_is_killed_and_continued(
    tmp_path: Path, command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The model is loaded once: what loading costs is not what is to be interrupted."""
    data = commands.needles(tmp_path / "data")
    given = [f"source={data}", "needle_set=one.json", "lengths=[260]", "depths=[0.2,0.5,0.8]", "chat=false"]
    task = ["-m", "tiny", "--task", "nolima", *[part for pair in given for part in ("--with", pair)]]
    monkeypatch.setattr("lens_heads.model.load.load_model", lambda *_, **__: tiny("llama-gqa"))
    ranked = commands.score_file(tmp_path / "locos.json")
    more = {
        "score": ["--methods", "locos", "--teacher-forced"],
        "ablate": ["--scores", str(ranked), "--kind", "zero", "--ks", "1,2", "--no-text"],
        "patch": [],
        "localize": ["--masks", "12", "--sparsity", "0.3", "-k", "2"],
    }[command]

    def call(out: Path) -> str:
        assert commands.run(command, *task, *more, "-o", str(out), monkeypatch=monkeypatch) == 0
        return "\n".join(line for line in capsys.readouterr().out.splitlines() if "│" in line)

    killed_and_continued(call, tmp_path)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
@pytest.mark.parametrize("study", [test_locos, test_fragile_tasks, test_capability])
def test_a_study_is_killed_and_continued(tmp_path: Path, study: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is left after a kill makes other batches, which differ in the last digits."""
    monkeypatch.setattr(sys.modules["lens_heads.tasks.sec10k"], "packaged_filings", partial(packaged_filings, 40))
    run = {
        test_locos: lh.studies.locos,
        test_fragile_tasks: lambda *args, **rest: lh.studies.fragile_tasks(*args, **rest)[0],
        test_capability: lh.studies.capability,
    }[study]
    bridge = zoo.bridge("qwen3", n_ctx=8192)

    def call(out: Path) -> dict[str, pd.DataFrame]:
        return run([bridge], preset=study.TINY, out=out, command="test")[0].all_frames()

    def same(found: dict[str, pd.DataFrame], whole: dict[str, pd.DataFrame]) -> None:
        assert found.keys() == whole.keys()
        for name, frame in whole.items():
            pd.testing.assert_frame_equal(found[name], frame, rtol=1e-3, atol=1e-4)

    killed_and_continued(call, tmp_path, same, kills=max(1, KILLS // 4))


def equal(found: str, whole: str) -> None:
    assert found == whole


NUMBER = re.compile(r"-?\d+\.\d+(?:e-?\d+)?")


def alike(found: str, whole: str) -> None:
    """Equal, but for the last digits of numbers: sets of heads that are left after a kill run side by side with fewer others."""
    assert NUMBER.sub("", found) == NUMBER.sub("", whole)
    numbers = [[float(number) for number in NUMBER.findall(text)] for text in (found, whole)]
    assert numbers[0] == pytest.approx(numbers[1], rel=1e-4, abs=1e-5)


def killed_and_continued(
    call: Callable[[Path], Any], folder: Path, same: Callable[[Any, Any], None] = equal, kills: int = KILLS
) -> None:
    """Kill the call, again and again, in the middle of its work; it continues, and ends as it does undisturbed."""
    out, chance, during = folder / "run", random.Random(0), 0
    whole = call(folder / "whole")
    gc.freeze()  # Or the garbage collection of every child would copy all that the tests before have left.
    units = len(shards(folder / "whole"))
    for _ in range(kills):
        before = shards(out)
        process = multiprocessing.get_context("fork").Process(target=call, args=(out,))
        process.start()
        wanted = len(before) + chance.randint(0, max(1, units // 4))  # Then it is in the middle of its work.
        given_up = time.monotonic() + PATIENCE
        while len(shards(out)) < wanted and process.is_alive() and time.monotonic() < given_up:
            time.sleep(0.0005)
        hung = time.monotonic() >= given_up
        time.sleep(chance.uniform(0, 0.01))
        process.kill()
        process.join()
        assert not hung, f"no unit was finished within {PATIENCE:g} s"
        assert before.items() <= shards(out).items(), "what is finished is never written again"
        during += len(before) < len(shards(out)) < units
        if process.exitcode == 0:
            same(call(out), whole)
            shutil.rmtree(out)
    same(call(out), whole)
    assert during > 0, "some kills came in the middle of the work"
    assert not [file for file in out.rglob("*") if file.suffix == ".partial"]
    gc.unfreeze()
