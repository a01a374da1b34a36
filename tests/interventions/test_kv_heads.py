"""Kv heads, as the best of a table of gates are, are never taken for query heads of the same numbers."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch

import lens_heads as lh
from lens_heads.evidence.streaming import streaming_cache
from lens_heads.model.hooks import has_hooks, hooked
from tests.conftest import random_trial, tiny

GATES = lh.HeadScores.from_trials(
    "gates", torch.tensor([[[0.1, 0.9], [0.2, 0.8], [0.3, 0.25]]]), ["training"], unit="kv_head"
)
"""The second kv head of the first two layers is most open."""


def test_kv_heads_are_refused_where_query_heads_are_expected() -> None:
    """And accepted where a kv head is read by one query head, which it then is."""
    best, model = GATES.top(1), tiny("llama-gqa")
    refused = r"L0K1 is a kv head, but query heads are expected: pass lens_heads\.units\.query_heads\(heads, 2\)"
    vectors = lh.HeadVectors(torch.ones(3, 4, 8))
    trial = random_trial(0)
    calls: list[Any] = [
        lambda: lh.ablate(model, best, kind="zero").__enter__(),
        lambda: lh.steer(model, best, vectors).__enter__(),
        lambda: lh.patch(model, best, trial).__enter__(),
        lambda: lh.prune(model, best, "never-written"),
        lambda: lh.contrast(model, trial, best, progress=False, kind="zero"),
        lambda: lh.influence(model, ["a text"], best, progress=False, kind="uniform"),
        lambda: lh.look(model, trial, heads=best),
        lambda: lh.describe(model, best, text="a text", progress=False),
        lambda: lh.inspection.provenance(model, [trial], best),
        lambda: lh.path_patch(model, [trial], best, "logits"),
    ]
    for call in calls:
        with pytest.raises(ValueError, match=refused):
            call()
    assert not has_hooks(model)
    alike = tiny("gpt2")
    with torch.no_grad(), lh.ablate(alike, best, kind="zero"):
        found = alike(trial.tokens[None])
    with torch.no_grad(), lh.ablate(alike, ["L0H1"], kind="zero"):
        assert torch.equal(found, alike(trial.tokens[None]))


def test_kv_heads_are_ablated_as_the_query_heads_that_read_them() -> None:
    model, trial = tiny("llama-gqa"), random_trial(0)
    heads = lh.units.query_heads(GATES.top(2), 2)
    assert list(map(str, heads)) == ["L0H2", "L0H3", "L1H2", "L1H3"]
    with lh.ablate(model, heads, kind="zero"):
        found = lh.evaluate(model, trial, generate=False, progress=False).mean("logprob")
    by_value = []
    for layer in (0, 1):  # The same, by values of zero, which all their readers average.

        def zero(v: torch.Tensor, hook: Any) -> torch.Tensor:
            v = v.reshape(*v.shape[:2], 2, -1).clone()
            v[:, :, 1] = 0
            return v.reshape(*v.shape[:2], -1)

        by_value.append((f"blocks.{layer}.attn.hook_v", zero))
    tokens = torch.cat([trial.tokens, trial.answer_tokens[:-1]])[None]
    with torch.no_grad(), hooked(model, by_value):
        rows = model(tokens)[0, len(trial) - 1 :].log_softmax(-1)
    expected = rows[range(len(trial.answer_tokens)), trial.answer_tokens].mean()
    assert found == pytest.approx(float(expected), abs=1e-5)


def test_query_heads_in_place_of_kv_heads_are_warned_of() -> None:
    model = tiny("llama-gqa")
    with (
        pytest.warns(UserWarning, match=r"L0H1 are taken for kv heads .*: pass units\.to_kv_heads\(scores, 2\)"),
        streaming_cache(model, [lh.Head(0, 1)]),
    ):
        pass
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for heads in (GATES.top(1), ["L0K1"]):
            with streaming_cache(model, heads) as cache:
                assert cache is not None
        with streaming_cache(tiny("gpt2"), [lh.Head(0, 1)]):
            pass


def test_razor_heads_are_kv_heads() -> None:
    values = torch.rand(2, 3, 4, generator=torch.Generator().manual_seed(0))
    induction, echo = (lh.HeadScores.from_trials(name, values[:, :, :], ["a", "b"]) for name in ("induction", "echo"))
    assert {head.unit for head in lh.razor_attention_heads(induction, echo, group=2)} == {"kv_head"}
