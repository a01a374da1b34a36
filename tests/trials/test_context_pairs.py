"""Context divergence: equals a plain loop on every attention variant, and has its analytic values on planted heads."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import pytest
import torch

import lens_heads as lh
from lens_heads.model.hooks import has_hooks
from tests import planted, reference, zoo
from tests.conftest import random_trial, tiny


def writes(arch: str, prompt: torch.Tensor, answer: torch.Tensor) -> list[list[list[torch.Tensor]]]:
    """w[layer][head][row] at the answer's rows, by sums over keys."""
    tokens = torch.cat([prompt, answer[:-1]])
    plain = reference.Plain(zoo.hf_model(arch), tokens)
    rows = range(len(prompt) - 1, len(tokens))
    return [
        [
            [
                sum(plain.A[layer][head][t, s] * plain.value(layer, head, s) for s in range(t + 1))
                @ plain.W_O(layer, head)
                for t in rows
            ]
            for head in range(plain.n_heads)
        ]
        for layer in range(len(plain.A))
    ]


def test_every_score_matches_a_loop_written_from_the_formula(arch: str, model: Any) -> None:
    trial = random_trial(seed=2)
    found = lh.score_heads(model, lh.context_pairs(trial), progress=False)
    without = torch.cat([trial.tokens[:7], trial.tokens[11:]])
    one, other = (writes(arch, prompt, trial.answer_tokens) for prompt in (trial.tokens, without))
    for layer in range(3):
        for head in range(4):
            pairs = list(zip(one[layer][head], other[layer][head], strict=True))
            apart = [float((a - b).norm()) for a, b in pairs]
            sizes = [float(a.norm() + b.norm()) / 2 for a, b in pairs]
            cosine = [1 - float(a @ b / (a.norm() * b.norm())) for a, b in pairs]
            expected = {
                "": sum(apart) / 3,
                "_relative": sum(x / size for x, size in zip(apart, sizes, strict=True)) / 3,
                "_cosine": sum(cosine) / 3,
            }
            for kind, value in expected.items():
                got = float(found[f"context_divergence{kind}"].values[layer, head])
                assert got == pytest.approx(value, abs=3e-5, rel=3e-4), (kind, layer, head)
    assert not has_hooks(model)


@pytest.mark.slow
def test_planted_readers_of_the_context_stand_out() -> None:
    model = planted.model()
    found = lh.score_heads(
        model, lh.context_pairs(planted.trials(8), without="filler"), ["context_divergence"], progress=False
    )
    scores = found["context_divergence"]
    writers = {planted.COPIER, planted.WRITER, planted.SUPPRESSOR}
    assert set(scores.top(3)) == writers
    assert scores[planted.DECOY] == 0
    with pytest.raises(ValueError, match=rf"{planted.DECOY} writes nothing at answer row 0 in either run"):
        lh.score_heads(model, lh.context_pairs(planted.trials(2)), ["context_divergence_relative"], progress=False)


@pytest.mark.slow
def test_equal_runs_have_no_divergence_and_scaled_outputs_scale_it(gqa: Any) -> None:
    trial = random_trial()
    same = lh.trials.ContextPair(trial.tokens, trial.tokens, trial.answer_tokens, "same")
    found = lh.score_heads(gqa, lh.context_pairs(same), progress=False)
    for scores in found.values():
        torch.testing.assert_close(scores.values, torch.zeros(3, 4), atol=1e-6, rtol=0)
    hf = copy.deepcopy(zoo.hf_model("llama-gqa"))
    with torch.no_grad():
        hf.model.layers[2].self_attn.o_proj.weight.mul_(3)
    larger = lh.score_heads(zoo.bridge("llama-gqa", hf=hf), lh.context_pairs(trial), progress=False)
    before = lh.score_heads(gqa, lh.context_pairs(trial), progress=False)
    by_three = {"context_divergence": 3.0, "context_divergence_relative": 1.0, "context_divergence_cosine": 1.0}
    for name, factor in by_three.items():
        torch.testing.assert_close(larger[name].values[2], factor * before[name].values[2], atol=1e-5, rtol=1e-4)


def test_filler_keeps_the_length_and_context_is_all_before_the_question() -> None:
    model = tiny("llama-gqa")
    trial = lh.Trial(
        id="a", question="Who?", answer="Ann", haystack="x y z.", needle="Ann did.", template="{haystack}\n{question}"
    )
    shape = lh.head_geometry(model)
    pairs = {
        kind: lh.context_pairs(trial, without=kind).encode(model.tokenizer, shape)[0]
        for kind in ("needle", "filler", "context")
    }
    whole = pairs["needle"].tokens
    text = {kind: model.tokenizer.decode(one.without) for kind, one in pairs.items()}
    assert len(pairs["filler"].without) == len(whole)
    assert "Ann did." not in text["needle"] + text["filler"] + text["context"]
    assert "x y z." in text["needle"]
    bare = replace(trial, haystack="", needle="").encode(model.tokenizer)
    assert torch.equal(pairs["context"].without, bare.tokens)
    assert text["context"].endswith("\nWho?")
    framed = replace(trial, template="Text: {haystack}. Question: {question}")
    (found,) = lh.context_pairs(framed, without="context").encode(model.tokenizer, shape)
    assert model.tokenizer.decode(found.without).endswith("Text: . Question: Who?")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda t: lh.context_pairs([]), "there are no pairs"),
        (lambda t: lh.context_pairs(t, without="nothing"), "without='nothing': use one of needle, filler, context"),
        (
            lambda t: lh.score_heads(tiny("gpt2"), lh.context_pairs(t, without="context")),
            "trial random-0 is in tokens, where its context begins is not known",
        ),
        (
            lambda t: lh.score_heads(tiny("gpt2"), lh.context_pairs(lh.Trial("b", "Who?", "Ann"), without="context")),
            "trial b has no haystack and no needle to leave out",
        ),
        (
            lambda t: lh.score_heads(tiny("gpt2"), lh.context_pairs(replace(t, needle=None))),
            "trial random-0 has no needle to leave out",
        ),
        (lambda t: lh.trials.ContextPair([1], [], [3], "x"), "pair x: without is empty"),
        (lambda t: lh.score_heads(tiny("gpt2"), lh.context_pairs([t, t])), "two trials have the id 'random-0'"),
        (
            lambda t: lh.score_heads(tiny("gpt2"), lh.context_pairs(lh.trials.ContextPair([1, 400], [1], [3], "x"))),
            "pair x, with context: token id 400",
        ),
    ],
)
def test_what_does_not_fit_is_named(call: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call(random_trial())
