"""On a real GPU: every path of the pretended devices gives the CPU's results there, and leaves nothing behind."""

from __future__ import annotations

import gc
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import lens_heads as lh
from lens_heads.model.hooks import has_hooks
from lens_heads.model.load import load_model
from lens_heads.model.planning import shape_of
from lens_heads.model.timing import this_machine
from lens_heads.ranking.gates import training
from lens_heads.ranking.registry import resolve
from tests import zoo
from tests.commands import run
from tests.conftest import random_trial, tiny
from tests.devices import on_one
from tests.model.test_devices import (  # noqa: F401
    CASES,
    HEADS,
    SCORES,
    TEXT,
    answered,
    assert_same,
    on_the_cpu,
    trials,
    vectors,
)
from tests.model.test_load import saved
from tests.ranking.gates.test_training import METHODS
from tests.rounding import rounding

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="this machine has no CUDA device")

Q: dict[str, Any] = {"progress": False}
WHOLE = ("gpt2", "llama-gqa", "gemma3")
"""Models that run every case: heads of their own, shared ones, and windows with norms of queries and keys."""
FEW = (
    *("scoring: forced, in batches", "scoring: decoded", "ablation: mean", "ablation: curve"),
    *("causal: patch heads", "causal: attribution", "causal: faithfulness", "other: duo", "other: streaming"),
)
NEVER = {
    ("gemma2", "other: streaming"),  # Its soft cap lets no streaming cache in: refused everywhere.
    (
        "gemma3",
        "other: reinforce",
    ),  # Heads whose window ends before the needle differ by rounding alone, which then chooses.
}
RUNS = [(arch, case) for arch in zoo.ARCHITECTURES for case in CASES if arch in WHOLE or case in FEW]
RUNS = [one for one in RUNS if one not in NEVER]


@cache
def there(arch: str, dtype: torch.dtype = torch.float32) -> Any:
    """A tiny model on the GPU."""
    return on_one(arch, dtype)


@cache
def size(arch: str) -> float:
    """The largest logit: what scores are differences of is rounded at this size, however small they are themselves."""
    with torch.no_grad():
        return max(float(tiny(arch)(trial.tokens[None]).abs().max()) for trial in trials(4))


def near(arch: str, wanted: Any) -> dict[str, float]:
    """Rounding at the size of the largest number compared, or of the logits; one step of what is stored in half precision."""
    given = torch.as_tensor(wanted)
    numbers = given[given.isfinite()].double()
    largest = float(numbers.abs().max()) if numbers.numel() else 0.0
    stored = rounding(largest, 1, given.dtype) if given.dtype in (torch.float16, torch.bfloat16) else 0.0
    return {"atol": max(rounding(max(largest, size(arch))), stored), "rtol": 0.0}


def held() -> int:
    """Bytes on the GPU that something refers to."""
    gc.collect()
    return torch.cuda.memory_allocated()


def untouched(model: Any) -> bool:
    """No hook, no gradient, nothing frozen."""
    weights = list(model.original_model.parameters())
    return not has_hooks(model) and all(one.grad is None and one.requires_grad for one in weights)


@pytest.mark.filterwarnings("ignore", "error:.*(failed|fails)")
@pytest.mark.usefixtures("answered")
@pytest.mark.parametrize(("arch", "case"), RUNS)
def test_a_gpu_gives_the_cpu_s_results_and_keeps_no_memory(arch: str, case: str) -> None:
    model = there(arch)
    assert_same(CASES[case](model), on_the_cpu(arch, case), case, partial(near, arch))
    assert untouched(model)
    before = held()
    CASES[case](model)
    assert held() <= before


def test_a_broken_result_is_found() -> None:
    """The bound is far below what a wrong head, row or span does."""
    wanted = lh.score_heads(tiny("llama-gqa"), trials(), ["dla"], teacher_forced=True, **Q)["dla"].per_trial
    found = lh.score_heads(there("llama-gqa"), trials(), ["dla"], teacher_forced=True, **Q)["dla"].per_trial
    assert_same(found, wanted, bound=partial(near, "llama-gqa"))
    for broken in (found.roll(1, 0), found.roll(1, 1), found.roll(1, 2), found * 1.001):
        with pytest.raises(AssertionError):
            assert_same(broken, wanted, bound=partial(near, "llama-gqa"))


@pytest.mark.parametrize("arch", WHOLE)
def test_rank_gives_the_cpu_s_rankings(arch: str) -> None:
    names = [method.name for method in resolve(None) if method.family != "trained"]
    others = [random_trial(seed) for seed in range(10, 13)]
    here, found = (
        lh.rank(model, trials(3), names, k=2, masks=40, calibration=others, **Q) for model in (tiny(arch), there(arch))
    )
    assert list(found) == names
    assert_same({name: one.values for name, one in found.items()}, {name: one.values for name, one in here.items()},
                bound=partial(near, arch))  # fmt: skip
    assert untouched(there(arch))


def off(found: Tensor, exact: Tensor) -> float:
    return float((found - exact).norm() / exact.norm())


HALF: dict[str, Any] = {
    "scores": lambda model: lh.score_heads(
        model, trials(6), ["locos", "dla", "attention_mass"], teacher_forced=True, **Q
    ),
    "patching": lambda model: {"patching": lh.patch_heads(model, trials(6), **Q)},
    "attribution": lambda model: {"attribution": lh.attribution_patch(model, trials(6), **Q, positions="all")},
    "knockout": lambda model: {"knockout": lh.knockout_heads(model, [TEXT, "a dog lay"], **Q, kind="uniform")},
}


@pytest.mark.parametrize(
    ("way", "arch"),
    # OLMo's norms let no gradient through in bfloat16, and attribution is refused everywhere.
    [(way, arch) for way in HALF for arch in zoo.ARCHITECTURES if way != "attribution" or "olmo" not in arch],
)
def test_bfloat16_is_as_near_to_float32_as_on_the_cpu(way: str, arch: str) -> None:
    exact, here, found = (
        HALF[way](model) for model in (tiny(arch), tiny(arch, torch.bfloat16), there(arch, torch.bfloat16))
    )
    for name, one in found.items():
        assert one.values.dtype == here[name].values.dtype
        ours, theirs = (off(each[name].per_trial, exact[name].per_trial) for each in (found, here))
        assert ours < 2 * theirs, name


@pytest.mark.parametrize("method", METHODS)
def test_bfloat16_learns_the_same(method: str) -> None:
    how: dict[str, Any] = {"steps": 3, "batch_size": 2, **Q}
    exact, half = (METHODS[method](there("llama-gqa", dtype), **how) for dtype in (torch.float32, torch.bfloat16))
    assert half.parameter.dtype == torch.float32
    assert half.parameter.device.type == "cpu"
    assert half.history["loss"].iloc[-1] == pytest.approx(exact.history["loss"].iloc[-1], rel=0.05)


@pytest.mark.parametrize("method", METHODS)
def test_a_training_goes_on_where_it_stopped(method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is stored of it is on the CPU, and comes back to the GPU."""
    how: dict[str, Any] = {"steps": 7, "validate_every": 2, "batch_size": 2, **Q}
    model, take, left = there("llama-gqa"), training._take, [5]
    whole = METHODS[method](model, **how)

    def stopping(*given: Any) -> None:
        if left[0] == 0:
            raise KeyboardInterrupt
        left[0] -= 1
        take(*given)

    monkeypatch.setattr(training, "_take", stopping)
    with pytest.raises(KeyboardInterrupt):
        METHODS[method](model, out=tmp_path / "run", **how)
    monkeypatch.setattr(training, "_take", take)
    again = METHODS[method](model, out=tmp_path / "run", **how)
    assert_same(again.parameter, whole.parameter, method, partial(near, "llama-gqa"))
    assert untouched(model)


def test_a_model_is_loaded_to_the_gpu_and_what_it_gives_is_the_cpu_s_too(tmp_path: Path) -> None:
    folder = saved(tmp_path / "model", "llama-gqa")
    one, half = load_model(folder), load_model(folder, dtype="auto")
    assert {weights.device.type for weights in one.parameters()} == {"cuda"}
    assert {weights.dtype for weights in half.parameters()} == {torch.bfloat16}
    spread = load_model(folder, device_map="auto")
    assert {weights.device.type for weights in spread.parameters()} == {"cuda"}
    how: dict[str, Any] = {"methods": ["locos", "dla"], "teacher_forced": True, **Q}
    found = lh.score_heads(one, trials(), out=tmp_path / "run", **how)
    files = {file: file.stat().st_mtime_ns for file in (tmp_path / "run").rglob("*.safetensors")}
    here = lh.score_heads(load_model(folder, device="cpu"), trials(), out=tmp_path / "run", **how)
    assert {file: file.stat().st_mtime_ns for file in files} == files  # Read, not run again: the weights are the same.
    for name, scores in found.items():
        assert torch.equal(here[name].per_trial, scores.per_trial)
        scores.save(tmp_path / f"{name}.json")
        assert torch.equal(lh.HeadScores.load(tmp_path / f"{name}.json").values, scores.values)
    again = lh.score_heads(spread, trials(), **how)
    for name, scores in found.items():
        assert_same(again[name].per_trial, scores.per_trial, name, partial(near, "llama-gqa"))


def test_activations_of_the_gpu_are_stored_and_used_on_the_cpu(tmp_path: Path) -> None:
    model, here = there("llama-gqa"), tiny("llama-gqa")
    lh.mean_activations(model, trials(2, first=7), **Q).save(tmp_path / "means.safetensors")
    means = lh.MeanActivations.load(tmp_path / "means.safetensors")
    tokens = random_trial().tokens[None]
    with torch.no_grad():
        with lh.ablate(here, HEADS, kind="mean", reference=lh.mean_activations(here, trials(2, first=7), **Q)):
            wanted = here(tokens)
        for each in (model, here):
            with lh.ablate(each, HEADS, kind="mean", reference=means):
                found = each(tokens.to(each.W_U.device)).cpu()
            assert_same(found, wanted, bound=partial(near, "llama-gqa"))


@torch.no_grad()
def test_steering_on_the_gpu_is_that_of_the_cpu() -> None:
    tokens, found = random_trial().tokens[None], []
    for model in (tiny("llama-gqa"), there("llama-gqa")):
        with lh.steer(model, HEADS, vectors(model), factor=2.0, span=(3, 9)):
            found.append(model(tokens.to(model.W_U.device)).cpu())
        assert untouched(model)
    assert_same(found[1], found[0], bound=partial(near, "llama-gqa"))


@pytest.mark.parametrize("how", ["zero", "remove"])
@torch.no_grad()
def test_a_model_on_the_gpu_is_pruned_as_on_the_cpu(how: Any, tmp_path: Path) -> None:
    model, heads = there("llama-gqa"), ["L0H0", "L0H1", "L1H0", "L1H1", "L2H2", "L2H3"]
    found = load_model(lh.prune(model, heads, tmp_path / "gpu", how=how).path, device="cpu")
    wanted = load_model(lh.prune(tiny("llama-gqa"), heads, tmp_path / "cpu", how=how).path, device="cpu")
    tokens = random_trial().tokens[None]
    assert torch.equal(found(tokens), wanted(tokens))
    assert untouched(model)


def test_the_explorer_shows_what_it_shows_on_the_cpu() -> None:
    pytest.importorskip("anywidget")
    here, found = (
        lh.explore(model, trials(), rankings={"known": SCORES}) for model in (tiny("llama-gqa"), there("llama-gqa"))
    )
    assert found.payload.keys() == here.payload.keys()
    for kind in ("mean", "zero"):
        assert found.run(kind).keys() == here.run(kind).keys()


def test_the_command_runs_there_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    assert run("check", str(saved(tmp_path / "model", "llama-gqa")), monkeypatch=monkeypatch) == 0
    assert torch.cuda.max_memory_allocated() > before


def test_what_a_run_costs_there_is_measured(tmp_path: Path) -> None:
    machine = this_machine(shape_of(str(saved(tmp_path / "model", "llama-gqa"))), torch.bfloat16, "cuda")
    assert min(machine.products, machine.attention, machine.bandwidth) > 0
