"""On a model whose heads are known, LOCOS finds what writes the answer and the attention scores do not."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import lens_heads as lh
from lens_heads.heads.scores import HeadScores
from lens_heads.model.geometry import head_geometry
from lens_heads.model.hooks import hooked
from tests import planted, zoo
from tests.planted import COPIER, DECOY, STRENGTH, SUPPRESSOR, WRITER


@pytest.fixture(scope="module")
def model() -> Any:
    return planted.model()


@pytest.fixture(scope="module")
def scores(model: Any) -> dict[str, HeadScores]:
    return lh.score_heads(model, planted.trials(), teacher_forced=True, progress=False)


def logits(model: Any, corrupt: bool = False) -> torch.Tensor:
    """[trial, d_vocab] at the row that produces the answer."""
    tokens = torch.stack([trial.tokens for trial in planted.trials(corrupt=corrupt)])
    with torch.no_grad():
        return model(tokens)[:, -1]


def gold() -> torch.Tensor:
    return torch.stack([trial.answer_tokens[0] for trial in planted.trials()])


def test_the_model_answers_with_the_needle_and_not_without(model: Any) -> None:
    assert torch.equal(logits(model).argmax(-1), gold())
    clean, corrupt = (logits(model, c).log_softmax(-1)[range(8), gold()] for c in (False, True))
    assert (clean > -1).all()
    assert (corrupt < -2).all()


def test_planted_heads_attend_as_described(model: Any) -> None:
    trials = planted.trials()
    seen: dict[int, torch.Tensor] = {}
    hooks = [(f"blocks.{n}.attn.hook_pattern", lambda p, hook, n=n: seen.__setitem__(n, p[:, :, -1])) for n in range(2)]
    with torch.no_grad(), hooked(model, hooks):
        model(torch.stack([trial.tokens for trial in trials]))
    for i, trial in enumerate(trials):
        start, _ = trial.needle  # type: ignore[misc]
        for head, at in ((COPIER, 3), (DECOY, 3), (SUPPRESSOR, 3), (WRITER, 1)):
            assert seen[head.layer][i, head.head, start + at] > 0.999
        for layer, head in ((0, 0), (0, 2), (1, 1), (1, 3)):
            torch.testing.assert_close(seen[layer][i, head], torch.full((len(trial),), 1 / len(trial)))


def test_locos_is_what_each_planted_head_writes(scores: dict[str, HeadScores]) -> None:
    for head, strength in STRENGTH.items():
        assert scores["locos"][head] == pytest.approx(strength, abs=6e-3)
        assert scores["dla"][head] == pytest.approx(strength, abs=6e-3)


def test_locos_ranks_writers_first_the_suppressor_last_and_the_decoy_at_nothing(scores: dict[str, HeadScores]) -> None:
    locos = scores["locos"]
    assert locos.top(2) == [COPIER, WRITER]
    assert locos.bottom(1) == [SUPPRESSOR]
    assert locos[DECOY] == 0.0
    others = [locos[head] for head in locos.ranking() if head not in STRENGTH]
    assert max(abs(score) for score in others) < 0.01


def test_attention_alone_cannot_tell_who_writes(scores: dict[str, HeadScores]) -> None:
    for method in ("attention_spatial", "attention_mass", "headkv"):
        for head in STRENGTH:
            assert scores[method][head] > 0.99
        assert set(scores[method].top(4)) == set(STRENGTH)
        assert scores[method][SUPPRESSOR] == pytest.approx(scores[method][COPIER], abs=1e-3)


def test_copy_scores_the_decoy_and_the_suppressor_and_misses_the_writer(scores: dict[str, HeadScores]) -> None:
    copy = scores["copy"]
    assert set(copy.top(3)) == {COPIER, DECOY, SUPPRESSOR}
    assert copy[COPIER] == copy[DECOY] == copy[SUPPRESSOR] == pytest.approx(1 / 9)
    assert copy[WRITER] == 0.0


def test_decoding_gives_the_same_and_every_trial_passes(model: Any, scores: dict[str, HeadScores]) -> None:
    decoded = lh.score_heads(model, planted.trials(), ["locos", "headkv"], progress=False, max_new_tokens=5)
    assert decoded["locos"].outcomes == {"passed": 8}
    for trial, record in zip(planted.trials(), decoded["locos"].meta["trials"], strict=True):
        assert (record["text"], record["answer_steps"]) == (trial.answer, [0])
    for method in ("locos", "headkv"):
        torch.testing.assert_close(decoded[method].per_trial, scores[method].per_trial, atol=1e-6, rtol=0)


def test_exact_keeps_the_order_and_the_signs(model: Any) -> None:
    exact = lh.score_heads(model, planted.trials(), ["locos"], teacher_forced=True, direction="exact", progress=False)
    assert exact["locos"].top(2) == [COPIER, WRITER]
    assert exact["locos"].bottom(1) == [SUPPRESSOR]
    # One scale per row: contributions keep their proportions.
    assert exact["locos"][WRITER] / exact["locos"][COPIER] == pytest.approx(0.8, abs=1e-2)


@pytest.mark.parametrize("head", STRENGTH)
def test_removing_a_head_changes_the_answer_by_what_it_writes(model: Any, head: Any) -> None:
    """The ground truth is causal: W_O is the only road from a head to the logits."""

    def zero(z: torch.Tensor, hook: Any) -> torch.Tensor:
        z = z.clone()
        z[:, :, head.head] = 0
        return z

    norms = []
    name = "blocks.1.hook_resid_post"
    with hooked(model, [(name, lambda x, hook: norms.append(x[:, -1].pow(2).mean(-1).sqrt()))]):
        whole = logits(model)
        with hooked(model, [(f"blocks.{head.layer}.attn.hook_z", zero)]):
            without = logits(model)
    picked = (whole[range(8), gold()] * norms[0], without[range(8), gold()] * norms[1])
    torch.testing.assert_close(picked[0] - picked[1], torch.full((8,), STRENGTH[head]), atol=2e-2, rtol=0)


def test_the_shape_is_the_documented_one(model: Any) -> None:
    shape = head_geometry(model)
    assert (shape.n_layers, shape.n_heads, shape.d_head, shape.d_model) == (2, 4, 32, 2 * zoo.VOCAB)
