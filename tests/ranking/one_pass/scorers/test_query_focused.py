"""Query-focused scores: parity with loops written from the formulas, and hand-made attention with known answers."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import ndcg_score
from torch import Tensor

import lens_heads as lh
from lens_heads.model.hooks import has_hooks
from lens_heads.ranking.one_pass.layer_view import DocumentView
from lens_heads.ranking.one_pass.scorers import DOCUMENT_SCORERS
from lens_heads.ranking.one_pass.scorers.core import core
from lens_heads.ranking.one_pass.scorers.qr import qr, qr_ndcg
from lens_heads.ranking.one_pass.scorers.summed_attention import summed_attention
from tests import reference, zoo
from tests.conftest import tiny

DOCUMENTS = ("the cat sat", "a dog ran far away", "x", "rain fell on the roof all night", "no news")


def trial(gold: tuple[str, ...] = ("2",), query: str = "who ran?", id: str = "one") -> lh.DocumentTrial:
    return lh.DocumentTrial(id=id, query=query, documents=DOCUMENTS, gold=gold)  # type: ignore[arg-type]  # texts are converted


def by_hand(arch: str, asked: lh.DocumentTrial) -> dict[str, Tensor]:
    """Every method on full eager forwards, token by token."""
    encoded = asked.encode(tiny(arch).tokenizer)
    plain = [reference.Plain(zoo.hf_model(arch), tokens) for tokens in (encoded.tokens, encoded.null_tokens)]
    layers, heads = len(plain[0].A), plain[0].n_heads
    found = {name: torch.zeros(layers, heads) for name in DOCUMENT_SCORERS}
    for layer in range(layers):
        for head in range(heads):
            a, a0 = (
                [sum(rows) / len(rows) for rows in p.A[layer][head, encoded.ask :, : encoded.ask].T.tolist()]
                for p in plain
            )
            scores, summed = [], []
            for (start, end), tag in zip(encoded.documents, encoded.tags, strict=True):
                c = [a[j] - a0[j] for j in range(start, end)]
                mean = sum(c) / len(c)
                std = math.sqrt(sum((x - mean) ** 2 for x in c) / (len(c) - 1))
                scores.append(sum(x for x in c if x > mean - 2 * std))
                summed.append(sum(a[j] for j in range(start + tag, end)))
            found["qr"][layer, head] = sum(scores[i] for i in encoded.gold)
            relevance = [float(i in encoded.gold) for i in range(len(scores))]
            found["qr_ndcg"][layer, head] = ndcg_score([relevance], [scores], k=10)
            others = [math.exp(summed[i] / 0.01) for i in range(len(summed)) if i not in encoded.gold]
            golds = [math.exp(summed[i] / 0.01) for i in encoded.gold]
            found["core"][layer, head] = sum(g / (g + sum(others)) for g in golds) / len(golds)
            found["summed_attention"][layer, head] = sum(
                a[j] for i in encoded.gold for j in range(*encoded.documents[i])
            )
    return found


@pytest.mark.parametrize("gold", [("2",), ("4", "1")])
def test_every_method_matches_a_loop_written_from_the_formula(arch: str, model: Any, gold: tuple[str, ...]) -> None:
    scores = lh.score_heads(model, [trial(gold)], progress=False, chunk=50)
    expected = by_hand(arch, trial(gold))
    assert set(scores) == set(DOCUMENT_SCORERS)
    for method, values in expected.items():
        torch.testing.assert_close(
            scores[method].values, values, atol=1e-5, rtol=1e-4, msg=lambda m, x=method: f"{x}: {m}"
        )
    assert not has_hooks(model)


def view(attention: Any, null: Any, documents: Any, gold: Any = (0,), tags: Any = None) -> DocumentView:
    a, n = (torch.tensor(values, dtype=torch.float32)[None] for values in (attention, null))
    return DocumentView(0, a, n, tuple(documents), tuple(tags or [0] * len(documents)), tuple(gold))


def test_a_far_outlier_below_is_masked_and_nothing_else_is() -> None:
    # mean -0.64, unbiased std of nine 0.04 and one -6.76 is 2.1503: the floor is -4.94, so only the outlier goes.
    null = [0.0] * 9 + [6.8]
    assert float(qr(view([0.04] * 10, null, [(0, 10)]))) == pytest.approx(0.36)
    # Two of ten that low: mean -1.32, std 2.867, floor -7.05: all stay.
    null = [0.0] * 8 + [6.8, 6.8]
    assert float(qr(view([0.04] * 10, null, [(0, 10)]))) == pytest.approx(0.4 - 13.6, abs=1e-4)


def test_the_deviation_is_the_unbiased_one() -> None:
    # Of five values, four 0 and one -1: mean -.2; unbiased std .4472, floor -1.094: stays. Biased .4: floor exactly -1: dropped.
    assert float(qr(view([0.0] * 5, [0, 0, 0, 0, 1.0], [(0, 5)]))) == pytest.approx(-1)


def test_a_token_at_the_floor_is_dropped_as_are_all_of_an_even_document() -> None:
    # Equal values have std 0 and lie at the floor, not above it.
    assert float(qr(view([0.25] * 4, [0.0] * 4, [(0, 4)]))) == 0


def test_a_document_of_one_token_scores_its_own_value() -> None:
    assert float(qr(view([0.5, 0.2], [0.1, 0.0], [(0, 1)]))) == pytest.approx(0.4)


@given(st.floats(-1, 1), st.integers(0, 1000))
def test_a_shift_of_query_and_null_query_alike_changes_nothing(shift: float, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    a, a0 = torch.rand(2, 12, generator=generator)
    plain = view(a.tolist(), a0.tolist(), [(0, 5), (5, 12)], (1,))
    moved = view((a + shift).tolist(), (a0 + shift).tolist(), [(0, 5), (5, 12)], (1,))
    torch.testing.assert_close(qr(plain), qr(moved), atol=1e-5, rtol=0)


def test_gold_mass_sums_gold_documents_and_ndcg_ranks_all() -> None:
    attention = [0.3, 0.1, 0.05, 0.0, 0.2, 0.1]
    shown = view(attention, [0.0] * 6, [(0, 2), (2, 4), (4, 6)], (0, 1))
    assert float(qr(shown)) == pytest.approx(0.45)
    # Ranks 1 and 3 of 3, of ideally 1 and 2.
    assert float(qr_ndcg(shown)) == pytest.approx((1 + 1 / math.log2(4)) / (1 + 1 / math.log2(3)))


@given(st.integers(1, 14), st.integers(0, 10_000))
def test_ndcg_is_that_of_scikit_learn(documents: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    a = torch.randint(0, 6, (documents + 1,), generator=generator) / 8  # With ties.
    gold = sorted({int(i) for i in torch.randint(0, documents + 1, (3,), generator=generator)})
    spans = [(i, i + 1) for i in range(documents + 1)]
    relevance = [[float(i in gold) for i in range(documents + 1)]]
    found = float(qr_ndcg(view(a.tolist(), [0.0] * len(a), spans, gold)))
    assert found == pytest.approx(ndcg_score(relevance, [a.tolist()], k=10), abs=1e-5)


def test_core_is_chance_for_a_head_that_tells_no_document_apart() -> None:
    shown = view([0.1] * 8, [0.0] * 8, [(0, 2), (2, 4), (4, 6), (6, 8)], (2,))
    assert float(core(shown)) == pytest.approx(1 / 4)
    assert float(core(view([0.1] * 6, [0.0] * 6, [(0, 2), (2, 4), (4, 6)], (0, 1)))) == pytest.approx(1 / 2)


def test_core_leaves_the_number_out_and_summed_attention_does_not() -> None:
    shown = view([0.9, 0.1, 0.0, 0.1], [0.0] * 4, [(0, 2), (2, 4)], (0,), tags=(1, 1))
    assert float(core(shown)) == pytest.approx(1 / 2)
    assert float(summed_attention(shown)) == pytest.approx(1.0)


def test_core_leaves_out_trials_without_another_document_and_no_other_method_does(gqa: Any) -> None:
    everything = trial(("1", "2", "3", "4", "5"), id="all gold")
    with pytest.raises(ValueError, match="core compares gold documents with others, but all are gold"):
        lh.score_heads(gqa, [everything], methods="core", progress=False)
    scores = lh.score_heads(gqa, [trial(), everything], progress=False)
    assert scores["core"].trial_ids == ("one",)
    assert scores["qr"].trial_ids == ("one", "all gold")
    with pytest.warns(UserWarning, match="no trial counts for core"):
        assert set(lh.score_heads(gqa, [everything], progress=False)) == set(DOCUMENT_SCORERS) - {"core"}


def test_a_broken_scorer_is_caught(gqa: Any) -> None:
    """The parity test can fail: without the null query the scores are others."""
    broken = lh.Scorer("qr", lambda v: qr(view_without_null(v)), "query", False)
    scores = lh.score_heads(gqa, [trial()], methods=[broken], progress=False)["qr"]
    assert (scores.values - by_hand("llama-gqa", trial())["qr"]).abs().max() > 1e-3


def view_without_null(v: DocumentView) -> DocumentView:
    return DocumentView(v.layer, v.attention, torch.zeros_like(v.null), v.documents, v.tags, v.gold)
