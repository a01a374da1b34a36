"""Methods of needles that run only if named: the parts of LOCOS, and Task-KV; each equals a plain loop."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import lens_heads as lh
from lens_heads.scoring.scorers import NAMED_SCORERS, SCORERS
from tests import reference, zoo
from tests.conftest import random_trial, tiny


def test_the_parts_of_locos_match_a_loop_and_sum_to_the_needle(arch: str, model: Any) -> None:
    trial = random_trial(needle=(5, 14), answer=2)
    names = ["locos", "locos_name", "locos_beside", "locos_rest"]
    found = lh.score_heads(model, trial, names, teacher_forced=True, progress=False)
    steps = trial.answer_tokens.tolist()
    plain = reference.Plain(zoo.hf_model(arch), torch.cat([trial.tokens, trial.answer_tokens[:-1]]))
    named = [j for j in range(5, 14) if int(trial.tokens[j]) in steps]
    beside = [j for j in range(5, 14) if j not in named and any(abs(j - i) <= 2 for i in named)]
    parts = {
        "locos_name": named,
        "locos_beside": beside,
        "locos_rest": [j for j in range(5, 14) if j not in named + beside],
    }
    assert all(parts.values())
    for layer, head in ((0, 0), (1, 3), (2, 2)):
        for name, places in parts.items():
            expected = 0.0
            for i, token in enumerate(steps):
                row = len(trial) - 1 + i
                u = plain.direction(layer, row, token, False)
                expected += sum(reference.phi(plain, layer, head, row, j, u) for j in places) / len(steps)
            assert float(found[name].values[layer, head]) == pytest.approx(expected, abs=2e-5, rel=2e-4), name


def test_task_kv_matches_a_loop(arch: str, model: Any) -> None:
    trial = random_trial(n=50)
    found = lh.score_heads(model, trial, ["task_kv", "task_kv_write", "headkv"], teacher_forced=True, progress=False)
    plain = reference.Plain(zoo.hf_model(arch), trial.tokens)
    for layer in range(3):
        read = []
        for head in range(4):
            c = [sum(float(plain.A[layer][head][t, j]) for t in range(18, 50)) / 32 for j in range(50)]
            read.append(sum(c[j] * plain.value(layer, head, j) for j in range(50)))
        write = [read[head] @ plain.W_O(layer, head) for head in range(4)]
        for name, vectors in (("task_kv", read), ("task_kv_write", write)):
            mean = sum(vectors) / 4
            for head in range(4):
                expected = float((vectors[head] - mean).norm())
                assert float(found[name].values[layer, head]) == pytest.approx(expected, abs=2e-5, rel=2e-4)
    alone = lh.score_heads(model, trial, ["headkv"], teacher_forced=True, progress=False)["headkv"]
    torch.testing.assert_close(found["headkv"].values, alone.values, msg="it still sees eight rows")


def test_only_the_most_attended_keys_are_read() -> None:
    model, trial = tiny("gpt2"), random_trial(n=300)
    found = lh.score_heads(model, trial, ["task_kv"], teacher_forced=True, progress=False)["task_kv"]
    plain = reference.Plain(zoo.hf_model("gpt2"), trial.tokens)
    read = []
    for head in range(4):
        c = plain.A[1][head][268:].mean(0)
        kept = sorted(range(300), key=lambda j, c=c: -float(c[j]))[:256]
        read.append(sum(float(c[j]) * plain.value(1, head, j) for j in kept))
    assert found["L1H2"] == pytest.approx(float((read[2] - sum(read) / 4).norm()), abs=2e-5, rel=2e-4)


def test_they_are_not_among_all_methods(gqa: Any) -> None:
    assert set(lh.score_heads(gqa, random_trial(), teacher_forced=True, progress=False)) == set(SCORERS)
    assert not set(SCORERS) & set(NAMED_SCORERS)
