"""Methods of needles that run only if named: the parts of LOCOS, and Task-KV; each equals a plain loop."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch

import lens_heads as lh
from lens_heads.inspection.anatomy import literalness
from lens_heads.ranking.one_pass import capture
from lens_heads.ranking.one_pass.scorers import NAMED_SCORERS, SCORERS
from lens_heads.trials.encoded import EncodedTrial
from lens_heads.trials.tokenizing import space_twin
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


def test_task_kv_ranks_inside_layers(tmp_path: Path) -> None:
    """Values ten times as large in one layer, undone by its output projection, are the same model and the same ranking."""
    trials = [random_trial(seed=seed, n=50) for seed in range(3)]
    options: dict[str, Any] = {"teacher_forced": True, "progress": False}
    hf = zoo.hf_model("llama-gqa")
    before = lh.score_heads(zoo.bridge("llama-gqa", hf=hf), trials, ["task_kv"], **options)["task_kv"]
    scaled = zoo.hf_model("llama-gqa")
    with torch.no_grad():
        scaled.model.layers[1].self_attn.v_proj.weight.mul_(16)
        scaled.model.layers[1].self_attn.o_proj.weight.div_(16)
    after = lh.score_heads(zoo.bridge("llama-gqa", hf=scaled), trials, ["task_kv"], **options)["task_kv"]
    torch.testing.assert_close(after.values, before.values * torch.tensor([[1], [16], [1]]), rtol=1e-4, atol=1e-5)
    assert after.ranking() == before.ranking()
    for k in range(4):
        layers = sorted(head.layer for head in before.top(3 * k))
        assert layers == sorted([*range(3)] * k)
    for layer in range(3):
        inside = [head.head for head in before.ranking() if head.layer == layer]
        assert inside == before.values[layer].argsort(descending=True).tolist()
    assert lh.HeadScores.load(before.save(tmp_path / "s.json")).ranking() == before.ranking()


def test_they_are_not_among_all_methods(gqa: Any) -> None:
    assert set(lh.score_heads(gqa, random_trial(), teacher_forced=True, progress=False)) == set(SCORERS)
    assert not set(SCORERS) & set(NAMED_SCORERS)


def test_the_authors_rule_of_copying_matches_a_loop(arch: str, model: Any) -> None:
    """No two tokens of this tokenizer differ by a space, so that both rules are the same."""
    trial = random_trial()
    found = lh.score_heads(model, trial, ["copy", "copy_tokens"], teacher_forced=True, progress=False)
    steps = trial.answer_tokens.tolist()
    plain = reference.Plain(zoo.hf_model(arch), torch.cat([trial.tokens, trial.answer_tokens[:-1]]))
    expected = reference.score("copy", plain, len(trial), trial.needle, steps, [0, 1, 2])
    for method in found:
        torch.testing.assert_close(found[method].values, expected)


def test_a_copy_may_differ_by_the_space_before_it(gqa: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every token's twin is its neighbour here. The heads that look at the needle copy; by the authors' rule, none does."""
    monkeypatch.setattr(capture, "space_twin", lambda tokenizer, token: token ^ 1)
    base = random_trial(n=40, needle=(4, 20))
    prompt = base.tokens & ~1
    trial = EncodedTrial(prompt, base.needle, "x", prompt[4:7] | 1, "chat")
    names = ["copy", "copy_tokens", "locos_name", "locos_beside", "locos_rest", "locos"]
    found = lh.score_heads(gqa, trial, names, teacher_forced=True, null_spans=2, progress=False)
    plain = reference.Plain(zoo.hf_model("llama-gqa"), torch.cat([trial.tokens, trial.answer_tokens[:-1]]))
    steps, expected = trial.answer_tokens.tolist(), torch.zeros(3, 4)
    for layer in range(3):
        for head in range(4):
            for i, token in enumerate(steps):
                row = plain.A[layer][head, 39 + i, : 40 + i]
                at = int(row.argmax())
                expected[layer, head] += (4 <= at < 20 and int(plain.tokens[at]) in (token, token ^ 1)) / 16
    assert expected.max() > 0
    torch.testing.assert_close(found["copy"].values, expected)
    assert not found["copy_tokens"].values.any()
    assert found["locos_name"].values.any(), "the needle names the answer"
    assert found["copy"].null is not None
    literal = literalness(gqa, [trial], teacher_forced=True, progress=False)
    assert literal.values.max() > 0


class Spaced:
    """A tokenizer that knows words with and without the space before them."""

    words: ClassVar = {"Oslo": 1, " Oslo": 2, " ": 3, ",": 4, "half": 5, "\ufffd": 6, " \ufffd": 7}

    def __call__(self, text: str, add_special_tokens: bool = True) -> Any:
        return type("Encoding", (), {"input_ids": [self.words[text]] if text in self.words else [8, 9]})

    def decode(self, ids: list[int]) -> str:
        return "".join(next((word for word, token in self.words.items() if token == i), "?") for i in ids)


def test_twins_by_the_space_before_them() -> None:
    twins = {token: space_twin(Spaced(), token) for token in range(8)}
    assert twins == {1: 2, 2: 1} | dict.fromkeys((0, 3, 4, 5, 6, 7), -1)
    assert space_twin(Spaced(), -1) == space_twin(None, 1) == -1
