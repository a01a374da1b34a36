"""Two threads on one model: the numbers of one after the other, or a refusal."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch

import lens_heads as lh
from lens_heads.heads.scores import HeadScores
from lens_heads.interventions.ablate import ablate
from lens_heads.interventions.activations import mean_activations
from lens_heads.model.forward import fast_attention
from lens_heads.model.hooks import has_hooks, hooked
from lens_heads.model.modes import evaluating
from lens_heads.runs.identity import ModelIdentity
from tests import zoo
from tests.attack.held import refused
from tests.conftest import random_trial

TRIALS = [random_trial(i, n=12 + i) for i in range(3)]
RANKED = HeadScores.from_trials("mine", torch.arange(12.0).reshape(1, 3, 4), ["elsewhere"], model=ModelIdentity("gpt2"))
Z = "blocks.0.attn.hook_z"


@pytest.fixture(scope="module")
def model() -> Any:
    return zoo.bridge("gpt2", n_ctx=64)


def ablated(model: Any, heads: list[str]) -> Any:
    with ablate(model, heads, kind="zero"):
        return lh.evaluate(model, TRIALS, max_new_tokens=2, progress=False).metrics["logprob"]


WORKS: dict[str, Callable[[Any], Any]] = {
    "score_heads": lambda m: (
        lh.score_heads(m, TRIALS, ["locos"], teacher_forced=True, progress=False)["locos"].per_trial
    ),
    "patch_heads": lambda m: lh.patch_heads(m, TRIALS, progress=False).per_trial,
    "evaluate": lambda m: lh.evaluate(m, TRIALS, max_new_tokens=2, progress=False).metrics["logprob"],
    "mean_activations": lambda m: mean_activations(m, TRIALS, progress=False).z,
    "check": lambda m: torch.tensor([row.error for row in lh.check_model(m, tokens=TRIALS[0].tokens).checks]),
    "attribution_patch": lambda m: lh.attribution_patch(m, TRIALS, progress=False, positions="all").per_trial,
    "ablation_curve": lambda m: torch.tensor(
        lh.ablation_curve(m, TRIALS, RANKED, ks=(1,), kind="zero", controls=(), generate=False, progress=False)
        .frame["value"]
        .to_numpy()
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("other", ["patch_heads", "ablation_curve"])
@pytest.mark.parametrize("name", WORKS)
def test_two_calls_at_once_give_what_they_give_in_turn(model: Any, name: str, other: str) -> None:
    works = [WORKS[name], WORKS[other]]
    alone = [work(model) for work in works]
    with ThreadPoolExecutor(2) as pool:
        together = list(pool.map(lambda work: work(model), works))
    for found, wanted in zip(together, alone, strict=True):
        torch.testing.assert_close(found, wanted, rtol=0, atol=0)
    assert not has_hooks(model)


@pytest.mark.parametrize("name", WORKS)
def test_a_model_in_a_block_of_another_thread_is_refused(model: Any, name: str) -> None:
    with ThreadPoolExecutor(1) as pool, ablate(model, "L0H1", kind="zero"):
        refused(lambda: pool.submit(WORKS[name], model).result(), "leave that block first, or load the model again")
    assert not has_hooks(model)


BLOCKS: dict[str, Callable[[Any], Any]] = {
    "ablate": lambda model: ablate(model, "L0H1", kind="zero"),
    "patch": lambda model: lh.patch(model, "L0H1", TRIALS[0]),
    "hooked": lambda model: hooked(model, [(Z, lambda x, hook: None)]),
    "evaluating": evaluating,
    "fast_attention": fast_attention,
}


@pytest.mark.parametrize("there", BLOCKS)
@pytest.mark.parametrize("here", ["ablate", "patch", "hooked", "evaluating"])
def test_a_block_refuses_other_threads_and_admits_its_own(model: Any, here: str, there: str) -> None:
    def enter() -> None:
        with BLOCKS[there](model):
            pass

    with ThreadPoolExecutor(1) as pool, BLOCKS[here](model):
        enter()
        refused(lambda: pool.submit(enter).result(), "the model is in a `with` block of thread 'MainThread'")
        assert has_hooks(model) == (here in ("ablate", "patch", "hooked"))
    assert not has_hooks(model)


def test_another_model_is_free(model: Any) -> None:
    other = zoo.bridge("gpt2", n_ctx=64)
    with ThreadPoolExecutor(1) as pool, ablate(model, "L0H1", kind="zero"):
        assert not pool.submit(has_hooks, other).result()


def test_a_second_bridge_over_the_same_weights_is_the_same_model() -> None:
    one = zoo.bridge("gpt2", n_ctx=64)
    other = zoo.bridge("gpt2", hf=one.original_model)
    with ThreadPoolExecutor(1) as pool, evaluating(one):
        refused(lambda: pool.submit(has_hooks, other).result(), "leave that block first")


def test_a_thread_waits_for_a_call_of_another(model: Any) -> None:
    """The first thread is held inside a call by its own metric; the second finds its model as if alone."""
    inside, go = threading.Event(), threading.Event()

    def slow(logits: Any, gold: Any) -> Any:
        inside.set()
        go.wait(10)
        return logits[:, 0, 0]

    alone = WORKS["evaluate"](model)
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(lambda: lh.patch_heads(model, TRIALS[0], metric=slow, progress=False))
        inside.wait(10)
        second = pool.submit(WORKS["evaluate"], model)
        go.set()
        torch.testing.assert_close(second.result(), alone, rtol=0, atol=0)
        assert first.result().values.shape == (3, 4)


def test_a_call_that_failed_in_another_thread_frees_the_model(model: Any) -> None:
    def fail(x: Any, hook: Any) -> None:
        raise KeyError("mine")

    def work() -> None:
        with hooked(model, [(Z, fail)]):
            model(TRIALS[0].tokens[None])

    with ThreadPoolExecutor(1) as pool:
        failed = pool.submit(work)
        assert isinstance(failed.exception(), KeyError)
        assert not has_hooks(model)
